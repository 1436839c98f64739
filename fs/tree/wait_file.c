/* Files that wait for anything: what has happened to cells becomes lines, for each open file. */
#include "tree/wait_file.h"
#include "base/daemon.h"
#include "base/plain.h"
#include "group/cell.h"
#include "group/hooks.h"
#include "group/registry.h"
#include "group/task.h"
#include "tree/caller.h"
#include "tree/live.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum {
	KEEP_BYTES = 1 << 20, /* of lines, for each open file */
	TEXT_MAX = 300	      /* bytes of an error's text in a line */
};

enum reason { ENDED = 1, FAILED = 2, STALLED = 4, QUIET = 8, INPUT = 16, PREEMPT = 32 };

static const struct {
	const char *name;
	enum reason reason;
} reasons[] = {{"ended", ENDED}, {"failed", FAILED}, {"stalled", STALLED}, {"quiet", QUIET},
    {"input", INPUT}, {"preempt", PREEMPT}};

/* An open file. */
struct wait {
	struct file *f;
	struct wait_reasons why;
	/* Lines, also those read already: shells read ahead and seek back. */
	struct buf lines;
	uint64_t first; /* position of lines.p[0] */
	int64_t base;	/* position of file offset 0: moves when unread lines are dropped */
	uint64_t next;	/* position of the end of the last read */
	bool finished;	/* its cell has ended: no more lines will follow */
	struct timer *timer;
	uint64_t opened, checked; /* now_ns(): silence before them is not reported, or again */
	TAILQ_ENTRY(wait) link;
};

static TAILQ_HEAD(, wait) waits = TAILQ_HEAD_INITIALIZER(waits);
/* parked reads of files that wait for all groups */
static struct req_list parked = TAILQ_HEAD_INITIALIZER(parked);

/* ---- reasons ---- */

/* Parses the word s of n bytes. */
static int
parse_word(const char *s, size_t n, struct wait_reasons *why, struct err *e)
{
	const char *value = memchr(s, '=', n);
	size_t name = value ? (size_t)(value - s) : n;
	char *end = NULL;

	for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
		bool is_quiet = reasons[i].reason == QUIET;

		if (strlen(reasons[i].name) != name || memcmp(reasons[i].name, s, name) != 0 ||
		    is_quiet != (value != NULL))
			continue;
		if (is_quiet) {
			why->quiet =
			    value[1] >= '0' && value[1] <= '9' ? strtod(value + 1, &end) : 0;
			if (end != s + n || !(why->quiet > 0 && why->quiet <= 1e9))
				break;
		}
		why->set |= reasons[i].reason;
		return 0;
	}
	return fail(e, EINVAL,
	    "'%.*s' is no reason; want some of ended,failed,stalled,quiet=SECONDS,input,preempt",
	    (int)MIN(n, (size_t)80), s);
}

int
wait_file_parse(const char *text, struct wait_reasons *why, struct err *e)
{
	*why = (struct wait_reasons){0};
	if (!text) {
		why->set = ENDED | FAILED | STALLED | INPUT | PREEMPT;
		return 0;
	}
	for (;;) {
		size_t n = strcspn(text, ",");

		if (parse_word(text, n, why, e) < 0)
			return -e->no;
		if (!text[n])
			return 0;
		text += n + 1;
	}
}

/* ---- lines ---- */

/* Drops the older half of the lines; one line says so. */
static void
bound(struct wait *w)
{
	const char *end;
	struct buf kept = {0};
	size_t drop;

	if (w->lines.n < KEEP_BYTES)
		return;
	end = memchr(w->lines.p + KEEP_BYTES / 2, '\n', w->lines.n - KEEP_BYTES / 2);
	drop = (size_t)(end - w->lines.p) + 1;
	buf_addf(&kept, "dropped bytes=%zu\n", drop);
	drop -= kept.n; /* the line takes the place of the end of what is dropped */
	w->first += drop;
	buf_add(&kept, w->lines.p + drop + kept.n, w->lines.n - drop - kept.n);
	buf_free(&w->lines);
	w->lines = kept;
}

static uint64_t
end_of(const struct wait *w)
{
	return w->first + w->lines.n;
}

static void
add_line(struct wait *w, enum reason reason, const char *line)
{
	if (!(w->why.set & reason) || w->finished)
		return;
	bound(w);
	buf_adds(&w->lines, line);
}

/* Prints what has happened to c, or without one to g: the reason, what it is, and where to look. */
static void
print(const struct group *g, const struct cell *c, enum reason reason, int rank, double seconds,
    struct buf *out)
{
	const struct task *w = c ? c->w : NULL;

	for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
		if (reasons[i].reason == reason)
			buf_addf(out, "%s group=%s", reasons[i].name, g->name);
	if (c)
		buf_addf(out, " cell=%d", c->number);
	if (rank >= 0 && w->begun)
		buf_addf(out, " rank=%d", rank);
	if (reason == ENDED)
		buf_addf(out, " state=%s", task_state(w));
	if (reason == FAILED)
		buf_addf(out, " errno=%s", err_name(w->err.no));
	if (c)
		buf_addf(out, " seconds=%.3f", seconds);
	if (reason == STALLED || reason == QUIET)
		buf_addf(out, " look=%s/stall", g->name);
	else if (reason == INPUT)
		buf_addf(out, " look=%s/cells/%d/rank%d/stdout", g->name, c->number, rank);
	else if (reason == PREEMPT)
		buf_addf(out, " look=%s/events", g->name);
	else
		buf_addf(out, " look=%s/cells/%d/report", g->name, c->number);
	if (reason == FAILED) {
		buf_adds(out, " error=");
		plain_clip(out, slice_text(w->err.text), TEXT_MAX, true);
	}
	buf_addc(out, '\n');
}

static void
add(struct wait *w, struct cell *c, enum reason reason, int rank, double seconds)
{
	struct buf line = {0};

	print(c->g, c, reason, rank, seconds, &line);
	add_line(w, reason, line.p);
	buf_free(&line);
}

/* Does the file wait for what happens to this cell (NULL: only to the group)? */
static bool
concerns(const struct wait *w, const struct group *g, const struct cell *c)
{
	const struct place *at = &w->f->node->at;

	if (at->cell)
		return at->cell == c;
	return (!at->g || at->g == g) && !(c && c->steered.cell); /* whose writer knows */
}

/* ---- silence ---- */

/* When the last rank of a running cell printed, or the cell began, or the file was opened. */
static uint64_t
last_heard(const struct wait *w, const struct cell *c)
{
	uint64_t t = MAX(c->w->when.begin_ns, w->opened);

	for (int i = 0; i < c->n; i++)
		t = MAX(t, c->w->subtasks[i].k->output.time_ns);
	return t;
}

static void
each_running(struct wait *w, void (*fn)(struct wait *w, struct cell *c, void *arg), void *arg)
{
	struct group *g;
	struct cell *c;

	TAILQ_FOREACH (g, &groups, link)
		TAILQ_FOREACH (c, &g->history.cells, link)
			if (c->w->begun && !c->w->done && concerns(w, g, c))
				fn(w, c, arg);
}

struct quiet_check {
	uint64_t now, next;
};

/* Each time that as many seconds more have passed is one reason. */
static void
check_cell(struct wait *w, struct cell *c, void *arg)
{
	struct quiet_check *check = arg;
	uint64_t heard = last_heard(w, c), span = MAX((uint64_t)(w->why.quiet * 1e9), 1ull);
	uint64_t times = check->now > heard ? (check->now - heard) / span : 0;

	if (times && heard + times * span > w->checked)
		add(w, c, QUIET, -1, in_seconds(check->now - heard));
	check->next = MIN(check->next, heard + (times + 1) * span);
}

static void on_time(void *arg);

/* Reports silence that has lasted, and sets the timer to when another may have. */
static void
check_quiet(struct wait *w)
{
	struct quiet_check check = {now_ns(), UINT64_MAX};

	loop_timer_del(w->timer);
	w->timer = NULL;
	if (!(w->why.set & QUIET) || w->finished)
		return;
	each_running(w, check_cell, &check);
	w->checked = check.now;
	if (check.next < UINT64_MAX) /* none runs: one that begins sets it */
		w->timer =
		    loop_timer(daemon_.loop, (check.next - check.now) / NS_PER_MS + 1, on_time, w);
}

/* ---- what happens ---- */

static void
wake_parked(void)
{
	struct req_list woken = TAILQ_HEAD_INITIALIZER(woken);
	struct req *r;

	TAILQ_CONCAT(&woken, &parked, link);
	while ((r = TAILQ_FIRST(&woken))) {
		TAILQ_REMOVE(&woken, r, link);
		r->file->ops->read(r->file, r);
	}
}

/* Lets the readers of this group's files, and of those of all groups, read again. */
static void
wake(struct group *g)
{
	wake_parked();
	group_tell(output_moved, g);
}

static void
on_time(void *arg)
{
	struct wait *w = arg;
	struct group *g = w->f->node->at.g;
	uint64_t before = end_of(w);

	w->timer = NULL;
	check_quiet(w);
	if (end_of(w) == before)
		return;
	if (g)
		wake(g);
	else
		wake_parked();
	req_wake_pollers();
}

static void
on_news(struct group *g, struct cell *c, enum cell_news what, int rank)
{
	static const enum reason reason_of[] = {[CELL_ENDED] = ENDED,
	    [CELL_FAILED] = FAILED,
	    [CELL_STALLED] = STALLED,
	    [CELL_INPUT] = INPUT,
	    [CELL_PREEMPTED] = PREEMPT};
	struct wait *w;
	struct buf line = {0};

	TAILQ_FOREACH (w, &waits, link) {
		if (!concerns(w, g, c))
			continue;
		if (what == CELL_BEGAN) {
			check_quiet(w);
			continue;
		}
		if (!line.n)
			print(g, c, reason_of[what], rank, c ? task_seconds(c->w) : 0, &line);
		add_line(w, reason_of[what], line.p);
		if (what == CELL_ENDED && w->f->node->at.cell) {
			w->finished = true;
			loop_timer_del(w->timer);
			w->timer = NULL;
		}
	}
	if (line.n)
		wake(g);
	buf_free(&line);
}

/* ---- the files ---- */

/* Adds what is so at the open. */
static void
add_state(struct wait *w, struct cell *c, void *arg)
{
	double seconds = task_seconds(c->w);

	if (c->w->err.no)
		add(w, c, FAILED, c->w->first < 0 ? -1 : c->ranks[c->w->first], seconds);
	if (c->w->done) {
		add(w, c, ENDED, -1, seconds);
		return;
	}
	if (c->w->escalation.stalled)
		add(w, c, STALLED, -1, seconds);
	for (int i = 0; i < c->n; i++) {
		uint8_t input = c->w->subtasks[i].k->input.waits;

		if (input && input != INPUT_DEBUGGER && c->w->subtasks[i].state == SUBTASK_SENT)
			add(w, c, INPUT, c->ranks[i], seconds);
	}
	if (c->w->escalation.why == WHY_PREEMPTED)
		add(w, c, PREEMPT, -1, seconds);
}

static int
wait_open(struct file *f, struct req *r)
{
	struct wait *w = xcalloc(1, sizeof(*w));
	struct cell *c = f->node->at.cell;

	*w = (struct wait){.f = f, .opened = now_ns()};
	if (wait_file_parse(f->node->at.name, &w->why, &r->err) < 0) {
		free(w);
		return -r->err.no;
	}
	if (c)
		w->why.set |= ENDED; /* nothing else can happen then */
	f->state = w;
	TAILQ_INSERT_TAIL(&waits, w, link);
	if (c && c->w->done) {
		add_state(w, c, NULL);
		w->finished = true;
		return 0;
	}
	each_running(w, add_state, NULL);
	check_quiet(w);
	return 0;
}

static void
parked_interrupted(struct req *r, enum interrupt how)
{
	TAILQ_REMOVE(&parked, r, link);
	req_done(r, -EINTR);
}

static void
park(struct file *f, struct req *r)
{
	struct cell *c = f->node->at.cell;

	if (f->node->at.g) {
		if (c && !r->nonblock && !r->may_wait && caller_check_cell(c, r, &r->err) < 0) {
			req_done(r, -r->err.no);
			return;
		}
		r->may_wait = true; /* a later request that would close the circle is refused */
		live_park(f->node->at.g, r);
	} else if (r->nonblock) {
		req_done(r, -EAGAIN);
	} else {
		TAILQ_INSERT_TAIL(&parked, r, link);
		req_park(r, parked_interrupted);
	}
}

static void
wait_read(struct file *f, struct req *r)
{
	struct wait *w = f->state;
	int64_t at = w->base + (int64_t)MIN(r->offset, (uint64_t)INT64_MAX / 2);
	size_t from, n;

	if (at < (int64_t)w->first) { /* goes on with the oldest line that is kept */
		w->base += (int64_t)w->first - at;
		at = (int64_t)w->first;
	}
	if ((uint64_t)at == end_of(w) && !w->finished) {
		park(f, r);
		return;
	}
	from = (size_t)MIN((uint64_t)at - w->first, (uint64_t)w->lines.n);
	n = MIN(r->want, w->lines.n - from);
	if (n)
		w->next = (uint64_t)at + n;
	req_data(r, n ? w->lines.p + from : "", n);
}

static unsigned
wait_poll(struct file *f)
{
	const struct wait *w = f->state;

	return w->next < end_of(w) || w->finished ? EPOLLIN | EPOLLRDNORM : 0;
}

static void
wait_release(struct file *f)
{
	struct wait *w = f->state;

	if (!w)
		return;
	TAILQ_REMOVE(&waits, w, link);
	loop_timer_del(w->timer);
	buf_free(&w->lines);
	free(w);
}

const struct file_ops wait_file_ops = {
    .open = wait_open, .read = wait_read, .poll = wait_poll, .release = wait_release};

void
wait_file_init(void)
{
	group_news.cell_news = on_news;
}

void
wait_file_answer(void)
{
	struct req *r;

	while ((r = TAILQ_FIRST(&parked))) {
		TAILQ_REMOVE(&parked, r, link);
		req_done(r, -ENODEV);
	}
}
