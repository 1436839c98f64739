/* Tests of fs/host/outbox.c and include/blob.c: a file is sent once for all messages that it comes
 * with, and only as long as one of them is wanted; they arrive with it, and behind what was sent
 * before; what cannot be sent or received fails alone. */
#include "host/outbox.h"
#include "frame.h"
#include "check.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SIZE = 3 << 20, GOT = 16 };

/* A side: what it has received, in this order. */
struct side {
	struct conn *control, *lane;
	unsigned n, closes;
	int why;

	struct {
		int type, no;
		uint64_t tag, size, sum;
	} got[GOT];
};

static struct loop *l;
static struct outbox *out;
static struct side a, b; /* the daemon, and the agent */
static int at_b;	 /* b's end of the lane */
static unsigned blobs, forgets;
static uint64_t blob_bytes;

static uint64_t
sum_of(int fd, uint64_t *size)
{
	static char bytes[1 << 16];
	uint64_t sum = HASH_START;
	ssize_t n;

	for (*size = 0; (n = pread(fd, bytes, sizeof(bytes), (off_t)*size)) > 0;
	     *size += (uint64_t)n)
		sum = hash_add(sum, bytes, (size_t)n);
	return sum;
}

static void
on_msg(void *arg, struct msg *m)
{
	struct side *s = arg;
	struct err e = {0};

	CHECK(s->n < GOT);
	s->got[s->n].type = m->type;
	s->got[s->n].tag = m->tag;
	if (m->type == Rerror)
		wire_read_error(m, &e, NULL);
	else if (m->type == Ncancel)
		wire_unpack(m, Ncancel, NULL, &s->got[s->n].tag);
	s->got[s->n].no = e.no;
	if (m->fd >= 0)
		s->got[s->n].sum = sum_of(m->fd, &s->got[s->n].size);
	s->n++;
}

static void
on_close(void *arg, const struct err *e)
{
	((struct side *)arg)->closes++;
	((struct side *)arg)->why = e->no;
}

static void
on_trace(bool in, const struct msg *m)
{
	struct slice data;

	if (!in || wire_unpack(m, Nblob, NULL, NULL, NULL, NULL, &data) < 0) {
		forgets += in && m->type == Nforget;
		return;
	}
	blobs++;
	blob_bytes += data.n;
}

static void
on_fd(void *arg, struct msg *m)
{
	outbox_send(out, m);
}

static void
connect_sides(void)
{
	int control[2], lane[2];

	a = b = (struct side){0};
	blobs = forgets = 0;
	blob_bytes = 0;
	l = loop_new();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lane) == 0);
	a.control = conn_new(l, control[0], control[0], on_msg, on_close, &a);
	conn_gather(a.control);
	conn_on_fd(a.control, on_fd);
	b.control = conn_new(l, control[1], control[1], on_msg, on_close, &b);
	out = outbox_new(l, a.control, lane[0]);
	at_b = lane[1];
	frame_trace(on_trace);
}

/* From now on b receives what comes by the lane. */
static void
listen_there(void)
{
	b.lane = conn_new(l, at_b, at_b, on_msg, on_close, &b);
	conn_beside(b.lane, b.control);
}

static void
disconnect(void)
{
	outbox_free(out);
	conn_free(a.control);
	conn_free(b.control);
	if (b.lane)
		conn_free(b.lane);
	else
		close(at_b);
	loop_free(l);
	frame_trace(NULL);
}

static void
rounds(void)
{
	for (int i = 0; i < 1000; i++)
		loop_once(l, i % 20 == 0);
}

static int
file_of(size_t n, char c)
{
	int fd = memfd_create("unit", MFD_CLOEXEC);
	char *bytes = xmalloc(n + 1);

	for (size_t i = 0; i < n; i++)
		bytes[i] = (char)(c + (char)(i / 1000));
	CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
	free(bytes);
	return fd;
}

/* A Tput of this file. */
static void
put(uint64_t tag, int fd)
{
	conn_send(a.control, Tput, 0, 1, tag, fd, slice_text("x"), slice_text(""), slice_text(""),
	    (uint64_t)1);
}

static bool
is(const struct side *s, unsigned i, int type, uint64_t tag, int no)
{
	return s->n > i && s->got[i].type == type && s->got[i].tag == tag && s->got[i].no == no;
}

static void
test_once_for_all(void)
{
	int fd = file_of(SIZE, 'a'), empty = file_of(0, 'a');
	uint64_t size, sum = sum_of(fd, &size);

	connect_sides();
	for (uint64_t tag = 1; tag <= 3; tag++)
		put(tag, fd);
	put(4, empty);
	listen_there();
	rounds();
	CHECK(b.n == 4 && is(&b, 0, Tput, 4, 0) && b.got[0].size == 0);
	for (unsigned i = 1; i < 4; i++)
		CHECK(is(&b, i, Tput, i, 0) && b.got[i].size == SIZE && b.got[i].sum == sum);
	put(5, fd); /* it is there */
	rounds();
	CHECK(is(&b, 4, Tput, 5, 0) && b.got[4].sum == sum && blob_bytes == SIZE);
	for (uint64_t tag = 1; tag <= 4; tag++)
		outbox_release(out, tag);
	rounds();
	CHECK(forgets == 1); /* the empty one */
	outbox_release(out, 5);
	rounds();
	CHECK(forgets == 2 && b.closes == 0);
	put(6, fd);
	rounds();
	CHECK(is(&b, 5, Tput, 6, 0) && b.got[5].sum == sum && blob_bytes == 2 * SIZE);
	CHECK(a.n == 0);
	disconnect();
	close(fd);
	close(empty);
}

/* What was sent by the other lane before is there before. */
static void
test_order(void)
{
	struct slice much = {xcalloc(1, 1 << 20), 1 << 20};
	int fd = file_of(10, 'a');

	connect_sides();
	listen_there();
	for (uint64_t tag = 1; tag < 8; tag += 2) {
		conn_send(a.control, Tgc, 0, 1, tag, -1);
		if (tag == 5) /* more than the socket holds */
			for (int i = 0; i < 3; i++)
				conn_send(a.control, Nstdin, 0, 1, tag, -1, much);
		put(tag + 1, fd);
	}
	rounds();
	CHECK(b.n == 11);
	for (unsigned i = 0; i < b.n; i++)
		for (unsigned j = i + 1; j < b.n && b.got[i].type == Tput; j++)
			CHECK(b.got[j].tag > b.got[i].tag);
	disconnect();
	free((char *)(uintptr_t)much.p);
	close(fd);
}

/* One that is not sent yet is answered here; another one with the same file is sent. */
static void
test_cancel(void)
{
	int fd = file_of(SIZE, 'a'), other = file_of(SIZE, 'b');

	connect_sides();
	put(1, fd);
	put(2, fd);
	put(3, other);
	outbox_cancel(out, 1, 1);
	CHECK(a.n == 0); /* not inside the call */
	outbox_cancel(out, 1, 3);
	listen_there();
	rounds();
	CHECK(a.n == 2 && is(&a, 0, Rerror, 1, EINTR) && is(&a, 1, Rerror, 3, EINTR));
	CHECK(b.n == 1 && is(&b, 0, Tput, 2, 0) && b.got[0].size == SIZE);
	CHECK(blob_bytes < SIZE + SIZE / 2);
	outbox_cancel(out, 1, 2); /* it is on its way, or there */
	rounds();
	CHECK(b.n == 2 && is(&b, 1, Ncancel, 2, 0) && a.n == 2);
	put(4, other); /* again, from its beginning */
	rounds();
	CHECK(is(&b, 2, Tput, 4, 0) && b.got[2].size == SIZE && b.closes == 0);
	disconnect();
	close(fd);
	close(other);
}

/* The rest is not sent when nobody waits for it any more. */
static void
test_release(void)
{
	int fd = file_of(SIZE, 'a');

	connect_sides();
	put(1, fd);
	put(2, fd);
	outbox_release(out, 1);
	outbox_release(out, 2);
	outbox_release(out, 2);
	listen_there();
	rounds();
	CHECK(b.n == 0 && a.n == 0 && forgets == 1 && blob_bytes < SIZE / 2);
	disconnect();
	close(fd);
}

static rlim_t
limit(rlim_t n)
{
	struct rlimit files;
	rlim_t had;

	getrlimit(RLIMIT_NOFILE, &files);
	had = files.rlim_cur;
	files.rlim_cur = n;
	CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
	return had;
}

/* Only the request fails, on either side. */
static void
test_no_descriptor(void)
{
	int fd = file_of(10, 'a');
	rlim_t had;

	connect_sides();
	listen_there();
	had = limit(3);
	put(1, fd);
	limit(had);
	rounds();
	CHECK(a.n == 1 && is(&a, 0, Rerror, 1, EMFILE) && b.n == 0);
	put(2, fd);
	had = limit(3);
	rounds();
	limit(had);
	CHECK(a.n == 2 && is(&a, 1, Rerror, 2, EMFILE) && b.n == 0);
	outbox_release(out, 2);
	put(3, fd);
	rounds();
	CHECK(b.n == 1 && is(&b, 0, Tput, 3, 0) && a.n == 2 && b.closes == 0);
	disconnect();
	close(fd);
}

/* A lane by which frames come to a. Returns its other end. */
static int
lane_to_a(void)
{
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	a.lane = conn_new(l, pair[0], pair[0], on_msg, on_close, &a);
	conn_beside(a.lane, a.control);
	return pair[1];
}

/* An answer whose bytes cannot be stored is an error, and its object is let go of. */
static void
test_no_room_for_an_answer(void)
{
	struct buf frames = {0}, answer = {0};
	rlim_t had;
	int fd;

	connect_sides();
	listen_there();
	fd = lane_to_a();
	wire_pack(&answer, Rget, 0, 1, 9, (uint32_t)GET_FD, 77u, (uint64_t)0, (uint64_t)2,
	    (struct slice){0});
	wire_pack(&frames, Nblob, 0, SLOT_AGENT, 0, 5u, (uint64_t)2, (uint64_t)0, slice_text("xy"));
	wire_pack(&frames, Nwith, 0, SLOT_AGENT, 0, 5u, ((struct slice){answer.p, answer.n}));
	wire_pack(&frames, Nforget, 0, SLOT_AGENT, 0, 5u);
	CHECK(write(fd, frames.p, frames.n) == (ssize_t)frames.n);
	had = limit(3);
	rounds();
	limit(had);
	CHECK(a.n == 1 && is(&a, 0, Rerror, 9, EMFILE));
	CHECK(b.n == 1 && b.got[0].type == Nfree);
	CHECK(write(fd, frames.p, frames.n) == (ssize_t)frames.n);
	rounds();
	CHECK(a.n == 2 && is(&a, 1, Rget, 9, 0) && a.got[1].size == 2);
	conn_free(a.lane);
	close(fd);
	buf_free(&frames);
	buf_free(&answer);
	disconnect();
}

static void
test_nonsense(void)
{
	for (int i = 0; i < 3; i++) {
		struct buf frames = {0};
		int fd;

		connect_sides();
		fd = lane_to_a();
		wire_pack(&frames, Nblob, 0, SLOT_AGENT, 0, 1u, (uint64_t)(i == 2 ? 1 : 3),
		    (uint64_t)0, slice_text("xy"));
		if (i == 0) /* before all of it is there */
			wire_pack(&frames, Nwith, 0, SLOT_AGENT, 0, 1u, slice_text(""));
		else if (i == 1)
			wire_pack(&frames, Nblob, 0, SLOT_AGENT, 0, 1u, (uint64_t)3, UINT64_MAX,
			    slice_text("z"));
		CHECK(write(fd, frames.p, frames.n) == (ssize_t)frames.n);
		rounds();
		CHECK(a.closes == 1 && a.why == EBADMSG && a.n == 0);
		conn_free(a.lane);
		close(fd);
		buf_free(&frames);
		disconnect();
	}
}

int
main(void)
{
	test_once_for_all();
	test_order();
	test_cancel();
	test_release();
	test_no_descriptor();
	test_no_room_for_an_answer();
	test_nonsense();
	return CHECK_DONE();
}
