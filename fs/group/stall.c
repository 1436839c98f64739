/*
 * Who is waiting for whom. Each rank's stack is asked for (the I/O thread answers, whatever Python
 * does) and read for two things: the collective that it is in, and the line of the user's code.
 * Whoever is not where most are comes first.
 */
#include "group/stall.h"
#include "group/cell.h"
#include "base/daemon.h"
#include "host/agent.h"
#include "group/rank.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen {
	struct look *look;
	struct rank *k;
	char where[360]; /* "in=all_reduce number=4 at=<cell 17>:3" */
	double since;	 /* seconds in this collective */
	bool collective;
};

enum { LATE_MS = 2000 };

/* One round of questions. */
struct look {
	struct group *g; /* referenced */
	struct seen *seen;
	int n, left;
	struct req *r; /* the open that waits, NULL: none */
	struct file *f;
	struct timer *late;
	int cell;	 /* for the event, 0: none */
	uint64_t before; /* hash of what the last look of this cell saw */
};

/* Packages whose frames are not the user's. */
static const char *const libraries[] = {
    "/site-packages/", "/lib/python", "/dist-packages/", "ddip_engine", "<frozen"};

static bool
is_library(const char *file, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(libraries); i++)
		if (memmem(file, n, libraries[i], strlen(libraries[i])))
			return true;
	return false;
}

/*
 * Reads the main thread's part: lines «  File "FILE", line N in FUNCTION», the innermost first. The
 * first of the user's goes to at; in is what torch's function above it says, if the engine did not.
 */
static void
read_stack(struct slice text, char in[64], char at[260])
{
	char *copy = slice_dup(text), *save, *line;
	const char *main_thread = strstr(copy, "most recent call first");
	char file[200], function[64];
	unsigned lineno;

	/* the thread of the cells was the first of the process: faulthandler lists it last */
	for (const char *p = main_thread; p; p = strstr(p + 1, "most recent call first"))
		main_thread = p;
	line = main_thread ? strchr(main_thread, '\n') : NULL;
	for (line = line ? strtok_r(line, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, " File \"%199[^\"]\", line %u in %63s", file, &lineno, function) !=
		    3)
			break;
		if (*in == '-' && strstr(file, "nn/parallel/distributed.py"))
			snprintf(in, 64, "%s", function);
		if (!is_library(file, strlen(file))) {
			snprintf(at, 260, "%s:%u", file, lineno);
			break;
		}
	}
	free(copy);
}

static int
companions(const struct look *l, int i)
{
	int n = 0;

	for (int k = 0; k < l->n; k++)
		n += strcmp(l->seen[k].where, l->seen[i].where) == 0;
	return n;
}

static void
print(const struct look *l, struct buf *out)
{
	/* fewer companions first: the odd one out */
	for (int want = 1; want <= l->n; want++)
		for (int i = 0; i < l->n; i++) {
			const struct rank *k = l->seen[i].k;
			const struct job *j = TAILQ_FIRST(&k->queue);

			if (companions(l, i) != want)
				continue;
			buf_addf(
			    out, "%d state=%s cell=%d", k->number, rank_state_name(k), k->cell);
			if (j && j->state != JOB_QUEUED)
				buf_addf(out, " seconds=%.1f", now_wall() - j->t0);
			buf_addf(out, " %s", l->seen[i].where);
			if (l->seen[i].since > 0)
				buf_addf(out, " for=%.1f", l->seen[i].since);
			buf_addc(out, '\n');
		}
}

static uint64_t
hash(const struct look *l)
{
	uint64_t h = 14695981039346656037u;

	for (int i = 0; i < l->n; i++)
		for (const char *p = l->seen[i].where; *p; p++)
			h = (h ^ (unsigned char)*p) * 1099511628211u;
	return h;
}

static void
look_free(struct look *l)
{
	group_unref(l->g);
	free(l->seen);
	free(l);
}

/* The cell is where it was at the last look, and somebody is in a collective: that is worth a line.
 */
static void
tell(struct look *l)
{
	struct cell *c = l->g->gone ? NULL : cell_find(l->g, l->cell);
	struct buf b = {0};
	bool waits = false, asks = false;

	for (int i = 0; i < l->n; i++) {
		waits |= l->seen[i].collective;
		asks |= l->seen[i].k->waits_input;
	}
	if (!c || c->w->done)
		return;
	if (waits && !asks && l->before == hash(l)) {
		print(l, &b);
		group_event(l->g, "stall cell=%d seconds=%.0f %s", l->cell,
		    now_wall() - c->w->t_begin, b.p);
		buf_free(&b);
	}
	c->w->stall_seen = hash(l);
	stall_watch(c->w);
}

static void
answer(struct look *l)
{
	struct req *r = l->r;

	l->r = NULL;
	print(l, &l->f->text);
	req_done(r, 0);
}

static void
complete(struct look *l)
{
	loop_timer_del(l->late);
	if (l->r)
		answer(l);
	else if (l->cell)
		tell(l);
	look_free(l);
}

/* A rank that is stopped, or in an uninterruptible call, answers when it can. */
static void
on_late(void *arg)
{
	struct look *l = arg;

	l->late = NULL;
	if (l->r)
		answer(l);
}

static void
on_stack(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct seen *s = arg;
	struct slice name, text;
	uint64_t us;
	uint32_t count;
	char in[64] = "-", at[260] = "-";

	if (m && wire_unpack(m, NULL, &name, &us, &count, &text) == 0) {
		if (name.n)
			snprintf(in, sizeof(in), "%.*s", (int)MIN(name.n, sizeof(in) - 1), name.p);
		read_stack(text, in, at);
		s->collective = *in != '-';
		s->since = (double)us / 1e6;
		/* its number among the collectives of this cell: that of the one it is in */
		snprintf(s->where, sizeof(s->where), "in=%s number=%u at=%s", in,
		    count + (name.n > 0), at);
	}
	if (--s->look->left == 0)
		complete(s->look);
}

/* Asks every rank; calls complete() at the end, perhaps at once. */
static void
ask(struct look *l)
{
	struct group *g = l->g;

	l->n = g->size;
	l->seen = xcalloc((size_t)MAX(g->size, 1), sizeof(*l->seen));
	l->left = 1;
	for (int i = 0; i < g->size; i++) {
		struct rank *k = &g->ranks[i];

		l->seen[i] = (struct seen){.look = l, .k = k, .where = "in=- number=0 at=-"};
		if (k->slot == NO_SLOT || !k->cell)
			continue;
		l->left++;
		agent_send(g->agent, Tstack, 0, k->slot,
		    agent_tag(g->agent, k->slot, on_stack, &l->seen[i]), -1);
	}
	if (--l->left == 0)
		complete(l);
	else if (l->r)
		l->late = loop_timer(daemon_.loop, LATE_MS, on_late, l);
}

static void
open_interrupted(struct req *r, enum interrupt how)
{
	struct look *l = r->waits_for;

	l->r = NULL;
	req_done(r, -EINTR);
}

static int
stall_open(struct file *f, struct req *r)
{
	struct look *l = xcalloc(1, sizeof(*l));

	*l = (struct look){.g = group_ref(f->node->at.g), .r = r, .f = f};
	r->waits_for = l;
	req_park(r, open_interrupted);
	ask(l);
	return PARKED;
}

const struct file_ops stall_ops = {.open = stall_open};

static void
time_to_look(void *arg)
{
	struct work *w = arg;
	struct look *l = xcalloc(1, sizeof(*l));

	w->stall_timer = NULL;
	*l = (struct look){.g = group_ref(w->g), .cell = w->cell->number, .before = w->stall_seen};
	ask(l);
}

void
stall_watch(struct work *w)
{
	if (w->kind == WORK_RUN && w->g->set.stall > 0 && !w->done && !w->stall_timer)
		w->stall_timer =
		    loop_timer(daemon_.loop, (uint64_t)(w->g->set.stall * 1000), time_to_look, w);
}
