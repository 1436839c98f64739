/* The history of cells, and the texts of their outcomes. */
#include "group/cell.h"
#include "group/alike.h"
#include "group/external.h"
#include "group/hooks.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/output.h"
#include "group/queue.h"
#include "group/task.h"
#include "proc.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MICROSECONDS = 6 }; /* decimals of a second */

/* ---- the history by number ---- */

enum { INDEX_FIRST = 64 }; /* number of cells that the first index has room for */

/* The index of the first cell with this number or a higher one. */
static size_t
index_of(const struct group_history *h, int number)
{
	size_t low = h->index_first, high = h->index_end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (h->index[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Makes room for one more at the end: moves the cells to the front if they fill less than half of
 * the index, else doubles it, so that adding a cell takes amortized constant time. */
static void
index_make_room(struct group_history *h)
{
	size_t n = h->index_end - h->index_first;
	struct cell **to = h->index;

	if (n >= h->index_room / 2) {
		h->index_room = MAX(h->index_room * 2, (size_t)INDEX_FIRST);
		to = xmalloc(h->index_room * sizeof(struct cell *));
	}
	if (n)
		memmove(to, h->index + h->index_first, n * sizeof(struct cell *));
	if (to != h->index)
		free(h->index);
	h->index = to;
	h->index_first = 0;
	h->index_end = n;
}

/* A new cell has the highest number. */
static void
index_add(struct group_history *h, struct cell *c)
{
	if (h->index_end == h->index_room)
		index_make_room(h);
	h->index[h->index_end++] = c;
}

static void
index_remove(struct group_history *h, const struct cell *c)
{
	size_t i = index_of(h, c->number);

	if (i == h->index_first) {
		h->index_first++;
		return;
	}
	h->index_end--;
	memmove(h->index + i, h->index + i + 1, (h->index_end - i) * sizeof(struct cell *));
}

struct cell *
cell_after(struct group *g, int number)
{
	size_t i = index_of(&g->history, number + 1);

	return i < g->history.index_end ? g->history.index[i] : NULL;
}

struct cell *
cell_find(struct group *g, int number)
{
	struct cell *c = cell_after(g, number - 1);

	return c && c->number == number ? c : NULL;
}

struct cell *
cell_ref(struct cell *c)
{
	c->refs++;
	return c;
}

void
cell_unref(struct cell *c)
{
	if (--c->refs > 0)
		return;
	task_free(c->w);
	if (c->steered.cell)
		cell_unref(c->steered.cell);
	buf_free(&c->steered.news);
	free(c->source);
	free(c->notice);
	free(c->ranks);
	free(c);
}

static int
compare_numbers(const void *a, const void *b)
{
	const int *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

struct subtask *
cell_subtask(const struct cell *c, int rank)
{
	const int *at = bsearch(&rank, c->ranks, (size_t)c->n, sizeof(*c->ranks), compare_numbers);

	return at ? &c->w->subtasks[at - c->ranks] : NULL;
}

static void
drop(struct cell *c)
{
	TAILQ_REMOVE(&c->g->history.cells, c, link);
	index_remove(&c->g->history, c);
	c->g->history.ended -= c->w->done;
	c->gone = true;
	if (c->refs > 1)
		group_tell(cell_dropped, c);
	cell_unref(c);
}

/* The cell that ended last, or NULL. */
static struct cell *
last_ended(struct group *g)
{
	struct cell *c;

	TAILQ_FOREACH_REVERSE (c, &g->history.cells, cell_list, link)
		if (c->w->done)
			break;
	return c;
}

void
cell_prune(struct group *g)
{
	const struct cell *newest = last_ended(g);
	struct cell *c, *next;

	for (c = TAILQ_FIRST(&g->history.cells); c && g->history.ended > g->set.history; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->w->done && c != newest && c->number != g->history.last)
			drop(c);
	}
}

void
cell_drop_all(struct group *g)
{
	struct cell *c;

	while ((c = TAILQ_FIRST(&g->history.cells)))
		drop(c);
	free(g->history.index);
	g->history.index = NULL;
	g->history.index_first = g->history.index_end = g->history.index_room = 0;
}

static void
cell_ended(struct task *w)
{
	struct cell *c = w->cell;
	struct group *g = w->g;
	char what[32];

	/* behind those that ended before */
	TAILQ_REMOVE(&g->history.cells, c, link);
	TAILQ_INSERT_TAIL(&g->history.cells, c, link);
	g->history.ended++;
	snprintf(what, sizeof(what), "cell %d", c->number);
	if (w->err.no)
		journal_fail_rank(
		    g, w->first < 0 ? -1 : w->subtasks[w->first].k->number, &w->err, what);
	journal_event(g, "cell %d %s%s%s seconds=%.6f", c->number, task_state(w),
	    w->err.no ? " errno=" : "", w->err.no ? err_name(w->err.no) : "", task_seconds(w));
	snprintf(g->history.last_result, sizeof(g->history.last_result), "%s", task_state(w));
	if (w->err.no && w->first < 0) /* on no rank */
		group_tell(cell_news, g, c, CELL_FAILED, -1);
	group_tell(cell_news, g, c, CELL_ENDED, -1);
	group_tell(cell_ended, g);
	group_tell(output_moved, g);
	output_trim(g);
	cell_prune(g);
}

struct cell *
cell_new(struct group *g, const struct rank_set *on, struct slice source)
{
	struct cell *c = xcalloc(1, sizeof(*c));

	*c = (struct cell){.g = g,
	    .number = ++g->history.last,
	    .refs = 1,
	    .source = slice_dup(source),
	    .source_len = source.n};
	c->ranks = xcalloc((size_t)rank_set_count(on), sizeof(*c->ranks));
	RANK_SET_EACH (rank, on)
		c->ranks[c->n++] = rank;
	c->w = task_new(g, TASK_RUN, on);
	c->w->cell = c;
	c->w->number = (uint32_t)c->number;
	c->w->ended = cell_ended;
	TAILQ_INSERT_TAIL(&g->history.cells, c, link);
	index_add(&g->history, c);
	return c;
}

struct cell *
cell_submit(struct group *g, const struct rank_set *ranks, struct slice source, struct err *e)
{
	struct rank_set on = *ranks;
	struct cell *c;
	int beyond;

	if (lifecycle_accepts(g, e) < 0)
		return NULL;
	if (g->life.state == G_NEW && lifecycle_start(g, e) < 0)
		return NULL;
	beyond = rank_set_next(&on, g->size);
	if (beyond >= 0) {
		fail(e, EINVAL, "rank %d: the group has ranks 0..%d", beyond, g->size - 1);
		return NULL;
	}
	RANK_SET_EACH (rank, &on)
		if (external_refuse(&g->ranks[rank], e) < 0)
			return NULL;
	if (rank_set_empty(&on))
		external_own(g, &on);
	c = cell_new(g, &on, source);
	cell_ref(c); /* it may end, and leave the history, while it is submitted */
	task_submit(c->w);
	cell_unref(c);
	return c;
}

void
cell_status(const struct cell *c, struct record *out)
{
	const struct task *w = c->w;

	record_begin(out, NULL);
	record_number(out, "cell", c->number);
	record_text(out, "state", task_state(w));
	if (w->done && w->err.no)
		record_text(out, "errno", err_name(w->err.no));
	record_real(out, "queued", w->when.queued, MICROSECONDS);
	if (w->begun)
		record_real(out, "began", w->when.begin, MICROSECONDS);
	if (w->done) {
		record_real(out, "ended", w->when.end, MICROSECONDS);
		record_real(out, "seconds", task_seconds(w), MICROSECONDS);
	}
	task_ranks(w, out);
	if (c->steered.cell)
		record_number(out, "within", c->steered.cell->number);
	if (c->steered.step) {
		record_number(out, "step", c->steered.step);
		record_text(out, "clock", task_clock(c->steered.clock));
	}
	record_end(out);
}

static void
add_error(int rank, int no, const char *text, struct record *out)
{
	char own[32];
	int n;

	if (out->form != RECORD_JSON) {
		n = snprintf(own, sizeof(own), "rank %d", rank);
		if (rank >= 0 && (strncmp(text, own, (size_t)n) != 0 || text[n] != ' '))
			buf_addf(out->out, "%s: ", own);
		buf_addf(out->out, "%s\n", text);
		return;
	}
	record_begin(out, NULL);
	if (rank >= 0)
		record_number(out, "rank", rank);
	else
		record_none(out, "rank");
	record_text(out, "errno", err_name(no));
	record_text(out, "text", text);
	record_end(out);
}

void
cell_error(const struct cell *c, struct record *out)
{
	const struct task *w = c->w;
	bool never_ran = w->done && !w->begun;

	record_begin_list(out, NULL);
	if (never_ran && w->err.no)
		add_error(-1, w->err.no, w->err.text, out);
	for (int i = 0; i < c->n && !never_ran; i++)
		if (w->subtasks[i].no)
			add_error(c->ranks[i], w->subtasks[i].no, w->subtasks[i].error, out);
	record_end_list(out);
}

/* Appends "ranks 0,2:" and the traceback that they share. */
static void
add_trace(const struct cell *c, const struct alike *t, struct buf *out)
{
	buf_adds(out, t->n > 1 ? "ranks " : "rank ");
	alike_ranks(t, c->ranks, out);
	buf_addf(out, ":\n%s%s", t->text, t->text[strlen(t->text) - 1] == '\n' ? "" : "\n");
}

/* Equal tracebacks appear once. The one of the rank that failed first comes last. */
void
cell_traceback(const struct cell *c, struct buf *out)
{
	const struct task *w = c->w;
	const char *last = w->first >= 0 ? w->subtasks[w->first].traceback : "";
	struct alike *t = xcalloc((size_t)c->n + 1, sizeof(*t));
	struct alike **first = xcalloc((size_t)c->n + 1, sizeof(struct alike *)), *end = NULL;
	int sets;

	for (int i = 0; i < c->n; i++)
		t[i] = (struct alike){w->subtasks[i].traceback, i, 0};
	sets = alike_sets(t, c->n, first);
	for (int i = 0; i < sets; i++) {
		if (*last && strcmp(first[i]->text, last) == 0)
			end = first[i];
		else if (*first[i]->text)
			add_trace(c, first[i], out);
	}
	if (end)
		add_trace(c, end, out);
	free(first);
	free(t);
}

void
cell_result(const struct cell *c, struct buf *out)
{
	if (c->n && *c->w->subtasks[0].value)
		buf_addf(out, "%s\n", c->w->subtasks[0].value);
}
