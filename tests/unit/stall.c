/*
 * When a stall is told: the engines of this test say where they are, and the flight recorder of one
 * may come too late for a look.
 */
#include "fake_agent.h"
#include "base/stream.h"
#include "group/stall.h"
#include "group/task.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BACKWARD                                                                                   \
	"Thread 0x1 (most recent call first):\n"                                                   \
	"  File \"/v/site-packages/torch/autograd/graph.py\", line 8 in _engine_run_backward\n"    \
	"  File \"t.py\", line 4 in step\n"
#define AWAY "Thread 0x1 (most recent call first):\n  File \"t.py\", line 9 in main\n"
#define OWN "main S\ncell 1\ngroup 0 own 0 0-1\n"
#define VERDICT                                                                                    \
	"rank 1 is in no collective (t.py:9); rank 0 waits for it in all_reduce 3 of backward "    \
	"(t.py:4)"

enum { US = 1000000, LOOKS = 4 /* in the time of `stall`, here a second */ };

static double waited;	 /* by rank 0 */
static unsigned entered; /* by rank 0, in its group */

static void
answer(int rank, const char *in, const char *stack, const char *described)
{
	fake_answer(fake_take(Tstack, rank), Rstack, fake_slice(in), (uint64_t)(waited * US),
	    (uint32_t)0, (uint32_t)0, fake_slice(stack), fake_slice(described));
}

/* The next look at rank 0, which waits in a backward for rank 1. recorded: its recorder answers. */
static void
look(bool recorded)
{
	char described[200];

	fake_pass(1.0 / LOOKS);
	waited += 1.0 / LOOKS;
	CHECK(fake_count(Tstack, 0) == 1 && fake_count(Tstack, 1) == 1);
	snprintf(described, sizeof(described),
	    OWN "group 0 gloo %u 0-1\nop %u all_reduce 20 float32 0 %.3f\n", entered, entered,
	    waited);
	answer(0, "backward", BACKWARD, recorded ? described : OWN);
	answer(1, "", AWAY, OWN "group 0 gloo 2 0-1\n");
}

/* The number of events that begin like this, behind their time. */
static int
told(const struct group *g, const char *event)
{
	struct buf b = {0};
	int n = 0;

	stream_last(g->journal.events, 1 << 16, &b);
	buf_addc(&b, '\0');
	for (const char *p = b.p; (p = strstr(p, event)); p++)
		n++;
	buf_free(&b);
	return n;
}

static struct cell *
begin(void)
{
	struct group *g = fake_begin(2);

	g->set.stall = 1;
	waited = 0;
	entered = 3;
	return fake_cell(g, "main()", 0, NULL);
}

static void
end(struct cell *c)
{
	for (int i = 0; i < 2; i++)
		fake_ran(fake_take(Trun, i), OUT_OK, "");
	CHECK(c->w->done);
	fake_end();
}

/* It is told after a second, and again after each further one. */
static void
test_each_second(void)
{
	struct cell *c = begin();

	for (int i = 0; i < LOOKS; i++)
		look(true);
	CHECK(told(c->g, " stall ") == 0);
	look(true);
	CHECK(told(c->g, " stall cell=1 seconds=1 " VERDICT) == 1);
	CHECK_STR(c->w->escalation.verdict, VERDICT);
	for (int i = 1; i < LOOKS; i++)
		look(true);
	CHECK(told(c->g, " stall ") == 1);
	look(true);
	CHECK(told(c->g, " stall cell=1 seconds=2 " VERDICT) == 1 && told(c->g, " stall ") == 2);
	end(c);
}

/* A verdict that was not there in time comes with the next look, and is told then. */
static void
test_late_verdict(void)
{
	struct cell *c = begin();

	for (int i = 0; i <= LOOKS; i++)
		look(false);
	CHECK(told(c->g, " stall cell=1 seconds=1 1 state=busy") == 1);
	CHECK_STR(c->w->escalation.verdict, "");
	look(false);
	CHECK(told(c->g, " stall ") == 1); /* there is nothing to add */
	look(true);
	CHECK(told(c->g, VERDICT) == 1 && told(c->g, " stall ") == 2);
	CHECK_STR(c->w->escalation.verdict, VERDICT);
	end(c);
}

/* A recorder that is too late for a look does not say that its rank has moved. */
static void
test_late_recorder(void)
{
	struct cell *c = begin();

	for (int i = 0; i <= LOOKS; i++)
		look(i != 2);
	CHECK(told(c->g, " stall cell=1 seconds=1 " VERDICT) == 1);
	look(false);
	CHECK_STR(c->w->escalation.verdict, VERDICT);
	CHECK(c->w->escalation.stalled);
	entered++;
	look(true);
	CHECK_STR(c->w->escalation.verdict, ""); /* it has moved, within its backward */
	CHECK(!c->w->escalation.stalled && told(c->g, " stall ") == 1);
	end(c);
}

/* A rank that makes steps of 100 ms; it waits for so many of them. */
static void
step(int rank, unsigned waits)
{
	char described[200];

	snprintf(described, sizeof(described), OWN "profile 0 32 1e8 %ue6 2e7 backward\n", waits);
	answer(rank, "", AWAY, described);
}

static void
take_text(void *arg, struct slice text)
{
	buf_add(arg, text.p, text.n);
}

/* Reads where the ranks are; rank 0 waits for so many ms of each step, rank 1 for 5. */
static struct stall_sample *
ask(struct group *g, enum record_form form, unsigned waits, struct buf *text)
{
	struct stall_sample *s = stall_prepare(g, form, 0, take_text, text);

	buf_clear(text);
	stall_ask(s);
	fake_step();
	step(0, waits);
	step(1, 5);
	return s;
}

#define SLOW "rank 1 is slow: 95 ms of the 100 ms per step outside of waits"
#define OTHER "; rank 0 10.0 ms, and waits 90 ms in backward (medians of 32 steps)\n"

static void
look_at(uint32_t span_ms, int looks)
{
	struct buf b = {0};

	for (int i = 0; i < looks; i++)
		buf_adds(&b, AWAY "\n");
	fake_answer(fake_take(Tlook, 1), Rlook, span_ms, ((struct slice){b.n ? b.p : "", b.n}));
	buf_free(&b);
}

/* The text comes after the looks, at the slow rank alone. */
static void
test_looks(void)
{
	struct group *g = fake_begin(2);
	struct buf text = {0};
	struct cell *c;

	g->set.stall = 0;
	c = fake_cell(g, "main()", 0, NULL);
	ask(g, RECORD_WORDS, 90, &text);
	CHECK(!text.n && fake_count(Tlook, 0) == 0);
	look_at(400, 8);
	CHECK(text.n &&
	      strstr(text.p, SLOW ", mostly at t.py:9 main(), 8 of 8 looks" OTHER) == text.p);
	ask(g, RECORD_JSON, 90, &text);
	look_at(99, 8); /* less than a step */
	CHECK(text.n && strstr(text.p, "\"looks\":8,\"lines\":[{\"at\":\"t.py:9\","
				       "\"function\":\"main\",\"looks\":8}],\"text\":\"" SLOW
				       ", now at t.py:9 main(), 8 of 8 looks; "));
	ask(g, RECORD_WORDS, 5, &text);
	CHECK(text.n && !strstr(text.p, "slow") && fake_count(Tlook, 1) == 0);
	buf_free(&text);
	end(c);
}

/* A reader does not wait for ever, and is told who is slow also without looks. */
static void
test_no_looks(void)
{
	struct group *g = fake_begin(2);
	struct buf text = {0};
	struct cell *c;

	g->set.stall = 0;
	c = fake_cell(g, "main()", 0, NULL);
	ask(g, RECORD_WORDS, 90, &text);
	fake_refuses(fake_take(Tlook, 1), EBUSY, "no");
	CHECK(text.n && strstr(text.p, SLOW OTHER) == text.p);
	ask(g, RECORD_WORDS, 90, &text);
	fake_pass(3);
	CHECK(text.n && strstr(text.p, SLOW OTHER) == text.p);
	look_at(400, 8);
	stall_cancel(ask(g, RECORD_WORDS, 90, &text));
	look_at(400, 8);
	CHECK(!text.n);
	buf_free(&text);
	end(c);
}

int
main(void)
{
	test_looks();
	test_no_looks();
	test_each_second();
	test_late_verdict();
	test_late_recorder();
	return CHECK_DONE();
}
