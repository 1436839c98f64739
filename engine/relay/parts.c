/* Reassembles frames from their pieces. */
#include "relay/parts.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

struct part {
	LIST_ENTRY(part) link;
	uint32_t id;
	struct buf frame;
};

struct parts {
	parts_fn *whole;
	LIST_HEAD(, part) list;
};

struct parts *
parts_new(parts_fn *whole)
{
	struct parts *ps = xcalloc(1, sizeof(*ps));

	ps->whole = whole;
	LIST_INIT(&ps->list);
	return ps;
}

static void
drop(struct part *p)
{
	LIST_REMOVE(p, link);
	buf_free(&p->frame);
	free(p);
}

void
parts_free(struct parts *ps)
{
	while (ps && !LIST_EMPTY(&ps->list))
		drop(LIST_FIRST(&ps->list));
	free(ps);
}

static struct part *
find(const struct parts *ps, uint32_t id)
{
	struct part *p;

	LIST_FOREACH (p, &ps->list, link)
		if (p->id == id)
			break;
	return p;
}

static int
take_part(struct parts *ps, uint32_t id, struct slice body, struct err *e)
{
	struct part *p = find(ps, id);
	struct msg m;
	uint64_t left;

	if (!wire_get('4', &body.p, &body.n, &left, NULL) ||
	    (p ? p->frame.n : 0) + body.n + left > WIRE_MAX)
		return fail(e, EBADMSG, "relay: part %u is of no frame", id);
	if (!p) {
		p = xcalloc(1, sizeof(*p));
		p->id = id;
		buf_reserve(&p->frame, body.n + left);
		LIST_INSERT_HEAD(&ps->list, p, link);
	}
	buf_add(&p->frame, body.p, body.n);
	if (left)
		return 0;
	if (packet_frame((struct slice){p->frame.p, p->frame.n}, &m, e) == 0)
		ps->whole(&m);
	drop(p);
	return -e->no;
}

int
parts_take(struct parts *ps, int type, struct slice body, struct err *e)
{
	struct part *p;
	uint32_t id;

	if (!packet_id(&body, &id))
		return fail(e, EBADMSG, "relay: a packet without its number");
	if (type == PACKET_PART)
		return take_part(ps, id, body, e);
	p = find(ps, id);
	if (!p)
		return fail(e, EBADMSG, "relay: there is no part %u", id);
	drop(p);
	return 0;
}
