/* Tests of engine/relay/link.c: each packet comes once and in order, wherever streams break; bulk
 * keeps to its window, and leaves room on a slow link; nonsense ends a stream. */
#include "relay/link.h"
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SMALL = LINK_PACKET_MIN, BULK, ROUNDS = 300, BULK_TOTAL = 400, SEED = 7 };

enum { RATE_MAX = 10000, LATENCY_MAX = 100 }; /* bytes in a millisecond, milliseconds */

struct side {
	struct link *l;
	int ours;	  /* the other end of its streams, which the test holds; -1: none */
	uint32_t sent[2]; /* small packets and bulk, numbered from 0 */
	uint32_t got[2];
	unsigned ups, downs;
	int why;
	uint32_t bulk_left;
	bool whole_pieces; /* of bulk: as long as the link wants them */
};

/* What is on its way from one side to the other. */
struct transit {
	size_t rate; /* bytes in a millisecond */
	unsigned latency_ms;

	struct transit_ms {
		char bytes[RATE_MAX];
		size_t n;
	} ms[LATENCY_MAX];
};

static struct loop *loop;
static char piece[LINK_PIECE];
static uint64_t passed_ms;

/* In the place of libc's: time passes when the test says so. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	*t = (struct timespec){.tv_sec = (time_t)(1 + passed_ms / 1000),
	    .tv_nsec = (long)(passed_ms % 1000) * 1000000};
	return 0;
}

static void
on_packet(void *arg, int type, struct slice body)
{
	struct side *s = arg;
	uint32_t number = 0;

	CHECK(body.n >= sizeof(number));
	memcpy(&number, body.p, sizeof(number));
	CHECK(number == s->got[type - SMALL]);
	for (size_t i = sizeof(number); i < body.n; i++)
		if (body.p[i] != (char)number) {
			CHECK(body.p[i] == (char)number);
			break;
		}
	s->got[type - SMALL]++;
}

static void
send_numbered(struct side *s, int type, size_t n)
{
	uint32_t number = s->sent[type - SMALL]++;

	memset(piece, (char)number, n);
	link_send(s->l, type, type == BULK, (struct slice){(const char *)&number, sizeof(number)},
	    (struct slice){piece, n});
}

static bool
on_more(void *arg)
{
	struct side *s = arg;

	if (!s->bulk_left)
		return false;
	s->bulk_left--;
	send_numbered(s, BULK, s->whole_pieces ? link_piece(s->l) - 4 : (size_t)rand() % 5000);
	return true;
}

static void
on_up(void *arg)
{
	((struct side *)arg)->ups++;
}

static void
on_down(void *arg, const struct err *why)
{
	struct side *s = arg;

	s->downs++;
	s->why = why->no;
}

static const struct link_ops ops = {on_packet, on_more, on_up, on_down};

static void
plug(struct side *s)
{
	int pair[2];

	if (s->ours >= 0)
		close(s->ours);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
	s->ours = pair[1];
	link_attach(s->l, pair[0], pair[0], (struct slice){0});
}

/* Carries at most n bytes from one to the other; how many there were. */
static size_t
carry(struct side *from, struct side *to, size_t n)
{
	static char bytes[1 << 16];
	ssize_t got = read(from->ours, bytes, MIN(n, sizeof(bytes)));

	if (got <= 0)
		return 0;
	/* what does not go in is lost, and so is the stream: as in a cable that is cut */
	return write(to->ours, bytes, (size_t)got) == got ? (size_t)got : n;
}

static void
step(void)
{
	for (int i = 0; i < 4; i++)
		loop_once(loop, 0);
}

/* Carries until nothing moves. */
static void
settle(struct side *a, struct side *b)
{
	size_t moved;

	do {
		step();
		moved = carry(a, b, 1 << 16) + carry(b, a, 1 << 16);
	} while (moved);
}

static void
side_new(struct side *s)
{
	*s = (struct side){.ours = -1};
	s->l = link_new(loop, &ops, s);
}

static void
side_free(struct side *s)
{
	link_free(s->l);
	close(s->ours);
}

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
	for (int i = 0; i < 2; i++) {
		CHECK(a.sent[i] == b.got[i] && a.sent[i] > 0);
		CHECK(b.sent[i] == a.got[i] && b.sent[i] > 0);
	}
	CHECK(a.sent[1] == BULK_TOTAL && b.sent[1] == BULK_TOTAL);
	CHECK(link_unacked(a.l) == 0 && link_unacked(b.l) == 0);
	side_free(&a);
	side_free(&b);
}

/* With nobody who acknowledges no more than a window of bulk is made, and a small packet follows at
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
	link_more(a.l);
	for (int i = 0; i < 200; i++) {
		char waste[1 << 16];

		step();
		while (read(a.ours, waste, sizeof(waste)) > 0)
			;
	}
	made = a.sent[1];
	CHECK(made > 0 && made * 5000ull < 8ull * LINK_PIECE);
	step();
	CHECK(a.sent[1] == made);
	a.bulk_left = 0;
	side_free(&a);
	side_free(&b);
}

/* Carries what a link of this rate takes in a millisecond: it comes when it has been on its way. */
static void
carry_slowly(struct side *from, struct side *to, struct transit *t)
{
	struct transit_ms *ms = &t->ms[passed_ms % t->latency_ms];
	ssize_t n = ms->n ? write(to->ours, ms->bytes, ms->n) : 0;

	CHECK(n == (ssize_t)ms->n);
	n = read(from->ours, ms->bytes, t->rate);
	ms->n = n > 0 ? (size_t)n : 0;
}

/* Beside bulk without end a small packet waits for little, and no room on the link is left empty.
 */
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
	link_more(a.l);
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
	CHECK(!link_is_up(a.l));
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
	    13); /* it took packets that were not sent */
	check_nonsense("\x06\0\0\0\x10"
		       "x",
	    6); /* a packet before the beginning */
	check_nonsense("\x06\0\0\0\x01"
		       "x",
	    6);
	check_nonsense("\x0d\0\0\0\x09"
		       "\0\0\0\0\0\0\0\0",
	    13); /* no such type */
	check_nonsense("\x0d\0\0\0\x01"
		       "\0\0\0\0\0\0\0\0"
		       "\x0d\0\0\0\x01"
		       "\0\0\0\0\0\0\0\0",
	    26);
}

static void
test_end(void)
{
	struct side a;
	char word[64];

	side_new(&a);
	plug(&a);
	CHECK(read(a.ours, word, sizeof(word)) > 0); /* unread, it would be an error */
	close(a.ours);
	a.ours = -1;
	step();
	CHECK(a.downs == 1 && a.why == 0);
	send_numbered(&a, SMALL, 10); /* it waits */
	CHECK(link_unacked(a.l) == 1);
	link_free(a.l);
}

int
main(void)
{
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
