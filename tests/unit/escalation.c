/*
 * Tests of fs/group/escalation.c: an interrupt, a failure and a timeout send the right signals to
 * the right ranks at the right time. The test plays the engines and drives the clock, see
 * fake_agent.h.
 */
#include "fake_agent.h"
#include "group/escalation.h"
#include "group/queue.h"
#include <errno.h>
#include <signal.h>

/* Takes an Nintr. Returns why it was sent, or -1 if there is none. */
static int
take_why(int rank)
{
	struct fake_msg *m = fake_take(Nintr, rank);
	uint32_t cell;
	uint8_t why;

	return m && wire_unpack(&m->m, Nintr, NULL, &cell, &why) == 0 ? why : -1;
}

/* The engine reports that the KeyboardInterrupt of this cell was raised. */
static void
take_signal(int rank, const struct cell *c)
{
	struct fake_msg *m = fake_take(Nintr, rank);

	CHECK(m != NULL);
	if (m)
		conn_send(
		    fake_conn, Nsignalled, 0, m->m.slot, 0, -1, (uint32_t)c->number, (uint32_t)1);
	fake_step();
}

/* Takes an Nabort. Returns what it ends, or -1 if there is none. */
static int
take_abort(int rank)
{
	struct fake_msg *m = fake_take(Nabort, rank);
	uint8_t what;
	uint32_t ms;

	return m && wire_unpack(&m->m, Nabort, NULL, &what, &ms) == 0 ? what : -1;
}

/* A rank that has not taken the signal a moment later may wait for a collective that NCCL has
 * queued, and in which its peer, which has ended, will not take part. */
static void
test_nccl(void)
{
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 0, NULL);

	task_interrupt(c->w);
	fake_step();
	take_signal(1, c);
	fake_ran(fake_take(Trun, 1), OUT_INTERRUPTED, "KeyboardInterrupt");
	CHECK(take_abort(0) == ABORT_KNOWN && take_abort(1) == ABORT_KNOWN);
	fake_pass(0.2);
	CHECK(take_abort(0) == ABORT_NCCL && take_abort(1) == -1);
	fake_ran(fake_take(Trun, 0), OUT_INTERRUPTED, "KeyboardInterrupt");
	fake_end();
}

/* While no rank has ended, that collective may still succeed: only the second step ends it. */
static void
test_nccl_step(void)
{
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 0, NULL);

	task_interrupt(c->w);
	fake_step();
	take_signal(1, c);
	CHECK(take_abort(0) == ABORT_KNOWN && take_abort(1) == ABORT_KNOWN);
	fake_pass(0.2);
	CHECK(take_abort(0) == ABORT_KNOWN && take_abort(1) == ABORT_KNOWN);
	fake_pass(1);
	CHECK(take_abort(0) == ABORT_ALL && take_abort(1) == -1);
	fake_ran(fake_take(Trun, 0), OUT_INTERRUPTED, "KeyboardInterrupt");
	fake_ran(fake_take(Trun, 1), OUT_INTERRUPTED, "KeyboardInterrupt");
	fake_end();
}

/* A rank that takes the signal is left alone, however long its handlers run. */
static void
test_taken(void)
{
	struct group *g = fake_begin(1);
	struct cell *c = fake_cell(g, "a", 0, NULL);

	task_interrupt(c->w);
	fake_step();
	take_signal(0, c);
	fake_take(Nabort, 0);
	fake_take(Nabort, 0); /* 100 ms later */
	fake_pass(10 * g->set.killafter);
	CHECK(fake_count(Nintr, 0) == 0);
	CHECK(fake_count(Nsignal, 0) == 0);
	fake_ran(fake_take(Trun, 0), OUT_INTERRUPTED, "KeyboardInterrupt");
	CHECK_STR(task_state(c->w), "interrupted");
	fake_end();
}

/* One request is one SIGINT, also for a rank that does not take it: that rank is killed after
 * killafter, and `error` reports that its variables are lost. */
static void
test_deaf(void)
{
	struct group *g = fake_begin(1);
	struct cell *c = fake_cell(g, "a", 0, NULL);

	task_interrupt(c->w);
	fake_pass(g->set.killafter + 0.9);
	CHECK(fake_count(Nintr, 0) == 1);
	CHECK(fake_count(Nsignal, 0) == 0);
	CHECK(g->journal.error_count == 0);
	fake_pass(0.2);
	CHECK(fake_count(Nintr, 0) == 1);
	CHECK(fake_count(Nsignal, 0) == 1);
	CHECK(g->journal.error_count == 1 &&
	      strstr(g->journal.errors[0].text, "its variables are lost"));
	fake_dies(0, SIGKILL);
	CHECK_STR(task_state(c->w), "lost");
	fake_end();
}

/* Each interrupt says why it was sent. */
static void
test_why(void)
{
	struct group *g = fake_begin(2);
	struct cell *c;

	g->set.timeout = 3;
	c = fake_cell(g, "a", 0, NULL);
	task_interrupt(c->w);
	fake_step();
	CHECK(take_why(0) == WHY_USER && take_why(1) == WHY_USER);
	escalation_interrupt(c->w, WHY_PREEMPTED);
	fake_step();
	CHECK(take_why(0) == WHY_PREEMPTED && take_why(1) == WHY_PREEMPTED);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	c = fake_cell(g, "b", 0, NULL);
	fake_pass(3.1);
	CHECK(take_why(0) == WHY_TIMEOUT && take_why(1) == WHY_TIMEOUT);
	fake_ran(fake_take(Trun, 0), OUT_INTERRUPTED, "ddip.Timeout: x");
	fake_ran(fake_take(Trun, 1), OUT_INTERRUPTED, "ddip.Timeout: x");
	CHECK_STR(task_state(c->w), "timeout");
	CHECK(!strstr(c->w->err.text, "ddip.Timeout")); /* said once */
	fake_end();

	g = fake_begin(2);
	c = fake_cell(g, "a", 0, NULL);
	fake_ran(fake_take(Trun, 1), OUT_RAISED, "ValueError: b");
	fake_pass(g->set.grace + 0.1);
	CHECK(take_why(0) == WHY_PEER && take_why(1) == -1);
	fake_ran(fake_take(Trun, 0), OUT_INTERRUPTED, "ddip.PeerFailed: x");
	fake_end();
}

/* A second request repeats the KeyboardInterrupt and does nothing else. */
static void
test_again(void)
{
	struct group *g = fake_begin(1);
	struct cell *c = fake_cell(g, "a", 0, NULL);

	task_interrupt(c->w);
	fake_step();
	take_signal(0, c);
	for (int i = 0; i < 5; i++) {
		task_interrupt(c->w);
		fake_step();
		CHECK(fake_take(Nintr, 0) != NULL);
	}
	fake_pass(2 * g->set.killafter);
	CHECK(fake_count(Nintr, 0) == 0 && fake_count(Nsignal, 0) == 0);
	fake_ran(fake_take(Trun, 0), OUT_INTERRUPTED, "KeyboardInterrupt");
	fake_end();
}

/* A handler may wait where no KeyboardInterrupt is raised: for a collective that NCCL has queued. A
 * second request unblocks it, too. */
static void
test_again_in_handler(void)
{
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 0, NULL);

	task_interrupt(c->w);
	fake_step();
	take_signal(0, c);
	take_signal(1, c);
	fake_ran(fake_take(Trun, 1), OUT_INTERRUPTED, "KeyboardInterrupt");
	CHECK(take_abort(0) == ABORT_KNOWN && take_abort(1) == ABORT_KNOWN);
	fake_pass(1.2);
	while (fake_count(Nabort, 0) > 0)
		CHECK(take_abort(0) == ABORT_KNOWN);
	task_interrupt(c->w);
	fake_step();
	CHECK(fake_take(Nintr, 0) && take_abort(0) == ABORT_KNOWN);
	fake_pass(0.2);
	CHECK(take_abort(0) == ABORT_NCCL);
	fake_pass(1);
	CHECK(take_abort(0) == ABORT_ALL);
	fake_pass(2 * g->set.killafter);
	CHECK(fake_count(Nsignal, 0) == 0);
	fake_ran(fake_take(Trun, 0), OUT_INTERRUPTED, "KeyboardInterrupt");
	fake_end();
}

/* With killafter off no rank is ever killed. */
static void
test_never_kill(void)
{
	struct group *g = fake_begin(1);
	struct cell *c = fake_cell(g, "a", 0, NULL);

	g->set.killafter = -1;
	task_interrupt(c->w);
	fake_pass(1000);
	CHECK(fake_count(Nsignal, 0) == 0);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_end();
}

/* A failure signals the other ranks once, after grace; a user's interrupt in the meantime does not
 * wait. */
static void
test_failure(void)
{
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 0, NULL);

	fake_ran(fake_take(Trun, 0), OUT_RAISED, "ValueError");
	fake_pass(g->set.grace - 0.1);
	CHECK(fake_count(Nintr, 1) == 0);
	fake_pass(0.2);
	CHECK(fake_count(Nintr, 1) == 1);
	CHECK(fake_count(Nintr, 0) == 0); /* its cell has ended */
	take_signal(1, c);
	fake_pass(2 * g->set.killafter);
	CHECK(fake_count(Nintr, 1) == 0 && fake_count(Nsignal, 1) == 0);
	fake_ran(fake_take(Trun, 1), OUT_INTERRUPTED, "KeyboardInterrupt");
	CHECK_STR(task_state(c->w), "error");
	CHECK(c->w->err.no == EREMOTEIO); /* the first failure, not one that it caused */
	fake_end();
}

/* A rank whose program has ended is disconnected after grace, if others are still running it: its
 * process would have ended. Cells are different: their ranks live on. */
static void
test_program_ended(void)
{
	struct group *g = fake_begin(3);
	struct cell *c = fake_cell(g, "a", 0, NULL);
	uint32_t generation = g->recovery.generation;

	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_pass(2 * g->set.grace);
	CHECK(fake_count(Nabort, 0) == 0);
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	fake_ran(fake_take(Trun, 2), OUT_OK, "");
	g->history.names = NAMES_EMPTY; /* as after a restart */
	fake_cell(g, "# ddip run: {}", 2, (int[]){0, 1});
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_pass(2 * g->set.grace);
	CHECK(fake_count(Nabort, 0) == 0); /* others may use its process group */
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	fake_cell(g, "# ddip run: {}", 0, NULL);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_pass(2 * g->set.grace);
	CHECK(fake_count(Nabort, 0) == 0); /* these processes are not new any more */
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	fake_ran(fake_take(Trun, 2), OUT_OK, "");
	CHECK(g->recovery.generation == generation);
	g->history.names = NAMES_EMPTY;
	c = fake_cell(g, "# ddip run: {}", 0, NULL);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_pass(g->set.grace - 0.1);
	CHECK(fake_count(Nabort, 0) == 0);
	fake_pass(0.2);
	CHECK(take_abort(0) == ABORT_ENDED);
	CHECK(fake_count(Nabort, 1) == 0 && fake_count(Nintr, 1) == 0);
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	fake_cell(g, "b", 1, (int[]){1});
	fake_pass(g->set.grace + 0.1);
	CHECK(fake_count(Nabort, 1) == 0); /* it is working again */
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	fake_pass(g->set.grace + 0.1);
	CHECK(take_abort(1) == ABORT_ENDED && fake_count(Nabort, 2) == 0);
	fake_ran(fake_take(Trun, 2), OUT_OK, "");
	CHECK_STR(task_state(c->w), "ok");
	CHECK(g->recovery.generation == generation + 1);
	fake_end();
}

/* A rank in its handlers, blocked there in a collective that a failed peer has left, is unblocked
 * again and again. */
static void
test_handler_in_collective(void)
{
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 0, NULL);

	task_interrupt(c->w);
	fake_step();
	take_signal(1, c);
	fake_ran(fake_take(Trun, 0), OUT_INTERRUPTED, "KeyboardInterrupt");
	while (fake_take(Nabort, 1))
		;
	fake_pass(3);
	CHECK(fake_count(Nabort, 1) >= 2);
	CHECK(fake_count(Nintr, 1) == 0);
	fake_ran(fake_take(Trun, 1), OUT_INTERRUPTED, "KeyboardInterrupt");
	fake_end();
}

/* A rank whose collective fails because a peer has taken the interrupt first was interrupted too,
 * and what it says is an error where nobody asked for one. */
static void
test_cut_off(void)
{
	static const char closed[] = "RuntimeError: Connection closed by peer";
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 0, NULL);

	task_interrupt(c->w);
	fake_step();
	fake_ran(fake_take(Trun, 0), OUT_CUT_OFF, closed);
	fake_ran(fake_take(Trun, 1), OUT_INTERRUPTED, "KeyboardInterrupt");
	CHECK_STR(task_state(c->w), "interrupted");
	fake_end();

	g = fake_begin(2);
	c = fake_cell(g, "b", 0, NULL);
	fake_ran(fake_take(Trun, 1), OUT_CUT_OFF, closed);
	fake_ran(fake_take(Trun, 0), OUT_CUT_OFF, closed);
	CHECK_STR(task_state(c->w), "error");
	fake_end();
}

/* A cell that exceeds its time is interrupted, with an errno of its own. */
static void
test_timeout(void)
{
	struct group *g = fake_begin(1);
	struct cell *c;

	g->set.timeout = 3;
	c = fake_cell(g, "a", 0, NULL);
	fake_pass(2.9);
	CHECK(fake_count(Nintr, 0) == 0);
	fake_pass(0.2);
	CHECK(fake_count(Nintr, 0) == 1);
	fake_ran(fake_take(Trun, 0), OUT_INTERRUPTED, "KeyboardInterrupt");
	CHECK(c->w->err.no == ETIMEDOUT);

	fake_cell(g, "b", 0, NULL); /* a cell that has to be killed */
	fake_pass(g->set.timeout + g->set.killafter + 1.1);
	CHECK(strstr(g->journal.errors[g->journal.error_count - 1].text, "after the timeout"));
	fake_dies(0, SIGKILL);
	fake_end();
}

int
main(void)
{
	test_nccl();
	test_nccl_step();
	test_taken();
	test_deaf();
	test_why();
	test_again();
	test_again_in_handler();
	test_never_kill();
	test_failure();
	test_program_ended();
	test_handler_in_collective();
	test_cut_off();
	test_timeout();
	return CHECK_DONE();
}
