/* Releases the bytes that were sent with a request when the reply arrives. */
#include "relay/asked.h"
#include <stdlib.h>
#include <sys/queue.h>

struct question {
	LIST_ENTRY(question) link;
	unsigned slot;
	uint64_t tag;
	uint32_t blob;
};

struct asked {
	struct outbox *out;
	LIST_HEAD(, question) list;
};

struct asked *
asked_new(struct outbox *out)
{
	struct asked *a = xcalloc(1, sizeof(*a));

	a->out = out;
	LIST_INIT(&a->list);
	return a;
}

void
asked_free(struct asked *a)
{
	struct question *q;

	while (a && (q = LIST_FIRST(&a->list))) {
		LIST_REMOVE(q, link);
		free(q);
	}
	free(a);
}

void
asked_add(struct asked *a, const struct msg *m, uint32_t blob)
{
	struct question *q = xcalloc(1, sizeof(*q));

	*q = (struct question){.slot = m->slot, .tag = m->tag, .blob = blob};
	LIST_INSERT_HEAD(&a->list, q, link);
}

void
asked_answered(struct asked *a, const struct msg *m)
{
	struct question *q, *next;

	if (wire_kind(m->type) == 'N' && m->type != Nexit)
		return;
	for (q = LIST_FIRST(&a->list); q; q = next) {
		next = LIST_NEXT(q, link);
		if (q->slot != m->slot || (m->type != Nexit && q->tag != m->tag))
			continue;
		outbox_release(a->out, q->blob);
		LIST_REMOVE(q, link);
		free(q);
	}
}

bool
asked_cancel(struct asked *a, unsigned slot, uint64_t tag)
{
	struct question *q;

	LIST_FOREACH (q, &a->list, link)
		if (q->slot == slot && q->tag == tag)
			break;
	if (!q || !outbox_release_rest(a->out, q->blob))
		return false;
	LIST_REMOVE(q, link);
	free(q);
	return true;
}
