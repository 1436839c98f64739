/* Asks the ranks of a running cell where they are, who waits for whom, and what the user's frames
 * hold. A rank that does not answer soon is left out. */
#include "tree/report_file.h"
#include "group/cell.h"
#include "group/external.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/report.h"
#include "group/stall.h"
#include "tree/question.h"
#include <errno.h>
#include <stdlib.h>

/* A request to one rank. Freed when its agent has answered. */
struct glance {
	struct question q;
	struct report_open *o; /* NULL: nobody waits for it any longer */
	int i;		       /* of the cell's ranks */
};

struct report_open {
	struct file *f;
	struct req *r;
	struct cell *c; /* referenced */
	bool as_json;
	struct stall_sample *sample; /* NULL: has answered */
	struct glance **asked; /* of each of the cell's ranks; NULL: none, or it has answered */
	char **said, *verdict, *straggler, *pace;
	int left;
};

static void
free_open(struct report_open *o)
{
	for (int i = 0; i < o->c->n; i++)
		free(o->said[i]);
	free(o->said);
	free(o->asked);
	free(o->verdict);
	free(o->straggler);
	free(o->pace);
	cell_unref(o->c);
	free(o);
}

/* One of those asked has answered, or is waited for no longer. */
static void
answered(struct report_open *o)
{
	struct report_now now = {o->verdict, o->straggler, o->pace, o->said};
	struct req *r = o->r;

	if (--o->left > 0)
		return;
	if (!o->c->gone) { /* else the text stays that of before */
		buf_clear(&o->f->text);
		report_print(o->c, o->c->w->done ? NULL : &now, o->as_json, &o->f->text);
	}
	free_open(o);
	req_done(r, 0);
}

static void
leave(struct glance *a)
{
	struct report_open *o = a->o;

	a->o = NULL;
	o->asked[a->i] = NULL;
	answered(o);
}

static void
on_glance(struct question *q, struct msg *m, const struct err *e)
{
	struct glance *a = (struct glance *)q;
	struct err why = {0};
	struct slice text;

	if (a->o && m && wire_unpack(m, Rget, &why, NULL, NULL, NULL, NULL, &text) == 0)
		a->o->said[a->i] = slice_dup(text);
	if (a->o)
		leave(a);
	free(a);
}

static void
on_late(struct question *q)
{
	question_drop(q);
	leave((struct glance *)q);
}

static char *
copy(const char *text)
{
	return text ? xstrdup(text) : NULL;
}

static void
on_sample(void *arg, struct slice text)
{
	struct report_open *o = arg;
	o->verdict = copy(stall_verdict(o->sample));
	o->straggler = copy(stall_straggler(o->sample));
	o->pace = copy(stall_pace(o->sample));
	o->sample = NULL;
	answered(o);
}

static void
interrupted(struct req *r, enum interrupt how)
{
	struct report_open *o = r->waits_for;

	if (o->sample)
		stall_cancel(o->sample);
	for (int i = 0; i < o->c->n; i++) {
		struct glance *a = o->asked[i];

		if (!a)
			continue;
		question_drop(&a->q);
		a->o = NULL;
	}
	free_open(o);
	req_done(r, -EINTR);
}

/* Does the rank run its part of the cell, in a process that can be asked? */
static bool
can_ask(struct rank *k, const struct subtask *j)
{
	struct err e;

	return j->state == SUBTASK_SENT && k->slot != NO_SLOT && external_refuse(k, &e) == 0 &&
	       agent_slot_lives(rank_agent(k), k->slot);
}

static void
ask(struct report_open *o, int i)
{
	static const struct question_ops ops = {on_glance, on_late, true};
	struct glance *a = xcalloc(1, sizeof(*a));

	*a = (struct glance){{.ops = &ops}, .o = o, .i = i};
	o->asked[i] = a;
	o->left++;
	question_begin(&a->q, o->c->w->subtasks[i].k, Tget);
	agent_send(a->q.agent, Tget, 0, a->q.slot, a->q.tag, -1, slice_text("__main__"),
	    slice_text("glance"), slice_text(""));
}

static int
open_report(struct file *f, struct req *r, bool as_json)
{
	struct cell *c = f->node->at.cell;
	struct report_open *o;

	if (!c->w->begun || c->w->done || c->gone)
		return 0; /* the text is made already */
	o = xcalloc(1, sizeof(*o));
	*o = (struct report_open){.f = f, .r = r, .c = cell_ref(c), .as_json = as_json, .left = 1};
	o->asked = xcalloc((size_t)c->n + 1, sizeof(struct glance *));
	o->said = xcalloc((size_t)c->n + 1, sizeof(char *));
	r->waits_for = o;
	req_park(r, interrupted);
	for (int i = 0; i < c->n; i++)
		if (can_ask(c->w->subtasks[i].k, &c->w->subtasks[i]))
			ask(o, i);
	o->sample = stall_prepare(c->g, RECORD_WORDS, c->w->number, on_sample, o);
	stall_ask(o->sample);
	return PARKED;
}

static int
open_text(struct file *f, struct req *r)
{
	return open_report(f, r, false);
}

static int
open_json(struct file *f, struct req *r)
{
	return open_report(f, r, true);
}

const struct file_ops report_file_ops = {.open = open_text};
const struct file_ops report_file_json_ops = {.open = open_json};
