/* Has the ranks of a cell agree on a step at which another source runs. */
#include "group/steer.h"
#include "base/daemon.h"
#include "group/cell.h"
#include "group/events.h"
#include "group/frames.h"
#include "group/journal.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/steer_state.h"
#include "host/agent.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LATE_MS: how long ranks are waited for that are asked where they are. PERIODS: how many steps the
 * ranks are given in addition to `grace`. */
enum { LATE_MS = 1000, PERIODS = 2, US_PER_MS = 1000 };

/* ---- messages ---- */

static bool
reachable(const struct rank *k)
{
	return agent_slot_lives(rank_agent(k), k->slot);
}

void
steer_tell(struct steer *s, enum clock clock, uint32_t step)
{
	for (int i = 0; i < s->n; i++) {
		struct rank *k = s->rank[i].k;

		if (reachable(k))
			agent_send(rank_agent(k), Nsteer, 0, k->slot, 0, -1, s->w->number,
			    (uint32_t)clock, step);
	}
}

static void
forget_answers(struct steer *s)
{
	for (int i = 0; i < s->n; i++) {
		struct steer_rank *r = &s->rank[i];

		if (r->tag)
			agent_forget(rank_agent(r->k), r->tag);
		if (r->steps)
			agent_forget(rank_agent(r->k), r->steps);
		r->tag = r->steps = 0;
	}
}

/* The ranks go on with their cell. */
static void
release(struct steer *s, enum steer_phase next)
{
	if (s->phase == ASKS || s->phase == AGREED)
		steer_tell(s, CLOCKS, 0);
	forget_answers(s);
	s->phase = next;
}

void
steer_end(struct steer *s, int error, const char *text)
{
	release(s, FAILS);
	task_cancel(s->w, error, text); /* frees s */
}

/* ---- who is where ---- */

/* "rank 1 stands at step 12, at x.py:3". */
static void
add_place(const struct steer_rank *r, enum clock clock, struct buf *out)
{
	const struct subtask *j = cell_subtask(r->s->around, r->k->number);

	if (r->ended || j->state == SUBTASK_DONE) {
		buf_addf(out, "rank %d has ended cell %d", r->k->number, r->s->around->number);
		return;
	}
	if (r->arrived)
		buf_addf(out, "rank %d waits at step %u", r->k->number, r->ticks[r->clock]);
	else if (clock == CLOCKS)
		buf_addf(out, "rank %d has made no step", r->k->number);
	else
		buf_addf(out, "rank %d stands at step %u", r->k->number, r->ticks[clock]);
	if (!r->arrived && *r->in)
		buf_addf(out, ", in %s", r->in);
	if (!r->arrived && *r->line)
		buf_addf(out, ", at %s", r->line);
}

int
steer_add_places(const struct steer *s, enum clock clock, steer_rank_is *is, struct buf *out)
{
	int n = 0;

	for (int i = 0; i < s->n; i++) {
		if (!is(&s->rank[i]) || ++n > STEER_TOLD)
			continue;
		buf_adds(out, n > 1 ? "; " : "");
		add_place(&s->rank[i], clock, out);
	}
	if (n > STEER_TOLD)
		buf_addf(out, " and %d more ranks", n - STEER_TOLD);
	return n;
}

int
steer_add_ranks(const struct steer *s, steer_rank_is *is, struct buf *out)
{
	int n = 0;

	for (int i = 0; i < s->n; i++)
		if (is(&s->rank[i]) && ++n <= STEER_TOLD)
			buf_addf(out, "%s%d", n > 1 ? "," : "", s->rank[i].k->number);
	if (n > STEER_TOLD)
		buf_addf(out, " and %d more", n - STEER_TOLD);
	return n;
}

static bool
has_arrived(const struct steer_rank *r)
{
	return r->arrived;
}

static bool
has_not_arrived(const struct steer_rank *r)
{
	return !r->arrived;
}

enum clock
steer_best_clock(const struct steer *s)
{
	if (s->around->clock != CLOCKS)
		return s->around->clock;
	for (enum clock c = 0; c < CLOCKS; c++)
		for (int i = 0; i < s->n; i++)
			if (s->rank[i].ticks[c])
				return c;
	return CLOCKS;
}

static void
time_out(struct steer *s)
{
	enum clock clock = s->clock < CLOCKS ? s->clock : steer_best_clock(s);
	struct buf b = {0};

	buf_addf(&b, "cell %d came to no common step within grace %g%s: ", s->around->number,
	    s->w->g->set.grace, s->period_us ? " and two steps" : "");
	steer_add_places(s, clock, has_not_arrived, &b);
	if (s->arrived) {
		buf_adds(&b, s->arrived > 1 ? "; ranks " : "; rank ");
		steer_add_ranks(s, has_arrived, &b);
		buf_addf(&b, " wait%s at step %u", s->arrived > 1 ? "" : "s", s->step);
	}
	buf_adds(&b, "; nothing was run");
	task_cancel(s->w, ETIMEDOUT, b.p); /* frees s */
	buf_free(&b);
}

static void
on_late(void *arg)
{
	struct steer *s = arg;

	s->timer = NULL;
	s->left = 0;
	forget_answers(s);
	s->placed(s);
}

static void
placed(struct steer *s)
{
	if (--s->left)
		return;
	loop_timer_del(s->timer);
	s->timer = NULL;
	s->placed(s);
}

static void
on_steps(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct steer_rank *r = arg;

	r->steps = 0;
	if (m)
		wire_unpack(m, Rsteps, NULL, &r->ticks[CLOCK_OPTIMIZER], &r->ticks[CLOCK_FORWARD],
		    &r->ticks[CLOCK_COLLECTIVE]);
	placed(r->s);
}

static void
on_stack(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct steer_rank *r = arg;
	struct slice in, text, rest;
	struct frame f;

	r->tag = 0;
	if (m && wire_unpack(m, Rstack, NULL, &in, NULL, NULL, NULL, &text, NULL) == 0) {
		snprintf(r->in, sizeof(r->in), "%.*s", (int)MIN(in.n, sizeof(r->in) - 1), in.p);
		for (rest = frames_main(text); frames_next(&rest, &f);)
			if (frame_is_users(&f, rest)) {
				snprintf(r->line, sizeof(r->line), "%.*s:%u",
				    (int)MIN(f.file.n, (size_t)200), f.file.p, f.line);
				break;
			}
	}
	placed(r->s);
}

void
steer_ask_places(struct steer *s)
{
	s->timer = loop_timer(daemon_.loop, LATE_MS, on_late, s);
	s->left = 1;
	for (int i = 0; i < s->n; i++) {
		struct steer_rank *r = &s->rank[i];
		struct agent *a = rank_agent(r->k);

		if (r->arrived || r->ended || !reachable(r->k))
			continue;
		s->left += 2;
		r->tag = agent_tag(a, r->k->slot, Tstack, on_stack, r);
		agent_send(a, Tstack, 0, r->k->slot, r->tag, -1);
		r->steps = agent_tag(a, r->k->slot, Tsteps, on_steps, r);
		agent_send(a, Tsteps, 0, r->k->slot, r->steps, -1);
	}
	placed(s);
}

/* The time is up: asks the ranks that have not come where they are, and lets all go on. */
static void
on_time(void *arg)
{
	struct steer *s = arg;
	bool waited = s->phase == ASKS || s->phase == AGREED;

	s->timer = NULL;
	s->w->payload.held = true;
	s->placed = time_out;
	forget_answers(s);
	s->phase = FAILS;
	if (waited)
		steer_tell(s, CLOCKS, 0);
	steer_ask_places(s);
}

static void
set_timer(struct steer *s)
{
	double grace = s->w->g->set.grace;

	loop_timer_del(s->timer);
	s->timer = NULL;
	if (grace >= 0)
		s->timer = loop_timer(daemon_.loop,
		    (uint64_t)(grace * MS_PER_S) + PERIODS * s->period_us / US_PER_MS, on_time, s);
}

/* ---- the agreement ---- */

/* All ranks wait. */
static void
go(struct steer *s)
{
	struct task *w = s->w;
	struct cell *c = w->cell;

	c->steered.cell = cell_ref(s->around);
	c->steered.clock = s->rank[0].clock;
	c->steered.step = s->step;
	journal_event(w->g, "steer cell=%d within=%d step=%u clock=%s", c->number,
	    s->around->number, s->step, task_clock(c->steered.clock));
	s->phase = LEFT;
	queue_begin_within(w); /* frees s */
}

/* Did they arrive at ticks of different clocks? */
static bool
differs(const struct steer *s)
{
	for (int i = 1; i < s->n; i++)
		if (s->rank[i].clock != s->rank[0].clock)
			return true;
	return false;
}

struct steer *
steer_find(struct rank *k, uint32_t number)
{
	struct subtask *j;

	TAILQ_FOREACH (j, &k->queue, link)
		if (j->w->payload.steer && j->w->number == number)
			return j->w->payload.steer;
	return NULL;
}

struct steer_rank *
steer_rank_of(struct steer *s, const struct rank *k)
{
	return &s->rank[cell_subtask(s->w->cell, k->number) - s->w->subtasks];
}

void
event_steer_arrived(struct rank *k, uint32_t number, enum clock clock, uint32_t step)
{
	struct steer *s = steer_find(k, number);
	struct steer_rank *r;
	char *text;

	if (!s || (s->phase != ASKS && s->phase != AGREED))
		return; /* withdrawn meanwhile */
	if (!step) {
		text = xasprintf("rank %d was interrupted before it: nothing was run", k->number);
		steer_end(s, EINTR, text);
		free(text);
		return;
	}
	r = steer_rank_of(s, k);
	s->arrived += !r->arrived;
	r->arrived = true;
	r->clock = clock;
	if (s->arrived < s->n)
		return;
	if (differs(s))
		steer_end(
		    s, ETIMEDOUT, "the ranks' next steps are of different kinds: nothing was run");
	else
		go(s);
}

static void
agree(struct steer *s)
{
	uint32_t most = 0;

	if (s->watch) {
		s->watch->begin(s);
		return;
	}
	for (int i = 0; i < s->n; i++)
		if (!s->rank[i].answered) {
			release(s, LEFT);
			return;
		}
	s->clock = steer_best_clock(s);
	for (int i = 0; i < s->n && s->clock < CLOCKS; i++)
		most = MAX(most, s->rank[i].ticks[s->clock]);
	s->step = most + 1;
	s->phase = AGREED;
	set_timer(s);
	steer_tell(s, s->clock, s->step);
}

static void
on_asked(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct steer_rank *r = arg;
	struct steer *s = r->s;
	uint64_t us = 0;
	uint8_t runs = 1;

	r->tag = 0;
	if (!m && e->no == ENOEXEC) {
		task_set_text(&s->w->subtasks[r - s->rank].traceback, trace);
		steer_end(s, ENOEXEC, e->text);
		return;
	}
	if (m)
		wire_unpack(m, Rsteer, NULL, &runs, &r->ticks[CLOCK_OPTIMIZER],
		    &r->ticks[CLOCK_FORWARD], &r->ticks[CLOCK_COLLECTIVE], &us);
	r->ended = !runs;
	r->answered = m && runs;
	s->period_us = MAX(s->period_us, us);
	if (--s->left == 0)
		agree(s);
}

static void
ask(struct steer *s)
{
	const struct cell *c = s->w->cell;

	s->phase = ASKS;
	set_timer(s);
	s->left = 1;
	for (int i = 0; i < s->n; i++) {
		struct steer_rank *r = &s->rank[i];
		struct agent *a = rank_agent(r->k);

		if (cell_subtask(s->around, r->k->number)->state == SUBTASK_DONE ||
		    !reachable(r->k))
			continue;
		s->left++;
		r->tag = agent_tag(a, r->k->slot, Tsteer, on_asked, r);
		agent_send(a, Tsteer, 0, r->k->slot, r->tag, -1, (uint32_t)s->around->number,
		    (uint32_t)c->number, s->watch != NULL,
		    ((struct slice){c->source, c->source_len}));
	}
	if (--s->left == 0)
		agree(s);
}

/* The first that waits for a step of this cell, if none is under way, or runs. */
static void
begin_next(struct cell *around)
{
	struct steer *first = NULL;

	for (int i = 0; i < around->n; i++) {
		struct subtask *j;

		TAILQ_FOREACH (j, &around->w->subtasks[i].k->queue, link) {
			struct steer *s = j->w->payload.steer;

			if (j->w->kind == TASK_STEER && j->w->cell->steered.cell == around)
				return;
			if (!first && s && s->around == around && !s->watch)
				first = s;
		}
	}
	if (first && first->phase == WAITS)
		ask(first);
}

void
steer_begin(struct cell *c, struct cell *around, const struct steer_watch *watch)
{
	struct steer *s = xcalloc(1, sizeof(*s));
	struct task *w = c->w;

	*s = (struct steer){.w = w,
	    .around = cell_ref(around),
	    .n = c->n,
	    .clock = CLOCKS,
	    .watch = watch,
	    .hit = UINT64_MAX};
	s->rank = xcalloc((size_t)c->n, sizeof(*s->rank));
	for (int i = 0; i < s->n; i++)
		s->rank[i] = (struct steer_rank){.s = s, .k = w->subtasks[i].k};
	w->payload.steer = s;
	w->payload.watches = w->payload.held = watch != NULL;
	cell_ref(c); /* it may end, and leave the history, while it is submitted */
	task_submit(w);
	if (w->payload.steer && watch)
		ask(s);
	else if (w->payload.steer)
		begin_next(around);
	cell_unref(c);
}

static bool
is_program(struct slice source)
{
	static const char cell[] = "# ddip:", run[] = "# ddip run:";

	return (source.n >= sizeof(cell) - 1 && memcmp(source.p, cell, sizeof(cell) - 1) == 0) ||
	       (source.n >= sizeof(run) - 1 && memcmp(source.p, run, sizeof(run) - 1) == 0);
}

struct cell *
steer_around(struct group *g, const char *what, struct slice source, struct err *e)
{
	struct cell *around = NULL;

	e->no = 0;
	if (is_program(source)) {
		fail(e, EINVAL, "%s: a program can't run within a cell", what);
		return NULL;
	}
	for (int i = 0; i < g->size; i++) {
		const struct subtask *j = queue_outermost(&g->ranks[i]);

		if (!j || j->w->kind != TASK_RUN)
			continue;
		if (around && around != j->w->cell) {
			fail(e, EBUSY, "%s: cells %d and %d run", what, around->number,
			    j->w->cell->number);
			return NULL;
		}
		around = j->w->cell;
	}
	return around;
}

struct cell *
steer_new(struct cell *around, struct slice source)
{
	struct rank_set on = {0};

	for (int i = 0; i < around->n; i++)
		rank_set_add(&on, around->ranks[i]);
	return cell_new(around->g, &on, source);
}

struct cell *
steer_submit(struct group *g, struct slice source, struct err *e)
{
	static const struct rank_set all;
	struct cell *around = steer_around(g, "steer", source, e), *c;

	if (!around && e->no)
		return NULL;
	c = around ? steer_new(around, source) : cell_submit(g, &all, source, e);
	g->history.steered = c ? c->number : g->history.steered;
	if (around)
		steer_begin(c, around, NULL);
	return c;
}

void
event_task_over(struct task *w)
{
	struct steer *s = w->payload.steer;
	struct cell *around = s->around;

	w->payload.steer = NULL;
	release(s, LEFT);
	if (s->watch)
		s->watch->over(s);
	w->payload.held = w->payload.watches = false;
	if (w->begun && w->kind == TASK_RUN && !w->done)
		journal_event(w->g, "steer cell=%d after=%d: it ended before a common step",
		    w->cell->number, around->number);
	loop_timer_del(s->timer);
	free(s->rank);
	free(s);
	/* one that runs within it is waited for: see steer_part_over() */
	if (!around->w->done && w->kind != TASK_STEER)
		begin_next(around);
	cell_unref(around);
}

void
steer_part_over(struct subtask *j)
{
	struct task *w = j->w;
	struct subtask *each, *next;
	char *text;

	if (w->payload.steer) { /* it was dropped on this rank */
		release(w->payload.steer, LEFT);
		return;
	}
	if (w->kind == TASK_STEER && w->left == 1)
		begin_next(w->cell->steered.cell);
	for (each = TAILQ_FIRST(&j->k->queue); each && w->kind == TASK_RUN; each = next) {
		struct steer *s = each->w->payload.steer;

		next = TAILQ_NEXT(each, link);
		if (!s || s->around != w->cell || s->phase == FAILS)
			continue;
		if (j->no != EHOSTDOWN && (j->no != EINTR || s->watch)) {
			if (!s->watch)
				release(s, LEFT);
			else if (s->watch->rank_over(s, j->k))
				next = TAILQ_FIRST(&j->k->queue);
			continue;
		}
		text = xasprintf("rank %d %s before it: nothing was run", j->k->number,
		    j->no == EINTR ? "was interrupted" : "died");
		steer_end(s, j->no, text);
		free(text);
		next = TAILQ_FIRST(&j->k->queue); /* ending one may have changed the queue */
	}
}
