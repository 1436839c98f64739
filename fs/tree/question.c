#include "tree/question.h"
#include "group/host.h"
#include "group/rank.h"
#include <errno.h>

static void
end_patience(struct question *q)
{
	patience_end(q->patience);
	q->patience = NULL;
}

static void
on_reply(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct question *q = arg;

	end_patience(q);
	q->ops->take(q, m, e);
}

static void
on_late(void *arg)
{
	struct question *q = arg;

	q->patience = NULL;
	q->ops->late(q);
}

static void
interrupted(struct req *r, enum interrupt how)
{
	question_drop(r->waits_for);
	question_answer(r->waits_for, -EINTR);
}

void
question_begin(struct question *q, struct rank *k, int type)
{
	q->agent = rank_agent(k);
	q->slot = k->slot;
	q->tag = agent_tag(q->agent, q->slot, type, on_reply, q);
	if (q->ops->late)
		q->patience = patience_begin(host_local_pid(k), on_late, q);
	if (q->r) {
		q->r->waits_for = q;
		req_park(q->r, interrupted);
	}
}

void
question_answer(struct question *q, int result)
{
	struct req *r = q->r;

	end_patience(q);
	q->r = NULL;
	req_done(r, result);
}

void
question_drop(struct question *q)
{
	end_patience(q);
	if (q->ops->cancels && agent_slot_lives(q->agent, q->slot))
		agent_cancel(q->agent, q->slot, q->tag);
}
