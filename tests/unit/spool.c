/* Tests of include/spool.c: a reader gets two streams in the order in which they were written,
 * between marks, while they grow and after a new process appends, also if the last one was killed;
 * a full disk loses no more than what does not fit. */
#include "spool.h"
#include "check.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/ddip-unit.XXXXXX";

/* Everything up to the end mark as "out[ERR]" text: stderr is in brackets. */
static void
read_all(const struct spool_reader *r, struct spool_cursor *c, const struct spool_mark *end,
    size_t max, struct buf *out)
{
	int stream;
	uint64_t offset;
	size_t len;

	while (spool_next(r, c, end, max, &stream, &offset, &len)) {
		char piece[100];

		CHECK(len <= max && len <= sizeof(piece));
		CHECK(pread(r->fd[stream], piece, len, (off_t)offset) == (ssize_t)len);
		buf_addf(out, stream == SPOOL_STDERR ? "[%.*s]" : "%.*s", (int)len, piece);
	}
}

static void
add(struct spool_writer *w, int stream, const char *s)
{
	spool_writer_add(w, stream, s, strlen(s));
}

static void
test_order(void)
{
	struct spool_writer w;
	struct spool_reader r;
	struct spool_cursor c = {0}, part = {0};
	struct spool_mark begin, end;
	struct err e = {0};
	struct buf out = {0};

	CHECK(spool_reader_open(&r, dir, "a", &e) == 0);
	CHECK(spool_writer_open(&w, dir, "a", &e) == 0);
	read_all(&r, &c, NULL, 100, &out);
	CHECK(out.n == 0);
	add(&w, SPOOL_STDOUT, "one ");
	read_all(&r, &c, NULL, 100, &out);
	add(&w, SPOOL_STDOUT, "two "); /* the open record grows */
	read_all(&r, &c, NULL, 100, &out);
	add(&w, SPOOL_STDERR, "bad");
	add(&w, SPOOL_STDOUT, "three");
	read_all(&r, &c, NULL, 100, &out);
	CHECK_STR(out.p, "one two [bad]three");

	buf_clear(&out);
	begin = spool_writer_cut(&w);
	add(&w, SPOOL_STDOUT, "cell");
	add(&w, SPOOL_STDERR, "err");
	end = spool_writer_cut(&w);
	add(&w, SPOOL_STDOUT, "later");
	part.at = begin;
	read_all(&r, &part, &end, 2, &out); /* in pieces of two bytes */
	CHECK_STR(out.p, "cell[er][r]");
	CHECK(end.size[SPOOL_STDOUT] - begin.size[SPOOL_STDOUT] == 4);
	buf_clear(&out);
	read_all(&r, &c, NULL, 100, &out);
	CHECK_STR(out.p, "cell[err]later");
	CHECK(spool_reader_size(&r, SPOOL_STDOUT) == 8 + 5 + 4 + 5);

	/* an end inside the open record: what is added to that is behind it */
	part.at = end;
	part.inside = 0;
	end = w.at;
	add(&w, SPOOL_STDOUT, "latest");
	buf_clear(&out);
	read_all(&r, &part, &end, 100, &out);
	CHECK_STR(out.p, "later");
	buf_clear(&out);
	read_all(&r, &c, NULL, 100, &out);
	CHECK_STR(out.p, "latest");
	spool_writer_close(&w);

	/* a new process appends where the last one stopped */
	buf_clear(&out);
	CHECK(spool_writer_open(&w, dir, "a", &e) == 0);
	add(&w, SPOOL_STDOUT, "again");
	read_all(&r, &c, NULL, 100, &out);
	CHECK_STR(out.p, "again");
	spool_writer_close(&w);
	spool_reader_close(&r);
	spool_reader_close(&r);
	buf_free(&out);
}

/* A writer that is killed behind its bytes and ahead of their record: the next one records them,
 * and all offsets are right. */
static void
test_killed(void)
{
	struct spool_writer w;
	struct spool_reader r;
	struct spool_cursor c = {0};
	struct err e = {0};
	struct buf out = {0};

	CHECK(spool_writer_open(&w, dir, "k", &e) == 0);
	add(&w, SPOOL_STDOUT, "one ");
	add(&w, SPOOL_STDERR, "bad");
	add(&w, SPOOL_STDOUT, "two ");
	CHECK(pwrite(w.fd[SPOOL_STDOUT], "three ", 6, 8) == 6);
	CHECK(pwrite(w.fd[SPOOL_STDERR], "worse", 5, 3) == 5);
	spool_writer_close(&w);

	CHECK(spool_writer_open(&w, dir, "k", &e) == 0);
	CHECK(w.at.size[SPOOL_STDOUT] == 14 && w.at.size[SPOOL_STDERR] == 8 && !w.dropped);
	add(&w, SPOOL_STDERR, "worst");
	add(&w, SPOOL_STDOUT, "four");
	CHECK(spool_reader_open(&r, dir, "k", &e) == 0);
	read_all(&r, &c, NULL, 100, &out);
	CHECK_STR(out.p, "one [bad]two three [worse][worst]four");
	CHECK(c.at.size[SPOOL_STDOUT] == w.at.size[SPOOL_STDOUT]);
	spool_writer_close(&w);
	spool_reader_close(&r);
	buf_free(&out);
}

static void
test_pipe(void)
{
	struct spool_writer w;
	struct err e = {0};
	int p[2];
	bool eof;
	char *data = malloc(100000);

	memset(data, 'z', 100000);
	CHECK(pipe(p) == 0 && fcntl(p[1], F_SETPIPE_SZ, 1 << 20) > 0);
	fd_nonblock(p[0], true);
	CHECK(spool_writer_open(&w, dir, "b", &e) == 0);
	CHECK(spool_writer_move(&w, SPOOL_STDOUT, p[0], &eof) == 0 && !eof);
	CHECK(write(p[1], data, 100000) == 100000);
	CHECK(spool_writer_move(&w, SPOOL_STDOUT, p[0], &eof) == 100000 && !eof);
	close(p[1]);
	CHECK(spool_writer_move(&w, SPOOL_STDOUT, p[0], &eof) == 0 && eof);
	CHECK(w.at.size[SPOOL_STDOUT] == 100000 && w.dropped == 0);
	close(p[0]);
	spool_writer_close(&w);
	free(data);
}

/* A full disk: what does not fit is counted, and the writer goes on. */
static void
test_full(void)
{
	struct spool_writer w;
	struct spool_reader r;
	struct spool_cursor c = {0};
	struct err e = {0};
	struct buf out = {0};
	int p[2], order;
	bool eof;

	CHECK(spool_writer_open(&w, dir, "c", &e) == 0);
	close(w.fd[SPOOL_STDOUT]);
	w.fd[SPOOL_STDOUT] = open("/dev/full", O_RDWR | O_CLOEXEC);
	add(&w, SPOOL_STDOUT, "lost");
	CHECK(w.dropped == 4 && w.at.size[SPOOL_STDOUT] == 0 && w.at.records == 0);
	CHECK(pipe(p) == 0 && write(p[1], "also lost", 9) == 9);
	fd_nonblock(p[0], true);
	CHECK(spool_writer_move(&w, SPOOL_STDOUT, p[0], &eof) == 0 && !eof);
	CHECK(w.dropped == 13);
	add(&w, SPOOL_STDERR, "kept");
	CHECK(w.at.size[SPOOL_STDERR] == 4 && w.at.records == 1);
	close(p[0]), close(p[1]);

	/* nor is there room for the index: readers miss that piece, and no other */
	order = w.order;
	w.order = open("/dev/full", O_RDWR | O_CLOEXEC);
	add(&w, SPOOL_STDERR, "missed");
	CHECK(w.dropped == 19 && w.at.size[SPOOL_STDERR] == 4 && w.at.records == 1);
	close(w.order);
	w.order = order;
	add(&w, SPOOL_STDERR, "later");
	CHECK(spool_reader_open(&r, dir, "c", &e) == 0);
	read_all(&r, &c, NULL, 100, &out);
	CHECK_STR(out.p, "[kept][later]");
	CHECK(c.at.size[SPOOL_STDERR] == w.at.size[SPOOL_STDERR]);
	buf_free(&out);
	spool_reader_close(&r);
	spool_writer_close(&w);
}

/* Passes what has been written to a reader that keeps up. */
static uint64_t
pass(const struct spool_reader *r, struct spool_cursor *c)
{
	uint64_t offset, n = 0;
	int stream;
	size_t len;

	while (spool_next(r, c, NULL, 100, &stream, &offset, &len))
		n += len;
	return n;
}

static uint64_t
disk_bytes(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

/* An index that is trimmed stays small; who reads from before it learns how much is lost, and a new
 * process appends at the right place. */
static void
test_trim(void)
{
	enum { ROUNDS = 20000, KEPT = 1024, PAGES = 3 * 4096 };
	struct spool_writer w;
	struct spool_reader r, again;
	struct spool_cursor c = {0}, old = {0}, part = {0};
	struct spool_mark cut = {0}, early = {.size = {3, 2}, .records = 5};
	struct err e = {0};
	uint64_t lost;

	CHECK(spool_writer_open(&w, dir, "t", &e) == 0);
	CHECK(spool_reader_open(&r, dir, "t", &e) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		add(&w, i % 2 ? SPOOL_STDERR : SPOOL_STDOUT, "x");
		pass(&r, &c);
		CHECK(c.inside == 1); /* the last record may still grow */
		spool_trim(&r, &cut, &c, KEPT);
	}
	CHECK(r.first.records > ROUNDS - 3 * KEPT && r.first.records <= ROUNDS - KEPT);
	CHECK(disk_bytes(r.order) <= 2 * KEPT * 8 + PAGES);
	lost = spool_skip(&r, &old, NULL);
	CHECK(lost == r.first.records && spool_skip(&r, &old, NULL) == 0);
	CHECK(pass(&r, &old) == ROUNDS - lost);
	CHECK(spool_skip(&r, &part, &early) == 5 && part.at.records == 5);
	CHECK(spool_skip(&r, &c, NULL) == 0);
	spool_writer_close(&w);

	CHECK(spool_writer_open(&w, dir, "t", &e) == 0);
	CHECK(w.at.records == ROUNDS && w.at.size[SPOOL_STDOUT] == ROUNDS / 2 && !w.dropped);
	add(&w, SPOOL_STDOUT, "more");
	CHECK(pass(&r, &c) == 4 && c.at.size[SPOOL_STDOUT] == ROUNDS / 2 + 4);
	CHECK(spool_reader_open(&again, dir, "t", &e) == 0);
	CHECK(again.first.records == r.first.records);
	spool_reader_close(&again);
	spool_reader_close(&r);
	spool_writer_close(&w);
}

int
main(void)
{
	struct err e = {0};
	struct spool_writer w;
	char command[64];

	CHECK(mkdtemp(dir) != NULL);
	CHECK(spool_writer_open(&w, "/nonexistent", "a", &e) < 0 && e.text[0]);
	test_order();
	test_killed();
	test_pipe();
	test_full();
	test_trim();
	snprintf(command, sizeof(command), "rm -r %s", dir);
	CHECK(system(command) == 0);
	return CHECK_DONE();
}
