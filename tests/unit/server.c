/*
 * Tests of fs/ninep with the tree and without ranks' processes: clients that are gone when they are
 * answered, fids that go or move while a request is pending. The test plays the engines, see
 * fake_agent.h, and the clients.
 */
#include "fake_agent.h"
#include "base/daemon.h"
#include "group/journal.h"
#include "group/registry.h"
#include "ninep/message.h"
#include "ninep/server.h"
#include "object/var_table.h"
#include "tree/live.h"
#include "tree/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The messages that are used here. */
enum {
	LOPEN = 12,
	LCREATE = 14,
	READDIR = 40,
	LOCK = 52,
	VERSION = 100,
	ATTACH = 104,
	WALK = 110,
	READ = 116,
	CLUNK = 120
};

enum { MSIZE = 64 << 10, NO_FID = -1 };

struct client {
	int fd;
	struct buf in;
};

static struct group *
begin(void)
{
	struct group *g = fake_begin(1);
	struct err e = {0};
	char *path = xasprintf("%s/socket", daemon_.state_dir);

	tree_init();
	live_init();
	CHECK(server_start(path, &e) == 0);
	free(path);
	return g;
}

static void
end(void)
{
	server_shut();
	group_remove_all();
	server_stop();
	tree_fini();
	fake_end();
}

/* ---- clients ---- */

/* Appends a list of names: the parts of a path. */
static void
put_names(struct buf *b, const char *path)
{
	char *copy = xstrdup(path), *save;
	struct buf names = {0};
	unsigned n = 0;

	for (char *name = strtok_r(copy, "/", &save); name; name = strtok_r(NULL, "/", &save)) {
		ninep_put_text(&names, name);
		n++;
	}
	ninep_put(b, 2, n);
	if (names.n)
		buf_add(b, names.p, names.n);
	buf_free(&names);
	free(copy);
}

/* Sends a message. Its fields are as in message.h, but w is a path, and 4 and 8 take an int. */
static void
say(const struct client *c, uint8_t type, uint16_t tag, const char *format, ...)
{
	struct buf body = {0}, frame = {0};
	va_list ap;

	va_start(ap, format);
	for (; *format; format++)
		if (*format == 's')
			ninep_put_text(&body, va_arg(ap, const char *));
		else if (*format == 'w')
			put_names(&body, va_arg(ap, const char *));
		else
			ninep_put(&body, *format - '0', (uint64_t)va_arg(ap, int));
	va_end(ap);
	ninep_put(&frame, 4, NINEP_HEADER + body.n);
	ninep_put(&frame, 1, type);
	ninep_put(&frame, 2, tag);
	buf_add(&frame, body.p, body.n);
	CHECK(send(c->fd, frame.p, frame.n, MSG_NOSIGNAL) == (ssize_t)frame.n);
	buf_free(&frame);
	buf_free(&body);
	fake_step();
}

/* Takes the reply to this tag. Returns 0, the errno that it tells, or -1 if there is none. data:
 * its body, valid until the next call; may be NULL. */
static int
reply(struct client *c, uint16_t tag, struct slice *data)
{
	static struct buf body;
	struct ninep_message m;
	size_t at = 0;
	long n;

	while ((n = recv(c->fd, buf_reserve(&c->in, MSIZE), MSIZE, MSG_DONTWAIT)) > 0)
		c->in.n += (size_t)n;
	while ((n = ninep_frame(c->in.p + at, c->in.n - at, MSIZE, &m)) > 0 && m.tag != tag)
		at += (size_t)n;
	if (n <= 0)
		return -1;
	buf_clear(&body);
	buf_add(&body, m.body.p, m.body.n);
	memmove(c->in.p + at, c->in.p + at + n, c->in.n - at - (size_t)n);
	c->in.n -= (size_t)n;
	if (data)
		*data = (struct slice){body.p, body.n};
	return m.type == NINEP_RLERROR ? (unsigned char)*body.p : 0;
}

static struct client
client_new(void)
{
	struct client c = {.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	snprintf(to.sun_path, sizeof(to.sun_path), "%s/socket", daemon_.state_dir);
	CHECK(connect(c.fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	say(&c, VERSION, NINEP_NO_TAG, "4s", MSIZE, "9P2000.L");
	CHECK(reply(&c, NINEP_NO_TAG, NULL) == 0);
	say(&c, ATTACH, 1, "44ss4", 0, NO_FID, "me", "", 0);
	CHECK(reply(&c, 1, NULL) == 0);
	return c;
}

static void
client_free(struct client *c)
{
	close(c->fd);
	buf_free(&c->in);
	fake_step();
}

/* Walks a new fid to a path. */
static void
walk(struct client *c, int fid, const char *path)
{
	say(c, WALK, 2, "44w", 0, fid, path);
	CHECK(reply(c, 2, NULL) == 0);
}

static void
open_path(struct client *c, int fid, const char *path)
{
	walk(c, fid, path);
	say(c, LOPEN, 2, "44", fid, O_RDONLY);
	CHECK(reply(c, 2, NULL) == 0);
}

static void
read_at(const struct client *c, int fid, uint16_t tag, int offset)
{
	say(c, READ, tag, "484", fid, offset, 1000);
}

/* From now on the daemon cannot send to it, but does not know. */
static void
refuse_replies(const struct client *c)
{
	CHECK(shutdown(c->fd, SHUT_RD) == 0);
}

static bool
is_hung_up_on(const struct client *c)
{
	fake_step();
	return send(c->fd, "", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE;
}

/* ---- clients that are gone when they are answered ---- */

/* The daemon finds out while it answers the readers of a stream; the others still get all. */
static void
test_gone_reader_of_events(void)
{
	struct group *g = begin();
	struct client gone = client_new(), stays = client_new();
	struct slice data;

	open_path(&gone, 1, "g/events");
	open_path(&stays, 1, "g/events");
	read_at(&stays, 1, 10, 0);
	read_at(&gone, 1, 11, 0);
	read_at(&gone, 1, 12, 0);
	refuse_replies(&gone);
	journal_event(g, "one");
	CHECK(is_hung_up_on(&gone));
	CHECK(reply(&stays, 10, &data) == 0 && data.n > 4);
	read_at(&stays, 1, 13, (int)data.n - 4);
	journal_event(g, "two");
	fake_step();
	CHECK(reply(&stays, 13, &data) == 0 && data.n > 4);
	client_free(&gone);
	client_free(&stays);
	end();
}

/* The same while it answers the readers of a cell's output. */
static void
test_gone_reader_of_output(void)
{
	struct group *g = begin();
	struct client gone = client_new(), stays = client_new();
	struct slice data;

	fake_cell(g, "pass", 0, NULL);
	open_path(&gone, 1, "g/cells/1/stream");
	open_path(&stays, 1, "g/cells/1/stream");
	read_at(&stays, 1, 10, 0);
	read_at(&gone, 1, 11, 0);
	read_at(&gone, 1, 12, 0);
	refuse_replies(&gone);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	CHECK(is_hung_up_on(&gone));
	CHECK(reply(&stays, 10, &data) == 0 && data.n > 4);

	fake_cell(g, "pass", 0, NULL);
	open_path(&stays, 2, "g/cells/2/stream");
	read_at(&stays, 2, 13, 0);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	CHECK(reply(&stays, 13, &data) == 0 && data.n > 4);
	client_free(&gone);
	client_free(&stays);
	end();
}

/* The rank reports a variable x. */
static void
report_x(struct group *g)
{
	var_table_unref(g->ranks[0].table);
	g->ranks[0].table = var_table_new(fake_slice("x\n"));
}

/* What a pending open has made goes with its client. */
static void
test_gone_opener(void)
{
	struct group *g = begin();
	struct client gone = client_new();
	int refs;

	report_x(g);
	refs = g->refs;
	walk(&gone, 1, "g/vars");
	say(&gone, LCREATE, 10, "4s444", 1, "x", O_RDONLY, 0600, 0);
	CHECK(fake_count(Tget, 0) == 1 && reply(&gone, 10, NULL) == -1);
	CHECK(g->refs > refs);
	client_free(&gone);
	CHECK(g->refs == refs);
	end();
}

/* ---- fids that are given up while a request is pending ---- */

static void
test_clunk_before_the_answer(void)
{
	struct group *g = begin();
	struct client c = client_new();
	struct slice data;

	fake_cell(g, "pass", 0, NULL);
	open_path(&c, 1, "g/cells/1/stream");
	read_at(&c, 1, 10, 0);
	say(&c, CLUNK, 3, "4", 1);
	CHECK(reply(&c, 3, NULL) == 0);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	CHECK(reply(&c, 10, &data) == 0 && data.n > 4);
	client_free(&c);
	end();
}

/* ---- walks in place ---- */

/* Walks a fid in place. Returns the errno. */
static int
walk_in_place(struct client *c, int fid, const char *path)
{
	say(c, WALK, 3, "44w", fid, fid, path);
	return reply(c, 3, NULL);
}

static void
test_walk_of_what_is_open(void)
{
	struct group *g = begin();
	struct client c = client_new();
	struct slice data;

	report_x(g);
	open_path(&c, 1, "g/vars");
	CHECK(walk_in_place(&c, 1, "x") == EBADF);
	say(&c, READDIR, 10, "484", 1, 0, 1000);
	CHECK(reply(&c, 10, &data) == 0 && data.n > 4);
	/* an open that is pending, which a second one does not join */
	walk(&c, 2, "g/vars/x");
	say(&c, LOPEN, 11, "44", 2, O_RDONLY);
	CHECK(walk_in_place(&c, 2, "") == EBADF);
	say(&c, LOPEN, 12, "44", 2, O_RDONLY);
	CHECK(reply(&c, 12, NULL) == EBADF);
	fake_refuses(fake_take(Tget, 0), ENOENT, "gone");
	CHECK(reply(&c, 11, NULL) == ENOENT);
	CHECK(walk_in_place(&c, 2, "") == 0);
	client_free(&c);
	end();
}

/* The directory is opened while the walk waits for the rank. */
static void
test_open_of_what_is_walked(void)
{
	struct client c;
	struct slice data;

	begin();
	c = client_new();
	walk(&c, 1, "g/vars");
	CHECK(walk_in_place(&c, 1, "_private") == -1);
	say(&c, LOPEN, 10, "44", 1, O_RDONLY);
	CHECK(reply(&c, 10, NULL) == 0);
	fake_answer(fake_take(Thas, 0), Rhas, (uint32_t)1, slice_text(""));
	CHECK(reply(&c, 3, NULL) == EBADF);
	say(&c, READDIR, 11, "484", 1, 0, 1000);
	CHECK(reply(&c, 11, &data) == 0 && data.n > 4);
	client_free(&c);
	end();
}

/* Tries to lock a whole file for writing. */
static bool
locks(struct client *c, int fid)
{
	struct slice data = {0};

	say(c, LOCK, 4, "414884s", fid, 1, 0, 0, 0, 1, "me");
	return reply(c, 4, &data) == 0 && data.p[0] == 0;
}

/* The fid's locks do not outlive its stay at a file. */
static void
test_walk_of_what_is_locked(void)
{
	struct client c, other;

	begin();
	c = client_new();
	other = client_new();
	walk(&c, 1, "g");
	walk(&other, 1, "g");
	CHECK(locks(&c, 1) && !locks(&other, 1));
	CHECK(walk_in_place(&c, 1, "vars") == 0);
	CHECK(locks(&other, 1));
	client_free(&c);
	client_free(&other);
	end();
}

int
main(void)
{
	test_gone_reader_of_events();
	test_gone_reader_of_output();
	test_gone_opener();
	test_clunk_before_the_answer();
	test_walk_of_what_is_open();
	test_open_of_what_is_walked();
	test_walk_of_what_is_locked();
	return CHECK_DONE();
}
