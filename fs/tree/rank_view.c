/* Texts that a rank's Python makes. A rank that is stuck outside Python is not waited for. */
#include "tree/rank_view.h"
#include "tree/question.h"
#include <errno.h>
#include <stdlib.h>

struct rank_view {
	struct question q;
	struct file *f;
	rank_view_failed_fn *failed;
};

static void
answer_failed(struct rank_view *v, const struct err *e)
{
	struct req *r = v->q.r;

	r->err = *e;
	question_answer(&v->q, v->failed ? v->failed(v->f, &r->err) : -e->no);
}

static void
on_text(struct question *q, struct msg *m, const struct err *e)
{
	struct rank_view *v = (struct rank_view *)q;
	struct slice text;
	struct err why = *e;
	bool ok = m && wire_unpack(m, Rget, &why, NULL, NULL, NULL, NULL, &text) == 0;

	if (q->r && ok) {
		buf_add(&v->f->text, text.p, text.n);
		question_answer(q, 0);
	} else if (q->r) {
		answer_failed(v, &why);
	}
	free(v);
}

static void
on_late(struct question *q)
{
	struct err e;

	question_drop(q);
	fail(&e, EAGAIN, "the rank is stuck where no Python runs");
	answer_failed((struct rank_view *)q, &e);
}

int
rank_view_ask(struct file *f, struct req *r, struct rank *k, const char *name, const char *view,
    rank_view_failed_fn *failed)
{
	static const struct question_ops ops = {.take = on_text, .late = on_late, .cancels = true};
	struct rank_view *v = xcalloc(1, sizeof(*v));

	*v = (struct rank_view){{.ops = &ops, .r = r}, .f = f, .failed = failed};
	question_begin(&v->q, k, Tget);
	agent_send(v->q.agent, Tget, 0, v->q.slot, v->q.tag, -1, slice_text(name), slice_text(view),
	    slice_text(""));
	return PARKED;
}
