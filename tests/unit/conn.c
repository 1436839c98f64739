/* Tests of include/conn.c: messages arrive whole and in order, each with its descriptor, in pieces
 * and over a full socket; malformed data ends a connection. */
#include "conn.h"
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct side {
	struct conn *c;
	int messages, closes, why, last_fd_byte;
	int errors, no; /* Rerror: their number, and the last one's errno */
	uint64_t error_tag;
	uint32_t freed;	 /* freed: by the last Nfree */
	int no_fd;	 /* notices that arrived without their descriptor */
	int answer_with; /* a descriptor for the reply to Tget; -1: none */
	size_t bytes;
	bool free_inside;
};

static struct loop *l;

static void
on_msg(void *arg, struct msg *m)
{
	struct side *s = arg;
	struct slice d;
	char c = 0;

	s->messages++;
	if (m->type == Rerror) {
		uint32_t no = 0;

		wire_unpack(m, Rerror, NULL, &no, NULL, NULL);
		s->errors++;
		s->no = (int)no;
		s->error_tag = m->tag;
	}
	if (m->type == Tget && s->answer_with >= 0)
		conn_send(s->c, Rget, 0, m->slot, m->tag, s->answer_with, 1u, 3u, (uint64_t)0,
		    (uint64_t)1, (struct slice){"", 0});
	if (m->type == Nfree)
		wire_unpack(m, Nfree, NULL, &s->freed);
	s->no_fd += m->type == Nfd && m->fd < 0;
	if (m->type == Rread && wire_unpack(m, Rread, NULL, &d) == 0)
		s->bytes += d.n;
	if (m->fd >= 0) {
		CHECK(pread(m->fd, &c, 1, 0) == 1);
		s->last_fd_byte = c;
	}
	if (s->free_inside) {
		conn_free(s->c);
		s->c = NULL;
	}
}

static void
on_close(void *arg, const struct err *e)
{
	struct side *s = arg;

	s->closes++;
	s->why = e->no;
}

static void
connect_sides(struct side *a, struct side *b)
{
	const int room = 64 << 10; /* bytes, whatever this machine's default is */
	int fds[2];

	*a = *b = (struct side){.answer_with = -1};
	l = loop_new();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) == 0);
	a->c = conn_new(l, fds[0], fds[0], on_msg, on_close, a);
	b->c = conn_new(l, fds[1], fds[1], on_msg, on_close, b);
}

static void
disconnect(struct side *a, struct side *b)
{
	conn_free(a->c);
	conn_free(b->c);
	loop_free(l);
}

static void
drain(void)
{
	for (int i = 0; i < 2000; i++)
		loop_once(l, 0);
}

static void
test_bulk(void)
{
	struct side a, b;
	char *data = calloc(1, 1 << 20);

	connect_sides(&a, &b);
	for (int i = 0; i < 20;
	     i++) /* far more than the socket holds: the rest waits in the queue */
		conn_send(a.c, Rread, 0, 1, 5, -1, (struct slice){data, 1 << 20});
	CHECK(conn_queued(a.c) > 0);
	drain();
	CHECK(conn_queued(a.c) == 0);
	CHECK(b.messages == 20 && b.bytes == (size_t)20 << 20);
	disconnect(&a, &b);
	free(data);
}

/* Each descriptor arrives with its own message, also between messages without one. */
static void
test_descriptors(void)
{
	struct side a, b;

	connect_sides(&a, &b);
	for (char c = 'a'; c < 'm'; c++) {
		FILE *f = tmpfile();

		fputc(c, f);
		fflush(f);
		conn_send(a.c, Nquit, 0, 1, 0, -1);
		conn_send(a.c, Tput, 0, 1, 5, fileno(f), (struct slice){"x", 1},
		    (struct slice){"", 0}, (struct slice){"", 0}, (uint64_t)1);
		fclose(f);
		if (c % 3 == 0) {
			drain();
			CHECK(b.last_fd_byte == c);
		}
	}
	drain();
	CHECK(b.messages == 24 && b.last_fd_byte == 'l');
	disconnect(&a, &b);
}

static void
test_end_and_nonsense(void)
{
	struct side a, b;

	connect_sides(&a, &b);
	conn_send(a.c, Nquit, 0, 1, 0, -1);
	conn_free(a.c); /* what was sent before is still read */
	a.c = NULL;
	drain();
	CHECK(b.messages == 1 && b.closes == 1 && b.why == 0);
	conn_send(b.c, Nquit, 0, 1, 0, -1); /* the peer has gone: harmless */
	disconnect(&a, &b);

	connect_sides(&a, &b);
	CHECK(write(conn_fd(a.c), "\1\0\0\0nonsense", 12) == 12);
	drain();
	CHECK(b.messages == 0 && b.closes == 1 && b.why == EBADMSG);
	disconnect(&a, &b);
}

static void
test_free_inside(void)
{
	struct side a, b;

	connect_sides(&a, &b);
	b.free_inside = true;
	conn_send(a.c, Nquit, 0, 1, 0, -1);
	conn_send(a.c, Nquit, 0, 1, 0, -1);
	drain();
	CHECK(b.messages == 1 && b.closes == 0 && a.closes == 1);
	disconnect(&a, &b);
}

/* Byte by byte through two pipes, as between hosts. */
static void
test_pipes(void)
{
	struct side a = {0}, b = {0};
	struct buf frame = {0};
	int to[2], from[2];

	l = loop_new();
	CHECK(pipe(to) == 0 && pipe(from) == 0);
	b.c = conn_new(l, to[0], from[1], on_msg, on_close, &b);
	wire_pack(&frame, Tdel, 0, 1, 9, (struct slice){"name", 4});
	for (size_t i = 0; i < frame.n; i++) {
		CHECK(b.messages == 0);
		CHECK(write(to[1], frame.p + i, 1) == 1);
		loop_once(l, 0);
	}
	CHECK(b.messages == 1);
	conn_send(b.c, Rdel, 0, 1, 9, -1, (struct slice){"", 0});
	a.c = conn_new(l, from[0], to[1], on_msg, on_close, &a);
	drain();
	CHECK(a.messages == 1);
	buf_free(&frame);
	disconnect(&a, &b);
}

static void
put_with(struct side *s, uint64_t tag, int fd)
{
	conn_send(s->c, Tput, 0, 1, tag, fd, slice_text("x"), slice_text(""), slice_text(""),
	    (uint64_t)1);
}

/* Uses up all descriptors that this process may have. Returns the previous limit. */
static rlim_t
use_up(void)
{
	struct rlimit files;
	rlim_t had;
	int fd = dup(0);

	getrlimit(RLIMIT_NOFILE, &files);
	had = files.rlim_cur;
	close(fd);
	files.rlim_cur = (rlim_t)fd; /* the lowest free descriptor */
	setrlimit(RLIMIT_NOFILE, &files);
	CHECK(dup(0) < 0 && errno == EMFILE);
	return had;
}

static void
restore(rlim_t had)
{
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = had;
	setrlimit(RLIMIT_NOFILE, &files);
}

static int
file_with(char c)
{
	char path[] = "/tmp/ddip-unit.XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0 && write(fd, &c, 1) == 1 && unlink(path) == 0);
	return fd;
}

/* A message whose descriptor cannot be received fails alone; the messages around it keep theirs. */
static void
test_none_left_to_receive(void)
{
	struct side a, b;
	int x = file_with('x'), y = file_with('y');
	rlim_t had;

	connect_sides(&a, &b);
	had = use_up();
	conn_send(a.c, Nquit, 0, 1, 0, -1);
	put_with(&a, 7, x);
	conn_send(a.c, Nquit, 0, 1, 0, -1);
	drain();
	CHECK(b.messages == 2 && b.closes == 0); /* the notices */
	CHECK(a.errors == 1 && a.no == EMFILE && a.error_tag == 7);
	/* a reply, and a notice */
	b.answer_with = y;
	conn_send(a.c, Tget, 0, 1, 8, -1, slice_text("x"), slice_text(""), slice_text(""));
	drain();
	CHECK(a.errors == 2 && a.no == EMFILE && a.error_tag == 8 && b.freed == 3);
	conn_send(a.c, Nfd, 0, 1, 0, x, 1u);
	drain();
	CHECK(b.no_fd == 1);
	restore(had);
	put_with(&a, 9, y);
	drain();
	CHECK(b.last_fd_byte == 'y' && a.errors == 2 && a.closes == 0 && b.closes == 0);
	close(x);
	close(y);
	disconnect(&a, &b);
}

/* A message that must wait for room, and whose descriptor cannot be duplicated, fails alone;
 * nothing blocks. */
static void
test_none_left_to_send(void)
{
	struct side a, b;
	char *data = calloc(1, 1 << 20);
	int x = file_with('x');
	rlim_t had;

	connect_sides(&a, &b);
	conn_send(a.c, Rread, 0, 1, 5, -1, (struct slice){data, 1 << 20});
	CHECK(conn_queued(a.c) > 0);
	had = use_up();
	put_with(&a, 7, x);
	CHECK(a.errors == 0); /* not from within the call */
	conn_send(a.c, Rget, 0, 1, 8, x, 1u, 0u, (uint64_t)0, (uint64_t)1, (struct slice){"", 0});
	conn_send(a.c, Nfd, 0, 1, 0, x, 1u);
	restore(had);
	put_with(&a, 9, x);
	close(x);
	drain();
	CHECK(a.errors == 1 && a.no == EMFILE && a.error_tag == 7);
	CHECK(b.errors == 1 && b.no == EMFILE && b.error_tag == 8);
	CHECK(b.no_fd == 1 && b.bytes == 1 << 20 && b.last_fd_byte == 'x');
	CHECK(b.messages == 4 && a.closes == 0 && b.closes == 0);
	disconnect(&a, &b);
	free(data);
}

int
main(void)
{
	test_none_left_to_receive();
	test_none_left_to_send();
	test_bulk();
	test_descriptors();
	test_end_and_nonsense();
	test_free_inside();
	test_pipes();
	return CHECK_DONE();
}
