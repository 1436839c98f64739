/* rankK/stack and stack.all: open asks the rank for its stacks and waits for the answer. */
#include "tree/stack_file.h"
#include "group/external.h"
#include "group/frames.h"
#include "group/rank.h"
#include "host/agent.h"
#include <errno.h>
#include <stdlib.h>

struct stack_open {
	struct file *f;
	struct req *r; /* NULL: interrupted, the answer is no longer wanted */
	bool all;      /* not the user's frames only */
};

static void
on_stack(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct stack_open *s = arg;
	struct slice text;

	if (s->r && m &&
	    wire_unpack(m, Rstack, &s->r->err, NULL, NULL, NULL, NULL, &text, NULL) == 0) {
		if (s->all)
			buf_add(&s->f->text, text.p, text.n);
		else
			frames_print(&s->f->text, text);
		req_done(s->r, 0);
	} else if (s->r) {
		s->r->err = m ? s->r->err : *e;
		req_done(s->r, -s->r->err.no);
	}
	free(s);
}

static void
stack_interrupted(struct req *r, enum interrupt how)
{
	struct stack_open *s = r->waits_for;

	s->r = NULL;
	req_done(r, -EINTR);
}

static int
ask(struct file *f, struct req *r, bool all)
{
	struct rank *k = place_rank(&f->node->at, &r->err);
	struct stack_open *s;

	if (!k || external_refuse(k, &r->err) < 0)
		return -r->err.no;
	if (k->slot == NO_SLOT || k->state == R_SPAWNING)
		return fail(&r->err, ESRCH, "rank %d has no engine", f->node->at.rank);
	s = xcalloc(1, sizeof(*s));
	*s = (struct stack_open){f, r, all};
	r->waits_for = s;
	req_park(r, stack_interrupted);
	agent_send(rank_agent(k), Tstack, 0, k->slot,
	    agent_tag(rank_agent(k), k->slot, Tstack, on_stack, s), -1);
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
