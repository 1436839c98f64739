/* rankK/stack and stack.all: open asks the rank for its stacks and waits for the answer. */
#include "tree/stack_file.h"
#include "group/external.h"
#include "group/frames.h"
#include "group/rank.h"
#include "tree/question.h"
#include <errno.h>
#include <stdlib.h>

struct stack_open {
	struct question q;
	struct file *f;
	bool all; /* not the user's frames only */
};

static void
on_stack(struct question *q, struct msg *m, const struct err *e)
{
	struct stack_open *s = (struct stack_open *)q;
	struct slice text;
	struct err why = *e;

	if (q->r && m && wire_unpack(m, Rstack, &why, NULL, NULL, NULL, NULL, &text, NULL) == 0) {
		if (s->all)
			buf_add(&s->f->text, text.p, text.n);
		else
			frames_print(&s->f->text, text);
		question_answer(q, 0);
	} else if (q->r) {
		q->r->err = why;
		question_answer(q, -why.no);
	}
	free(s);
}

static int
ask(struct file *f, struct req *r, bool all)
{
	static const struct question_ops ops = {.take = on_stack};
	struct rank *k = place_rank(&f->node->at, &r->err);
	struct stack_open *s;

	if (!k || external_refuse(k, &r->err) < 0)
		return -r->err.no;
	if (k->slot == NO_SLOT || k->state == R_SPAWNING)
		return fail(&r->err, ESRCH, "rank %d has no engine", f->node->at.rank);
	s = xcalloc(1, sizeof(*s));
	*s = (struct stack_open){{.ops = &ops, .r = r}, f, all};
	question_begin(&s->q, k, Tstack);
	agent_send(s->q.agent, Tstack, 0, s->q.slot, s->q.tag, -1);
	return PARKED;
}

static int
open_stack(struct file *f, struct req *r)
{
	return ask(f, r, false);
}

static int
open_all(struct file *f, struct req *r)
{
	return ask(f, r, true);
}

const struct file_ops stack_file_ops = {.open = open_stack};
const struct file_ops stack_file_all_ops = {.open = open_all};
