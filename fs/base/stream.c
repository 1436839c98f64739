/* Live streams of lines: an append-only file, and an offset for each reader. */
#include "base/stream.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	PIECE = 16 << 10,      /* bytes of one read */
	KEEP_BYTES = 16 << 20, /* kept of a stream */
	LOST_LINE = 80	       /* size of the line that reports a loss */
};

struct stream *
stream_new(const char *path, struct err *e)
{
	struct stream *s = xcalloc(1, sizeof(*s));

	if (fault("stream.open", EMFILE))
		s->fd = -1;
	else if (path)
		s->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	else
		s->fd = memfd_create("ddipfs-stream", MFD_CLOEXEC);
	if (s->fd < 0) {
		fail_errno(e, "%s", path ? path : "a live stream");
		free(s);
		return NULL;
	}
	TAILQ_INIT(&s->readers);
	return s;
}

void
stream_answer(struct stream *s, int error)
{
	struct req *r;

	while ((r = TAILQ_FIRST(&s->readers))) {
		TAILQ_REMOVE(&s->readers, r, link);
		req_done(r, -error);
	}
}

void
stream_free(struct stream *s, int error)
{
	if (!s)
		return;
	stream_answer(s, error);
	close(s->fd);
	free(s);
}

void
stream_last(const struct stream *s, size_t max, struct buf *out)
{
	/* a byte more: a line begins behind the end of another */
	uint64_t from = s->size - s->first > max ? s->size - max - 1 : s->first;
	size_t n = (size_t)(s->size - from);
	char *p = xmalloc(n + 1), *line;
	ssize_t got = pread(s->fd, p, n, (off_t)from);

	line = from == s->first || got <= 0 ? p : memchr(p, '\n', (size_t)got);
	if (line && got > 0) {
		line += from != s->first;
		buf_add(out, line, (size_t)(p + got - line));
	}
	free(p);
}

/* Reads whole lines at an offset, at most n bytes. Returns their length; 0 if there is nothing
 * yet. */
static size_t
take(const struct stream *s, uint64_t at, char *p, size_t n)
{
	ssize_t got = pread(s->fd, p, n, (off_t)at);
	char *end;

	if (got <= 0)
		return 0;
	/* cut at the end of a line, unless one line exceeds the reader's buffer */
	end = memrchr(p, '\n', (size_t)got);
	return end ? (size_t)(end - p) + 1 : (size_t)got;
}

static void
interrupted(struct req *r, enum interrupt how)
{
	struct stream_reader *reader = r->waits_for;

	TAILQ_REMOVE(&reader->s->readers, r, link);
	req_done(r, -EINTR);
}

void
stream_reader_init(struct stream_reader *reader, struct stream *s)
{
	*reader = (struct stream_reader){.s = s, .base = (int64_t)s->size, .next = s->size};
}

bool
stream_ready(const struct stream_reader *reader)
{
	return reader->next < reader->s->size;
}

/* The bytes that a reader wants have been dropped. Answers with a line that says how many; the
 * oldest line kept follows it. */
static void
give_lost(struct stream_reader *reader, struct req *r, uint64_t lost)
{
	char line[LOST_LINE];
	int made = snprintf(line, sizeof(line), "- %.3f dropped bytes=%llu\n", now_wall(),
	    (unsigned long long)lost);
	size_t n = MIN((size_t)made, r->want);

	reader->next = reader->s->first;
	reader->base = (int64_t)reader->s->first - (int64_t)(r->offset + n);
	req_data(r, line, n);
}

void
stream_read(struct stream_reader *reader, struct req *r)
{
	struct stream *s = reader->s;
	char piece[PIECE];
	int64_t at = reader->base + (int64_t)MIN(r->offset, (uint64_t)INT64_MAX / 2);
	size_t n;

	if (at < (int64_t)s->first) {
		give_lost(reader, r, s->first - (uint64_t)at);
		return;
	}
	n = take(s, (uint64_t)at, piece, MIN(r->want, sizeof(piece)));
	if (n || (uint64_t)at > s->size) {
		if (n)
			reader->next = (uint64_t)at + n;
		req_data(r, piece, n);
		return;
	}
	if (r->nonblock) {
		req_done(r, -EAGAIN);
		return;
	}
	r->waits_for = reader;
	TAILQ_INSERT_TAIL(&s->readers, r, link);
	req_park(r, interrupted);
}

/* Frees the memory of everything before an offset. */
static void
drop_before(struct stream *s, uint64_t first)
{
	s->first = first;
	if (first &&
	    fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)first) < 0)
		note("a live stream keeps its memory: %s", strerror(errno));
}

void
stream_drop(struct stream *s)
{
	drop_before(s, s->size);
}

/* Trims the stream to its last KEEP_BYTES, at the beginning of a line, once it holds one and a half
 * times as many. */
static void
bound(struct stream *s)
{
	char piece[PIECE];
	uint64_t first = s->size - MIN(s->size, (uint64_t)KEEP_BYTES);
	const char *end;
	ssize_t n;

	if (s->size - s->first <= KEEP_BYTES + KEEP_BYTES / 2)
		return;
	n = pread(s->fd, piece, sizeof(piece), (off_t)first);
	end = n > 0 ? memchr(piece, '\n', (size_t)n) : NULL;
	drop_before(s, end ? first + (uint64_t)(end - piece) + 1 : first);
}

void
stream_add(struct stream *s, const char *p, size_t n)
{
	struct req_list woken = TAILQ_HEAD_INITIALIZER(woken);
	struct req *r;

	if (pwrite_all("stream.write", s->fd, p, n, s->size) < n) {
		note("%zu bytes of a live stream are lost: %s", n, strerror(errno));
		return;
	}
	s->size += n;
	bound(s);
	TAILQ_CONCAT(&woken, &s->readers, link);
	while ((r = TAILQ_FIRST(&woken))) {
		TAILQ_REMOVE(&woken, r, link);
		stream_read(r->waits_for, r);
	}
	req_wake_pollers();
}
