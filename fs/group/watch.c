/* Has the ranks of a cell stop at the first step at which an expression is true. */
#include "group/watch.h"
#include "base/daemon.h"
#include "base/plain.h"
#include "group/cell.h"
#include "group/events.h"
#include "group/hooks.h"
#include "group/journal.h"
#include "group/rank.h"
#include "group/steer.h"
#include "host/agent.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPRESSION_MAX = 100 }; /* bytes of it that a message has */

/* Where a rank is in its cell: grows from tick to tick, as a rank leaves a clock only for a better
 * one. */
static uint64_t
position(enum clock clock, uint32_t step)
{
	return (uint64_t)(CLOCKS - clock) << 32 | step;
}

static enum clock
clock_at(uint64_t position)
{
	return CLOCKS - (enum clock)(position >> 32);
}

/* ---- news for those who read the file ---- */

static void
add_news(struct steer *s, struct buf *line)
{
	struct cell *c = s->w->cell;

	buf_addc(line, '\n');
	buf_add(&c->steered.news, line->p, line->n);
	buf_free(line);
	group_tell(watch_news, c);
}

static void
add_expression(const struct cell *c, struct buf *out)
{
	struct slice text = {c->source, c->source_len};

	while (text.n && text.p[text.n - 1] == '\n')
		text.n--;
	plain_clip(out, text, EXPRESSION_MAX, true);
}

static bool
is_hit(const struct steer_rank *r)
{
	return r->hit && r->position == r->s->hit;
}

/* It does not wait at the step of the others. */
static bool
is_elsewhere(const struct steer_rank *r)
{
	return !r->arrived || r->position != r->s->hit;
}

/* ---- the stop ---- */

/* All that can come have: they stand still until the watch ends. */
static void
stop(struct steer *s)
{
	const struct steer_rank *r = s->rank;
	struct cell *c = s->w->cell;
	struct buf line = {0}, ranks = {0}, others = {0};

	while (!is_hit(r))
		r++;
	c->steered.stopped = true;
	c->steered.clock = clock_at(s->hit);
	c->steered.step = (uint32_t)s->hit;
	buf_adds(&line, steer_add_ranks(s, is_hit, &ranks) > 1 ? "ranks " : "rank ");
	buf_addf(&line, "%s step %u: ", ranks.p, c->steered.step);
	add_expression(c, &line);
	buf_addf(&line, " (%s); ", r->line);
	if (steer_add_places(s, c->steered.clock, is_elsewhere, &others))
		buf_add(&line, others.p, others.n);
	else
		buf_adds(&line, "all ranks wait");
	journal_event(s->w->g, "watch cell=%d within=%d ranks=%s step=%u clock=%s at=%s", c->number,
	    s->around->number, ranks.p, c->steered.step, task_clock(c->steered.clock), r->line);
	buf_free(&ranks);
	buf_free(&others);
	journal_changed(s->w->g);
	add_news(s, &line);
	task_answer_all(s->w);
}

static void
let_pass(struct steer *s)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < s->n; i++)
		if (!s->rank[i].ended && !s->rank[i].absent)
			least = MIN(least, s->rank[i].position);
	for (int i = 0; i < s->n; i++) {
		struct steer_rank *r = &s->rank[i];

		if (!r->arrived || r->position > least || r->position >= s->hit)
			continue;
		r->arrived = false;
		agent_send(rank_agent(r->k), Nwatch, 0, r->k->slot, 0, -1, s->w->number);
	}
}

static void go_on(struct steer *s);

/* The others have not come for `grace`. */
static void
on_late(void *arg)
{
	struct steer *s = arg;

	s->timer = NULL;
	for (int i = 0; i < s->n; i++)
		s->rank[i].absent |= !s->rank[i].arrived;
	go_on(s);
}

/* Lets ranks pass that may, or stops if all have come that will. */
static void
go_on(struct steer *s)
{
	int waits = 0, late = 0, elsewhere = 0;
	double grace = s->w->g->set.grace;

	let_pass(s);
	if (s->left) /* they are asked where they are */
		return;
	for (int i = 0; i < s->n; i++) {
		const struct steer_rank *r = &s->rank[i];

		waits += r->arrived;
		elsewhere += !r->arrived && !r->ended;
		late += !r->arrived && !r->ended && !r->absent;
	}
	if (!waits || !late) {
		loop_timer_del(s->timer);
		s->timer = NULL;
	} else if (!s->timer && grace >= 0) {
		s->timer = loop_timer(daemon_.loop, (uint64_t)(grace * MS_PER_S), on_late, s);
	}
	if (s->hit == UINT64_MAX || late || s->w->cell->steered.stopped)
		return;
	s->placed = stop;
	if (elsewhere)
		steer_ask_places(s);
	else
		stop(s);
}

void
event_watch_reported(struct rank *k, uint32_t number, enum clock clock, uint32_t step,
    enum watched what, struct slice where, struct slice text)
{
	struct steer *s = steer_find(k, number);
	struct steer_rank *r;
	struct buf line = {0};

	if (!s || !s->w->payload.watches || s->phase != AGREED)
		return; /* it has ended meanwhile */
	r = steer_rank_of(s, k);
	r->position = position(clock, step);
	r->clock = clock;
	r->ticks[clock] = step;
	r->arrived = true;
	r->absent = false;
	snprintf(r->line, sizeof(r->line), "%.*s", (int)MIN(where.n, sizeof(r->line) - 1), where.p);
	if (what == WATCHED_FAILED && !s->told) {
		s->told = true;
		buf_addf(&line, "rank %d step %u: not true: ", k->number, step);
		plain_clip(&line, text, SIZE_MAX, true);
		journal_event(s->w->g, "watch cell=%d %s", s->w->cell->number, line.p);
		add_news(s, &line);
	}
	if (what == WATCHED_TRUE) {
		r->hit = true;
		s->hit = MIN(s->hit, r->position);
	}
	go_on(s);
}

/* ---- begin and end ---- */

static bool
all_ended(const struct steer *s)
{
	for (int i = 0; i < s->n; i++)
		if (!s->rank[i].ended)
			return false;
	return true;
}

/* It was true nowhere. Frees s. */
static void
run_out(struct steer *s)
{
	char *text = xasprintf(
	    "cell %d has ended: the expression was true at none of its steps", s->around->number);

	steer_end(s, ENODATA, text);
	free(text);
}

static void
begin(struct steer *s)
{
	uint32_t most = 0;

	loop_timer_del(s->timer); /* the ranks have answered in time */
	s->timer = NULL;
	s->clock = steer_best_clock(s);
	for (int i = 0; i < s->n; i++) {
		struct steer_rank *r = &s->rank[i];

		r->ended |= !r->answered;
		r->position = s->clock < CLOCKS ? position(s->clock, r->ticks[s->clock]) : 0;
		if (s->clock < CLOCKS)
			most = MAX(most, r->ticks[s->clock]);
	}
	if (all_ended(s)) {
		run_out(s);
		return;
	}
	s->step = most + 1;
	s->phase = AGREED;
	steer_tell(s, s->clock, s->step);
}

static bool
rank_over(struct steer *s, struct rank *k)
{
	struct steer_rank *r = steer_rank_of(s, k);
	struct group *g = s->w->g;
	bool held = g->queue_held;

	r->ended = true;
	r->arrived = false;
	if (all_ended(s)) {
		g->queue_held = true; /* the end of the cell is not complete yet */
		run_out(s);
		g->queue_held = held;
		return true;
	}
	if (s->phase == AGREED)
		go_on(s);
	return false;
}

/* One that has stopped the ranks ends well, however it ends. */
static void
over(struct steer *s)
{
	struct task *w = s->w;

	if (w->cell->steered.stopped) {
		w->err.no = 0;
		for (int i = 0; i < w->n; i++)
			w->subtasks[i].no = 0;
		journal_event(w->g, "watch cell=%d over", w->cell->number);
	}
	group_tell(watch_news, w->cell);
}

struct cell *
watch_of(const struct group *g)
{
	struct subtask *j;

	for (int i = 0; i < g->size; i++)
		TAILQ_FOREACH (j, &g->ranks[i].queue, link)
			if (j->w->payload.watches)
				return j->w->cell;
	return NULL;
}

const char *
watch_state(const struct cell *c)
{
	if (c->w->done)
		return task_state(c->w);
	return c->steered.stopped ? "stopped" : "armed";
}

static const struct steer_watch watch = {begin, rank_over, over};

struct cell *
watch_submit(struct group *g, struct slice source, struct err *e)
{
	struct cell *around = steer_around(g, "watch", source, e), *watched = watch_of(g), *c;

	if (!around) {
		if (!e->no)
			fail(e, ESRCH, "watch: no cell runs");
		return NULL;
	}
	if (watched) {
		fail(e, EBUSY, "watch: cell %d watches it: echo cancel %d > %s/ctl",
		    watched->number, watched->number, g->name);
		return NULL;
	}
	c = steer_new(around, source);
	g->history.watched = c->number;
	c->steered.cell = cell_ref(around);
	steer_begin(c, around, &watch);
	return c;
}
