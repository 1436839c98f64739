/* Tests of include/gather.c over connections: equal messages are sent as one, and each engine's
 * messages stay in order. */
#include "conn.h"
#include "frame.h"
#include "check.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { MOST = 64 };

/* One end of a connection and what it received: type, slot, tag, and a number from each message. */
struct side {
	struct conn *c;
	int n, why;

	struct {
		int type;
		unsigned slot;
		uint64_t tag;
		uint64_t number;
	} got[MOST];
};

static struct loop *l;

static void
on_msg(void *arg, struct msg *m)
{
	struct side *s = arg;
	uint64_t number = 0;
	struct slice text = {0};
	uint64_t asked = 0;
	uint32_t cell = 0;

	if (m->type == Nmark)
		wire_unpack(m, Nmark, NULL, &asked, NULL, NULL, NULL, &number);
	else if (m->type == Rrun)
		wire_unpack(m, Rrun, NULL, NULL, &text, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
		    NULL, &number);
	else if (m->type == Nintr && wire_unpack(m, Nintr, NULL, &cell, NULL) == 0)
		number = cell;
	s->got[s->n].type = m->type;
	s->got[s->n].slot = m->slot;
	s->got[s->n].tag = m->type == Nmark ? asked : m->tag;
	s->got[s->n++].number = number;
}

static void
on_close(void *arg, const struct err *e)
{
	struct side *s = arg;

	s->why = e->no;
}

static void
connect_sides(struct side *a, struct side *b)
{
	int fds[2];

	*a = *b = (struct side){0};
	l = loop_new();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	a->c = conn_new(l, fds[0], fds[0], on_msg, on_close, a);
	b->c = conn_new(l, fds[1], fds[1], on_msg, on_close, b);
	conn_gather(a->c);
}

static void
disconnect(struct side *a, struct side *b)
{
	conn_free(a->c);
	conn_free(b->c);
	loop_free(l);
}

static void
rounds(void)
{
	for (int i = 0; i < 10; i++)
		loop_once(l, 0);
}

/* Sends that a rank's cell begins at this record; say_ran: that it ends there with this value. */
static void
say_mark(struct side *s, unsigned slot, uint64_t tag, uint64_t record)
{
	conn_send(s->c, Nmark, 0, slot, 0, -1, tag, (uint64_t)1, (uint64_t)2, (uint64_t)3, record);
}

static void
say_ran(struct side *s, unsigned slot, uint64_t tag, const char *value, uint64_t record)
{
	conn_send(s->c, Rrun, FLAG_MARK, slot, tag, -1, 0u, slice_text(value), slice_text(""),
	    slice_text(""), slice_text("x"), slice_text(""), 0u, (uint64_t)1, (uint64_t)2,
	    (uint64_t)3, record);
}

static bool
is(const struct side *s, int i, int type, unsigned slot, uint64_t tag, uint64_t number)
{
	return s->n > i && s->got[i].type == type && s->got[i].slot == slot &&
	       s->got[i].tag == tag && s->got[i].number == number;
}

static unsigned manys; /* that have come */

static void
on_trace(bool in, const struct msg *m)
{
	manys += in && m->type == Nmany;
}

static void
test_what_is_equal_goes_as_one(void)
{
	struct side a, b;

	connect_sides(&a, &b);
	frame_trace(on_trace);
	for (unsigned slot = 0; slot < 3; slot++) {
		say_mark(&a, slot, 100 + slot, slot);
		say_ran(&a, slot, 200 + slot, "1", 10 + slot);
	}
	CHECK(b.n == 0);
	rounds();
	CHECK(b.n == 6 && manys == 2);
	frame_trace(NULL);
	disconnect(&a, &b);
}

static void
test_it_comes_as_what_it_stands_for(void)
{
	struct side a, b;

	connect_sides(&a, &b);
	for (unsigned slot = 0; slot < 3; slot++) {
		say_mark(&a, slot, 100 + slot, slot);
		say_ran(&a, slot, 200 + slot, slot == 1 ? "other" : "1", 10 + slot);
	}
	rounds();
	CHECK(b.n == 6);
	for (unsigned slot = 0; slot < 3; slot++)
		CHECK(is(&b, (int)slot, Nmark, slot, 100 + slot, slot));
	CHECK(is(&b, 3, Rrun, 0, 200, 10) && is(&b, 4, Rrun, 2, 202, 12));
	CHECK(is(&b, 5, Rrun, 1, 201, 11));
	disconnect(&a, &b);
}

/* No message overtakes an earlier one of the same engine. */
static void
test_order_of_an_engine(void)
{
	struct side a, b;
	int at[2] = {0};
	unsigned next[2] = {0};

	connect_sides(&a, &b);
	for (unsigned i = 0; i < 20; i++) {
		unsigned slot = i % 2, what = i / 2 * 7 % 3;

		conn_send(a.c, Nintr, 0, slot, 0, -1, what, (uint32_t)WHY_USER);
		if (i == 11) /* one that is sent by itself */
			conn_send(a.c, Thas, 0, 0, 5, -1, slice_text("x"));
	}
	rounds();
	CHECK(b.n == 21);
	for (int i = 0; i < b.n; i++) {
		unsigned slot = b.got[i].slot;

		if (b.got[i].type == Thas) {
			CHECK(next[0] == 6);
			continue;
		}
		CHECK(b.got[i].number == next[slot] * 7 % 3);
		next[slot]++;
		at[slot] = i;
	}
	CHECK(next[0] == 10 && next[1] == 10 && at[0] != at[1]);
	disconnect(&a, &b);
}

/* A message waits at most until the end of the round; the end of the connection sends it, too. */
static void
test_nothing_is_held(void)
{
	struct side a, b;
	struct buf who = {0};

	connect_sides(&a, &b);
	say_mark(&a, 0, 1, 0);
	rounds();
	CHECK(b.n == 1);
	for (unsigned slot = 0; slot < 3; slot++)
		wire_many_add(&who, slot, 50 + slot, (struct slice){0});
	say_mark(&a, 0, 2, 0);
	conn_send_many(a.c, (struct slice){who.p, who.n}, Treset, 0);
	say_mark(&a, 0, 3, 0);
	say_mark(&a, 1, 4, 0);
	conn_free(a.c);
	a.c = NULL;
	rounds();
	CHECK(b.n == 7 && is(&b, 1, Nmark, 0, 2, 0) && is(&b, 4, Treset, 2, 52, 0));
	CHECK(is(&b, 6, Nmark, 1, 4, 0));
	buf_free(&who);
	disconnect(&a, &b);
}

/* A malformed message ends the connection that it came by. */
static void
test_damage(void)
{
	static const struct {
		unsigned tail;
		const char *who;
		size_t n;
		int inner;
	} bad[] = {{0, "12345678901", 11, Nquit}, {1, "1234567890123", 13, Nquit},
	    {0, "123456789012", 12, Nmany}};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct buf frame = {0};
		struct side a, b;

		connect_sides(&a, &b);
		if (bad[i].inner == Nmany)
			wire_pack(&frame, Nmany, 0, 0, 0, 0u, slice_text(""), slice_text(""));
		else
			wire_pack(&frame, Nquit, 0, 0, 0);
		conn_send(a.c, Nmany, 0, SLOT_AGENT, 0, -1, bad[i].tail,
		    ((struct slice){bad[i].who, bad[i].n}), ((struct slice){frame.p, frame.n}));
		rounds();
		CHECK(b.n == 0 && b.why == EBADMSG);
		buf_free(&frame);
		disconnect(&a, &b);
	}
}

int
main(void)
{
	test_what_is_equal_goes_as_one();
	test_it_comes_as_what_it_stands_for();
	test_order_of_an_engine();
	test_nothing_is_held();
	test_damage();
	return CHECK_DONE();
}
