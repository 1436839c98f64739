/*
 * Tests of fs/group/queue.c and cell.c: cells, pushes and moves reach the right ranks in order and
 * end with the right result, also when a rank dies. The test plays the engines, see fake_agent.h.
 */
#include "fake_agent.h"
#include "group/queue.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int zero[] = {0}, one[] = {1};

/* A cell of one rank leaves the others free; a cell of all ranks begins when all are free, on all
 * at once; what is queued behind it waits. */
static void
test_order(void)
{
	struct group *g = fake_begin(3);
	struct cell *single = fake_cell(g, "a", 1, zero), *all = fake_cell(g, "b", 0, NULL),
		    *behind = fake_cell(g, "c", 1, one);
	struct fake_msg *m = fake_take(Trun, 0);
	struct slice source;
	uint32_t number;

	CHECK(m && wire_unpack(&m->m, Trun, NULL, &number, NULL, &source) == 0);
	CHECK(number == (uint32_t)single->number && slice_eq(source, "a"));
	CHECK(fake_count(Trun, 1) == 0 && fake_count(Trun, 2) == 0);
	CHECK_STR(task_state(single->w), "running");
	CHECK_STR(task_state(all->w), "queued");
	CHECK(g->queued == 2);
	fake_ran(m, OUT_OK, "");
	CHECK_STR(task_state(single->w), "ok");
	CHECK_STR(task_state(all->w), "running");
	CHECK(fake_count(Trun, 0) == 1 && fake_count(Trun, 1) == 1 && fake_count(Trun, 2) == 1);
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	/* rank 1 is free already, and the next cell needs only rank 1 */
	CHECK_STR(task_state(all->w), "running");
	CHECK_STR(task_state(behind->w), "running");
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_ran(fake_take(Trun, 2), OUT_OK, "");
	CHECK_STR(task_state(all->w), "ok");
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	CHECK_STR(task_state(behind->w), "ok");
	CHECK(g->queued == 0);
	fake_end();
}

/* The writer gets the errno of the first rank that failed; the cell behind it still runs. */
static void
test_failure(void)
{
	struct group *g = fake_begin(2);
	struct cell *bad = fake_cell(g, "1 / 0", 0, NULL), *next = fake_cell(g, "2", 0, NULL);
	struct fake_req r;
	struct buf text = {0};

	fake_wait(bad->w, &r);
	fake_ran(fake_take(Trun, 1), OUT_RAISED, "ZeroDivisionError");
	CHECK(!r.done);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	CHECK(r.done && r.result == -EREMOTEIO);
	CHECK_STR(task_state(bad->w), "error");
	cell_error(bad, &(struct record){.out = &text, .form = RECORD_LINES});
	CHECK_STR(text.p, "rank 1: ZeroDivisionError\n");
	buf_free(&text);
	/* a rank may have left a collective half done: the process group was rebuilt in between */
	CHECK(g->recovery.generation == 2);
	CHECK_STR(task_state(next->w), "running");
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	CHECK_STR(task_state(next->w), "ok");
	fake_end();
}

/* A queued cell that is interrupted or dropped is never sent. */
static void
test_drop(void)
{
	struct group *g = fake_begin(2);
	struct cell *running = fake_cell(g, "a", 1, zero), *queued = fake_cell(g, "b", 0, NULL),
		    *cancelled = fake_cell(g, "c", 0, NULL);
	struct fake_req r, waits;

	fake_wait(queued->w, &r);
	fake_wait(running->w, &waits);
	r.interrupt(&r.r, STOP_WORK);
	CHECK(r.done && r.result == -EINTR);
	CHECK_STR(task_state(queued->w), "interrupted");
	CHECK(task_cancel(cancelled->w, ECANCELED, "dropped"));
	CHECK_STR(task_state(cancelled->w), "cancelled");
	CHECK(!task_cancel(running->w, ECANCELED, "dropped")); /* it has begun */
	waits.interrupt(&waits.r, DETACH);
	CHECK(waits.done && waits.result == 0);
	CHECK_STR(task_state(running->w), "running");
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	CHECK(fake_count(Trun, 0) == 0 && fake_count(Trun, 1) == 0 && g->queued == 0);
	fake_end();
}

static void
keep(struct task *w)
{
	*(bool *)w->arg = true;
}

/* A push of one byte to both ranks. */
static struct task *
push(struct group *g, bool *ended)
{
	static const struct rank_set both = {{3}};
	struct task *w = task_new(g, TASK_PUT, &both);
	FILE *f = tmpfile();

	w->payload.name = xstrdup("x");
	w->payload.view = xstrdup("json");
	w->payload.op = xstrdup("");
	w->payload.fds = xcalloc(1, sizeof(*w->payload.fds));
	w->payload.sizes = xcalloc(1, sizeof(*w->payload.sizes));
	w->payload.fds[0] = dup(fileno(f));
	w->payload.sizes[0] = 1;
	w->payload.fd_count = 1;
	w->ended = keep;
	w->arg = ended;
	*ended = false;
	fclose(f);
	task_submit(w);
	fake_step();
	return w;
}

static uint8_t
kept(struct fake_msg *commit)
{
	uint8_t keep_it = 2;

	CHECK(commit && wire_unpack(&commit->m, Tcommit, NULL, &keep_it) == 0);
	return keep_it;
}

/* A push is bound when all ranks have decoded it, or on none. */
static void
test_push(void)
{
	struct group *g = fake_begin(2);
	struct slice none = {"", 0};
	struct fake_msg *commit;
	struct task *w;
	bool ended;

	w = push(g, &ended);
	fake_answer(fake_take(Tput, 0), Rput);
	CHECK(fake_count(Tcommit, 0) == 0);
	fake_answer(fake_take(Tput, 1), Rput);
	for (int i = 0; i < 2; i++) {
		commit = fake_take(Tcommit, i);
		CHECK(!ended && kept(commit) == 1);
		fake_answer(commit, Rcommit, none);
	}
	CHECK(ended && w->err.no == 0);
	task_free(w);

	w = push(g, &ended);
	fake_answer(fake_take(Tput, 0), Rput);
	fake_refuses(fake_take(Tput, 1), EBADMSG, "no JSON");
	commit = fake_take(Tcommit, 0);
	CHECK(!ended && kept(commit) == 0);
	CHECK(fake_count(Tcommit, 1) == 0);
	fake_answer(commit, Rcommit, none);
	CHECK(ended && w->err.no == EBADMSG);
	CHECK_STR(w->err.text, "no JSON");
	task_free(w);
	fake_end();
}

/* The same holds for moving a name. */
static void
test_move(void)
{
	static const struct rank_set both = {{3}};
	struct group *g = fake_begin(2);
	struct task *w = task_new(g, TASK_MOVE, &both);
	struct fake_msg *commit;
	bool ended = false;

	w->payload.name = xstrdup("a");
	w->payload.to = xstrdup("b");
	w->ended = keep;
	w->arg = &ended;
	task_submit(w);
	fake_step();
	fake_answer(fake_take(Tmove, 0), Rmove);
	CHECK(fake_count(Tcommit, 0) == 0);
	fake_refuses(fake_take(Tmove, 1), ENOENT, "no variable a");
	commit = fake_take(Tcommit, 0);
	CHECK(!ended && kept(commit) == 0);
	fake_answer(commit, Rcommit, ((struct slice){"", 0}));
	CHECK(ended && w->err.no == ENOENT);
	task_free(w);
	fake_end();
}

/* A rank that dies fails the cell that it ran; its successor runs what was queued. The remaining
 * rank is freed after grace, not before. */
static void
test_death(void)
{
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 0, NULL), *next = fake_cell(g, "b", 0, NULL);
	struct fake_req r;

	fake_wait(c->w, &r);
	fake_take(Trun, 1);
	fake_dies(1, SIGKILL);
	CHECK(!r.done);
	fake_pass(g->set.grace - 0.1);
	CHECK(fake_count(Nintr, 0) == 0);
	fake_pass(0.2);
	CHECK(fake_count(Nintr, 0) == 1);
	fake_ran(fake_take(Trun, 0), OUT_INTERRUPTED, "KeyboardInterrupt");
	CHECK(r.done && r.result == -EHOSTDOWN);
	CHECK_STR(task_state(c->w), "lost");
	CHECK_STR(task_state(next->w), "running");
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	CHECK_STR(task_state(next->w), "ok");
	fake_end();
}

/* How long a cell takes does not depend on the wall clock. */
static void
test_seconds(void)
{
	struct group *g = fake_begin(1);
	struct cell *c = fake_cell(g, "a", 0, NULL);
	struct buf text = {0};
	const char *seconds;

	fake_pass(2);
	fake_set_back(3600);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	cell_status(c, &(struct record){.out = &text, .form = RECORD_LINES});
	seconds = strstr(text.p, "\nseconds ");
	CHECK(seconds && atof(seconds + strlen("\nseconds ")) >= 2);
	buf_free(&text);
	fake_end();
}

int
main(void)
{
	test_order();
	test_failure();
	test_drop();
	test_push();
	test_move();
	test_death();
	test_seconds();
	return CHECK_DONE();
}
