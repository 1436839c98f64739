/* Tests of engine/line/line.c: whenever the line moves to another connection and back, each packet
 * arrives once and in order. */
#include "fake_streams.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ROUNDS = 2400, SEED = 7 };

enum { SEND_BUFFER = 16 << 10 }; /* bytes: packets are sent in parts */

static bool
move(struct side *s)
{
	return line_attach_direct(s->l, make_plug(&s->direct));
}

/* Two sides that are connected by their streams. */
static void
pair_new(struct side *a, struct side *b)
{
	side_new(a);
	side_new(b);
	plug(a);
	plug(b);
	settle(a, b);
	CHECK(line_is_up(a->l) && line_is_up(b->l));
}

static void
pair_free(struct side *a, struct side *b)
{
	a->bulk_left = b->bulk_left = 0;
	side_free(a);
	side_free(b);
}

static void
say_both(struct side *a, struct side *b)
{
	send_numbered(a, SMALL, 100);
	send_numbered(b, SMALL, 100);
	send_numbered(a, BULK, 100);
	send_numbered(b, BULK, 100);
}

/* All data goes over the other connection and none over the streams, whose end still ends the
 * line. */
static void
test_move(void)
{
	struct side a, b;
	int null = -1;

	pair_new(&a, &b);
	CHECK(move(&a) && move(&b));
	settle(&a, &b);
	CHECK(!line_attach_direct(a.l, make_plug(&null)));
	unplug(&null);
	say_both(&a, &b);
	do
		step();
	while (carry_direct(&a, &b, 1 << 16) + carry_direct(&b, &a, 1 << 16));
	check_all_came(&a, &b);
	CHECK(a.ups == 2 && a.backs == 0 && a.downs == 0);
	unplug(&a.ours);
	step();
	CHECK(a.downs == 1 && a.backs == 0 && !line_is_up(a.l));
	CHECK(read(a.direct, &(char){0}, 1) == 0);
	CHECK(!move(&a));
	pair_free(&a, &b);
}

/* A packet was half written when the line moved: the rest follows on the new connection, and what
 * comes next is understood. */
static void
test_half_packet(void)
{
	struct side a, b;

	send_buffer = SEND_BUFFER;
	pair_new(&a, &b);
	for (int i = 0; i < 10; i++)
		send_numbered(&a, SMALL, 30000);
	say_both(&a, &b);
	CHECK(move(&a));
	step();
	CHECK(move(&b));
	settle(&a, &b);
	say_both(&a, &b);
	unplug(&a.direct);
	settle(&a, &b);
	CHECK(a.backs == 1 && b.backs == 1);
	check_all_came(&a, &b);
	CHECK(a.downs == 0 && b.downs == 0);
	pair_free(&a, &b);
	send_buffer = 0;
}

/* One side moves and the other does not know: both end up on the streams again. */
static void
test_lonely_move(void)
{
	struct side a, b;

	pair_new(&a, &b);
	say_both(&a, &b);
	step();
	CHECK(move(&a));
	say_both(&a, &b);
	settle(&a, &b);
	CHECK(b.got[0] < 2 && !line_is_up(a.l) && line_is_up(b.l));
	unplug(&a.direct);
	settle(&a, &b);
	check_all_came(&a, &b);
	CHECK(a.backs == 1 && a.why == 0 && b.backs == 0 && b.ups == 2);
	CHECK(a.downs == 0 && b.downs == 0);
	pair_free(&a, &b);
}

/* Without a descriptor for both directions of the connection, a side does not move. */
static void
test_no_descriptor(void)
{
	struct rlimit before, none;
	struct side a, b;
	int fd;

	pair_new(&a, &b);
	fd = make_plug(&a.direct);
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = (struct rlimit){.rlim_max = before.rlim_max};
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	CHECK(!line_attach_direct(a.l, fd));
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK(read(a.direct, &(char){0}, 1) == 0);
	say_both(&a, &b);
	settle(&a, &b);
	check_all_came(&a, &b);
	CHECK(a.backs == 0 && a.downs == 0 && b.downs == 0);
	pair_free(&a, &b);
}

/* A connection that falls silent is abandoned, also when only one side notices. */
static void
test_silence(void)
{
	struct side a, b;

	pair_new(&a, &b);
	CHECK(move(&a) && move(&b));
	settle(&a, &b);
	say_both(&a, &b);
	for (unsigned ms = 0; ms <= 2 * LINE_DEAD_MS && !a.backs; ms += 100, passed_ms += 100) {
		step();
		carry_direct(&a, &b, 1 << 16);
		carry(&a, &b, 1 << 16);
	}
	CHECK(a.backs == 1 && a.why == ETIMEDOUT && b.backs == 0);
	for (unsigned ms = 0; ms < LINE_DEAD_MS / 2; ms += 100, passed_ms += 100)
		step(); /* the streams have been silent for as long, and get their own time */
	CHECK(a.downs == 0);
	settle(&a, &b);
	CHECK(b.backs == 1 && b.why == ECONNRESET);
	check_all_came(&a, &b);
	CHECK(a.downs == 0 && b.downs == 0);
	pair_free(&a, &b);
}

/* A new connection must begin with the opening; otherwise it is abandoned. */
static void
test_nonsense_direct(void)
{
	static const struct slice nonsense[] = {
	    {"hello there, who are you?", 25}, {"\x06\0\0\0\x10x", 6},
	    {"\x0d\0\0\0\x01"
	     "\0\0\0\0\0\0\0\0"
	     "\x0d\0\0\0\x01"
	     "\0\0\0\0\0\0\0\0",
		26}, /* a second opening */
	};
	struct side a, b;

	for (size_t i = 0; i < ARRAY_LEN(nonsense); i++) {
		pair_new(&a, &b);
		CHECK(move(&a));
		CHECK(write(a.direct, nonsense[i].p, nonsense[i].n) > 0);
		settle(&a, &b);
		CHECK(a.backs == 1 && a.why == EBADMSG && a.downs == 0);
		say_both(&a, &b);
		settle(&a, &b);
		check_all_came(&a, &b);
		pair_free(&a, &b);
	}
}

/* Moves to the connection to which the other side has moved, or else to a new one. */
static void
move_beside(struct side *s, const struct side *other)
{
	s->connection = MAX(other->connection, s->connection + 1);
	move(s);
}

/* Carries if both have moved to the same connection. */
static size_t
carry_same(struct side *from, struct side *to, size_t n)
{
	return from->connection == to->connection ? carry_direct(from, to, n) : 0;
}

/* One of the things that happen to two sides now and then. */
static void
disturb(struct side *a, struct side *b)
{
	switch (rand() % 8) {
	case 0:
		move_beside(a, b);
		break;
	case 1:
		move_beside(b, a);
		break;
	case 2:
		unplug(&a->direct); /* it notices; the other side learns it from the streams */
		break;
	case 3:
		unplug(&b->direct);
		break;
	case 4:
		unplug(&a->direct);
		unplug(&b->direct);
		break;
	case 5:
		if (rand() % 10)
			break;
		plug(a);
		plug(b);
		break;
	default:
		send_numbered(rand() % 2 ? a : b, SMALL, (size_t)rand() % 30000);
	}
}

static void
test_moves(void)
{
	static size_t (*const ways[])(struct side *, struct side *, size_t) = {carry, carry_same};
	struct side a, b;

	srand(SEED);
	send_buffer = SEND_BUFFER;
	pair_new(&a, &b);
	for (int round = 0; round < ROUNDS; round++) {
		a.bulk_left += (uint32_t)rand() % 3;
		b.bulk_left += (uint32_t)rand() % 3;
		line_more(a.l);
		line_more(b.l);
		disturb(&a, &b);
		for (int i = rand() % 6; i > 0; i--) {
			size_t n = (size_t)rand() % 60000 + 1;

			step();
			if (rand() % 2)
				ways[rand() % 2](&a, &b, n);
			else
				ways[rand() % 2](&b, &a, n);
		}
	}
	unplug(&a.direct);
	unplug(&b.direct);
	settle(&a, &b);
	check_all_came(&a, &b);
	CHECK(a.backs > 100 && b.backs > 100);
	CHECK(a.downs == 0 && b.downs == 0);
	pair_free(&a, &b);
	send_buffer = 0;
}

int
main(void)
{
	signal(SIGPIPE, SIG_IGN);
	loop = loop_new();
	test_move();
	test_half_packet();
	test_lonely_move();
	test_no_descriptor();
	test_silence();
	test_nonsense_direct();
	test_moves();
	loop_free(loop);
	return CHECK_DONE();
}
