/* Texts that a rank's Python makes. A rank that is stuck outside Python is not waited for. */
#include "tree/rank_view.h"
#include "base/patience.h"
#include "group/hosts.h"
#include "group/rank.h"
#include "host/agent.h"
#include <errno.h>
#include <stdlib.h>

/* r and patience are cleared by whichever event answers first; the rest is freed when the rank
 * answers. */
struct rank_view {
	struct req *r; /* NULL: already answered */
	struct file *f;
	rank_view_failed_fn *failed;
	struct patience *patience;
	struct agent *agent;
	int slot;
	uint64_t tag;
};

static void
answer(struct rank_view *v, int result)
{
	struct req *r = v->r;

	v->r = NULL;
	patience_end(v->patience);
	v->patience = NULL;
	req_done(r, result);
}

static void
answer_failed(struct rank_view *v, const struct err *e)
{
	v->r->err = *e;
	answer(v, v->failed ? v->failed(v->f, &v->r->err) : -e->no);
}

static void
on_text(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct rank_view *v = arg;
	struct slice text;
	struct err why = *e;
	bool ok = m && wire_unpack(m, Rget, &why, NULL, NULL, NULL, NULL, &text) == 0;

	if (v->r && ok) {
		buf_add(&v->f->text, text.p, text.n);
		answer(v, 0);
	} else if (v->r) {
		answer_failed(v, &why);
	}
	free(v);
}

static void
cancel(struct rank_view *v)
{
	if (agent_slot_lives(v->agent, v->slot))
		agent_send(v->agent, Ncancel, 0, v->slot, 0, -1, v->tag);
}

static void
on_late(void *arg)
{
	struct rank_view *v = arg;
	struct err e;

	v->patience = NULL;
	cancel(v);
	fail(&e, EAGAIN, "the rank is stuck where no Python runs");
	answer_failed(v, &e);
}

static void
interrupted(struct req *r, enum interrupt how)
{
	struct rank_view *v = r->waits_for;

	cancel(v);
	answer(v, -EINTR);
}

int
rank_view_ask(struct file *f, struct req *r, struct rank *k, const char *name, const char *view,
    rank_view_failed_fn *failed)
{
	struct rank_view *v = xcalloc(1, sizeof(*v));

	*v = (struct rank_view){
	    .r = r, .f = f, .failed = failed, .agent = rank_agent(k), .slot = k->slot};
	r->waits_for = v;
	req_park(r, interrupted);
	v->patience = patience_begin(hosts_local_pid(k), on_late, v);
	v->tag = agent_tag(v->agent, k->slot, Tget, on_text, v);
	agent_send(v->agent, Tget, 0, k->slot, v->tag, -1, slice_text(name), slice_text(view),
	    slice_text(""));
	return PARKED;
}
