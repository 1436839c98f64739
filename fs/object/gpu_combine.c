/*
 * One rank creates the id of a communicator, then all ranks are asked at once. A rank refuses while
 * it has other work, and gives up if some arrives: if one gives up, all do.
 */
#include "object/gpu_combine.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct asked {
	struct gpu_combine *c;
	struct gpu_part part;
	uint64_t tag; /* of the pending request; 0: none */
};

struct gpu_combine {
	const struct reduction *r;
	int n, left; /* ranks; pending replies */
	struct asked *asked;
	struct err err; /* the first one */
	gpu_combine_fn *fn;
	void *arg;
};

static void
end(struct gpu_combine *c)
{
	gpu_combine_fn *fn = c->fn;
	void *arg = c->arg;
	struct err e = c->err;

	free(c->asked);
	free(c);
	fn(arg, &e);
}

static bool
lives(const struct asked *x)
{
	return agent_slot_lives(x->part.agent, x->part.slot);
}

/* Cancels all requests: the other ranks would wait in vain for the one that failed. */
static void
stop(struct gpu_combine *c, const struct err *e)
{
	if (c->err.no)
		return;
	c->err = *e;
	for (int i = 0; i < c->n; i++)
		if (c->asked[i].tag && lives(&c->asked[i]))
			agent_cancel(
			    c->asked[i].part.agent, c->asked[i].part.slot, c->asked[i].tag);
}

static void
on_combined(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct asked *x = arg;
	struct gpu_combine *c = x->c;

	x->tag = 0;
	if (!m)
		stop(c, e);
	if (--c->left == 0)
		end(c);
}

static bool
all_live(const struct gpu_combine *c)
{
	for (int i = 0; i < c->n; i++)
		if (!lives(&c->asked[i]))
			return false;
	return true;
}

static void
ask_all(struct gpu_combine *c, struct slice id)
{
	const char *op = "", *dtype = "";
	uint64_t numbers = 0;

	reduce_numbers(c->r, &op, &dtype, &numbers);
	c->left = c->n;
	for (int i = 0; i < c->n; i++) {
		struct asked *x = &c->asked[i];
		const struct gpu_part *part = &x->part;

		x->tag = agent_tag(part->agent, part->slot, Tcombine, on_combined, x);
		agent_send(part->agent, Tcombine, 0, part->slot, x->tag,
		    i == 0 ? reduce_result(c->r) : -1, part->handle, (uint32_t)i, (uint32_t)c->n,
		    numbers, slice_text(op), slice_text(dtype), id);
	}
}

static void
on_id(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct asked *x = arg;
	struct gpu_combine *c = x->c;
	struct slice id;

	x->tag = 0;
	if (!c->err.no && !m)
		c->err = *e;
	else if (!c->err.no && wire_unpack(m, Rncclid, &c->err, &id) == 0 && !all_live(c))
		fail(&c->err, EHOSTDOWN, "a rank is gone");
	if (c->err.no)
		end(c);
	else
		ask_all(c, id);
}

struct gpu_combine *
gpu_combine_new(
    const struct gpu_part *parts, int n, const struct reduction *r, gpu_combine_fn *fn, void *arg)
{
	const char *op, *dtype;
	struct gpu_combine *c;
	uint64_t numbers;

	if (!reduce_numbers(r, &op, &dtype, &numbers))
		return NULL;
	c = xcalloc(1, sizeof(*c));
	*c = (struct gpu_combine){.r = r, .n = n, .fn = fn, .arg = arg};
	c->asked = xcalloc((size_t)n, sizeof(*c->asked));
	for (int i = 0; i < n; i++)
		c->asked[i] = (struct asked){.c = c, .part = parts[i]};
	return c;
}

void
gpu_combine_start(struct gpu_combine *c)
{
	struct asked *first = &c->asked[0];

	if (!all_live(c)) {
		fail(&c->err, EHOSTDOWN, "a rank is gone");
		end(c);
		return;
	}
	first->tag = agent_tag(first->part.agent, first->part.slot, Tncclid, on_id, first);
	agent_send(first->part.agent, Tncclid, 0, first->part.slot, first->tag, -1);
}

void
gpu_combine_cancel(struct gpu_combine *c)
{
	struct err e;

	fail(&e, ECANCELED, "no longer wanted");
	stop(c, &e);
}
