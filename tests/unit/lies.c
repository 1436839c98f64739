/*
 * Tests of fs/host/agent.c: an engine that answers with what its program never sends loses only
 * itself, and its caller gets EBADMSG. The test plays the engines, see fake_agent.h.
 */
#include "fake_agent.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "host/agent.h"
#include <errno.h>
#include <signal.h>

static const int zero[] = {0};

/* Was the agent told to kill the process of this rank, and no other's? It then dies. */
static void
check_lost(struct group *g, int rank)
{
	CHECK(fake_take(Nwrong, rank) != NULL);
	CHECK(fake_count(Nwrong, !rank) == 0);
	fake_dies(rank, SIGKILL);
	fake_pass(60);
	CHECK_STR(lifecycle_state_name(g), "idle");
	CHECK(fake_cell(g, "after", 1, zero) != NULL);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
}

static void
check_failed(struct cell *c, const char *text)
{
	CHECK(c->w->done && c->w->err.no == EBADMSG);
	CHECK_STR(c->w->err.text, text);
}

/* The fields of one type, stored as those of another, would overwrite the caller's stack. */
static void
test_type(void)
{
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 1, zero);
	struct slice text = fake_slice("text");

	fake_answer(fake_take(Trun, 0), Rget, 1u, 2u, (uint64_t)3, (uint64_t)4, text);
	check_failed(c, "wire: Rget in reply to Trun");
	check_lost(g, 0);
	c = fake_cell(g, "b", 1, zero);
	fake_answer(fake_take(Trun, 0), Trun, 1u, 2u, text);
	check_failed(c, "wire: Trun in reply to Trun");
	check_lost(g, 0);
	fake_end();
}

static void
test_damage(void)
{
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 1, zero);
	const struct fake_msg *asked = fake_take(Trun, 0);
	struct msg m = {.type = Rrun, .slot = asked->m.slot, .tag = asked->m.tag, .fd = -1};

	m.body = "\1";
	m.len = 1;
	conn_forward(fake_conn, &m);
	fake_step();
	check_failed(c, "wire: Rrun is damaged");
	check_lost(g, 0);
	m.type = Ninput;
	m.tag = m.len = 0;
	m.slot = (uint32_t)g->ranks[1].slot;
	conn_forward(fake_conn, &m);
	fake_step();
	check_lost(g, 1);
	fake_end();
}

/* The tags are the daemon's: an engine that guesses one cannot answer in another's name. */
static void
test_slot(void)
{
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 1, zero);
	const struct fake_msg *asked = fake_take(Trun, 0);
	struct fake_msg other = *asked;

	other.m.slot = (uint32_t)g->ranks[1].slot;
	fake_ran(&other, OUT_OK, "");
	CHECK(!c->w->done);
	fake_ran(asked, OUT_OK, "");
	CHECK(c->w->done && !c->w->err.no);
	fake_end();
}

/* An error without a number is an error nevertheless. */
static void
test_no_number(void)
{
	struct group *g = fake_begin(1);
	struct cell *c = fake_cell(g, "a", 1, zero);

	fake_refuses(fake_take(Trun, 0), 0, "nothing");
	check_failed(c, "nothing");
	fake_end();
}

/* Of an agent all engines are lost, and the next start gets another. */
static void
test_agent(void)
{
	struct group *g = fake_begin(2);
	struct agent *a = rank_agent(&g->ranks[0]);
	struct cell *c = fake_cell(g, "a", 0, NULL);
	uint32_t serial = a->serial;
	struct err e;

	fake_mute = true;
	agent_ping(a);
	fake_step();
	fake_mute = false;
	fake_answer(fake_take(Thello, FAKE_AGENT), Rrun, 1u, fake_slice(""), fake_slice(""),
	    fake_slice(""), fake_slice(""), fake_slice(""), 1u, (uint64_t)1, (uint64_t)2,
	    (uint64_t)3, (uint64_t)4);
	CHECK(c->w->done && c->w->err.no);
	CHECK_STR(lifecycle_state_name(g), "stopped");
	CHECK(lifecycle_start(g, &e) == 0);
	fake_pass(1);
	CHECK(a->serial != serial);
	CHECK_STR(lifecycle_state_name(g), "idle");
	fake_end();
}

/* A place is used again, a slot is not: what an engine still says after its end goes nowhere, not
 * to the next one in its place. */
static void
test_successor(void)
{
	struct group *g = fake_begin(2);
	int before = g->ranks[0].slot;
	const struct fake_msg *asked;
	struct fake_msg late;
	struct cell *c;

	fake_dies(0, SIGKILL);
	fake_pass(60);
	CHECK(g->ranks[0].slot != before);
	CHECK(slot_place((uint32_t)g->ranks[0].slot) == slot_place((uint32_t)before));
	c = fake_cell(g, "a", 1, zero);
	asked = fake_take(Trun, 0);
	late = *asked;
	late.m.slot = (uint32_t)before;
	fake_ran(&late, OUT_OK, "");
	CHECK(!c->w->done);
	conn_send(fake_conn, Nexit, 0, (unsigned)before, 0, -1, 1u, 0u, fake_slice(""), (uint64_t)0,
	    (uint64_t)0, (uint64_t)0, (uint64_t)0);
	fake_step();
	CHECK(!c->w->done && g->ranks[0].slot != NO_SLOT);
	fake_ran(asked, OUT_OK, "");
	CHECK(c->w->done && !c->w->err.no);
	fake_end();
}

static void
count(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	++*(int *)arg;
}

/* The reply to a call that was given up does not reach the next one, which has its entry. */
static void
test_forgotten(void)
{
	struct group *g = fake_begin(2);
	struct agent *a = rank_agent(&g->ranks[0]);
	int slot = g->ranks[0].slot, first = 0, second = 0;
	uint64_t given_up = agent_tag(a, slot, Tgc, count, &first), asked;

	agent_forget(a, given_up);
	asked = agent_tag(a, slot, Tgc, count, &second);
	CHECK(asked != given_up && (uint32_t)asked % (1 << 24) == (uint32_t)given_up % (1 << 24));
	conn_send(fake_conn, Rgc, 0, (unsigned)slot, given_up, -1, fake_slice("late"));
	fake_step();
	CHECK(first == 0 && second == 0);
	conn_send(fake_conn, Rgc, 0, (unsigned)slot, asked, -1, fake_slice(""));
	fake_step();
	CHECK(first == 0 && second == 1);
	fake_end();
}

int
main(void)
{
	test_type();
	test_damage();
	test_slot();
	test_successor();
	test_forgotten();
	test_no_number();
	test_agent();
	return CHECK_DONE();
}
