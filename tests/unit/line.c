/* Tests of engine/line/line.c: each packet arrives once and in order, wherever streams break; bulk
 * keeps to its window and leaves room on a slow connection; malformed data ends a stream. */
#include "fake_streams.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 300, BULK_TOTAL = 400, SEED = 7 };

enum { RATE_MAX = 10000, LATENCY_MAX = 100 }; /* bytes per millisecond, milliseconds */

/* Data in flight from one side to the other. */
struct transit {
	size_t rate; /* bytes per millisecond */
	unsigned latency_ms;

	struct transit_ms {
		char bytes[RATE_MAX];
		size_t n;
	} ms[LATENCY_MAX];
};

static void
test_cuts(void)
{
	struct side a, b;

	srand(SEED);
	side_new(&a);
	side_new(&b);
	a.bulk_left = b.bulk_left = BULK_TOTAL;
	for (int round = 0; round < ROUNDS; round++) {
		size_t budget = (size_t)rand() % 60000;

		plug(&a);
		plug(&b);
		for (int i = rand() % 4; i > 0; i--)
			send_numbered(rand() % 2 ? &a : &b, SMALL, (size_t)rand() % 9000);
		while (budget) {
			size_t n = MIN(budget, (size_t)rand() % 9000 + 1), moved;

			step();
			moved = rand() % 2 ? carry(&a, &b, n) : carry(&b, &a, n);
			budget -= moved ? MIN(moved, budget) : 1 + budget / 8;
		}
	}
	plug(&a);
	plug(&b);
	settle(&a, &b);
	CHECK(a.ups > 10 && b.ups > 10);
	check_all_came(&a, &b);
	CHECK(a.sent[1] == BULK_TOTAL && b.sent[1] == BULK_TOTAL);
	side_free(&a);
	side_free(&b);
}

/* Without acknowledgements no more than a window of bulk is produced, and a small packet follows at
 * once. */
static void
test_window(void)
{
	struct side a, b;
	uint32_t made;

	side_new(&a);
	side_new(&b);
	plug(&a);
	plug(&b);
	settle(&a, &b);
	a.bulk_left = UINT32_MAX;
	line_more(a.l);
	for (int i = 0; i < 200; i++) {
		char waste[1 << 16];

		step();
		while (read(a.ours, waste, sizeof(waste)) > 0)
			;
	}
	made = a.sent[1];
	CHECK(made > 0 && made * 5000ull < 8ull * LINE_PIECE);
	step();
	CHECK(a.sent[1] == made);
	a.bulk_left = 0;
	side_free(&a);
	side_free(&b);
}

/* Carries as much as a connection of this rate does in a millisecond; it arrives after the latency.
 */
static void
carry_slowly(struct side *from, struct side *to, struct transit *t)
{
	struct transit_ms *ms = &t->ms[passed_ms % t->latency_ms];
	ssize_t n = ms->n ? write(to->ours, ms->bytes, ms->n) : 0;

	CHECK(n == (ssize_t)ms->n);
	n = read(from->ours, ms->bytes, t->rate);
	ms->n = n > 0 ? (size_t)n : 0;
}

/* Next to endless bulk a small packet is delayed only a little, and the connection's capacity is
 * used. */
static void
check_slow(size_t bytes_in_ms, unsigned latency_ms)
{
	enum { WARM_MS = 3000, TEST_MS = 9000, BETWEEN_MS = 300, QUEUE_MS = 80 };
	static struct transit there, back;
	struct side a, b;
	uint64_t end = passed_ms + TEST_MS, warm = passed_ms + WARM_MS, sent = 0, worst = 0;
	size_t carried = 0;

	side_new(&a);
	side_new(&b);
	plug(&a);
	plug(&b);
	settle(&a, &b);
	there = back = (struct transit){.rate = bytes_in_ms, .latency_ms = latency_ms};
	a.bulk_left = UINT32_MAX;
	a.whole_pieces = true;
	line_more(a.l);
	for (; passed_ms < end; passed_ms++) {
		if (passed_ms >= warm && b.got[0] == a.sent[0] && passed_ms >= sent + BETWEEN_MS) {
			send_numbered(&a, SMALL, 10);
			sent = passed_ms;
		}
		carry_slowly(&a, &b, &there);
		carry_slowly(&b, &a, &back);
		carried += passed_ms >= warm ? there.ms[passed_ms % latency_ms].n : 0;
		step();
		if (b.got[0] < a.sent[0])
			worst = MAX(worst, passed_ms - sent);
	}
	CHECK(a.sent[0] > 10);
	CHECK(worst <= 2 * latency_ms + QUEUE_MS);
	CHECK(carried > bytes_in_ms * (TEST_MS - WARM_MS) / 10 * 9);
	a.bulk_left = 0;
	side_free(&a);
	side_free(&b);
}

static void
check_nonsense(const char *bytes, size_t n)
{
	struct side a;

	side_new(&a);
	plug(&a);
	CHECK(write(a.ours, bytes, n) == (ssize_t)n);
	step();
	CHECK(a.downs == 1 && a.why == EBADMSG);
	CHECK(!line_is_up(a.l));
	side_free(&a);
}

static void
test_nonsense(void)
{
	static const char zeros[64];

	check_nonsense("Last login: Sunday\n", 19);
	check_nonsense(zeros, sizeof(zeros));
	check_nonsense("\x0d\0\0\0\x01"
		       "\x05\0\0\0\0\0\0\0",
	    13); /* acknowledges packets that were never sent */
	check_nonsense("\x06\0\0\0\x10"
		       "x",
	    6); /* a packet before the opening */
	check_nonsense("\x06\0\0\0\x01"
		       "x",
	    6);
	check_nonsense("\x0d\0\0\0\x09"
		       "\0\0\0\0\0\0\0\0",
	    13); /* no such type */
	check_nonsense("\x0d\0\0\0\x01"
		       "\0\0\0\0\0\0\0\0"
		       "\x0d\0\0\0\x01"
		       "\x01\0\0\0\0\0\0\0",
	    26); /* a second opening */
}

static void
test_end(void)
{
	struct side a;
	char word[64];

	side_new(&a);
	plug(&a);
	CHECK(read(a.ours, word, sizeof(word)) > 0); /* unread data would make the close an error */
	close(a.ours);
	a.ours = -1;
	step();
	CHECK(a.downs == 1 && a.why == 0);
	send_numbered(&a, SMALL, 10); /* it stays queued */
	CHECK(line_unacked(a.l) == 1);
	line_free(a.l);
}

int
main(void)
{
	signal(SIGPIPE, SIG_IGN);
	loop = loop_new();
	test_cuts();
	test_window();
	check_slow(1000, 1);
	check_slow(1000, 50);
	check_slow(10000, 1);
	check_slow(10000, 50);
	test_nonsense();
	test_end();
	loop_free(loop);
	return CHECK_DONE();
}
