/* Has ranks copy the requested bytes of their GPUs into the memory shared with this process. */
#include "relay/window.h"
#include "ring.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

struct object {
	LIST_ENTRY(object) link;
	unsigned slot;
	uint32_t handle;
	struct source source;
};

/* A Tread. */
struct reading {
	struct range range;
	struct windows *all;
	unsigned slot;
	uint64_t tag;
};

/* A Tcopy whose reply is to come. */
struct copying {
	LIST_ENTRY(copying) link;
	unsigned slot;
	uint64_t tag;
	struct ring_place *place;
};

struct windows {
	struct loop *loop;
	struct conn *agent;
	struct link *link;
	window_fn *answered;
	void *arg;
	LIST_HEAD(, object) objects;
	LIST_HEAD(, copying) copies;
};

struct windows *
windows_new(struct loop *loop, struct conn *agent, struct link *l, window_fn *answered, void *arg)
{
	struct windows *ws = xcalloc(1, sizeof(*ws));

	*ws = (struct windows){
	    .loop = loop, .agent = agent, .link = l, .answered = answered, .arg = arg};
	LIST_INIT(&ws->objects);
	LIST_INIT(&ws->copies);
	return ws;
}

/* ---- objects ---- */

static struct object *
find_object(const struct windows *ws, unsigned slot, uint32_t handle)
{
	struct object *o;

	LIST_FOREACH (o, &ws->objects, link)
		if (o->slot == slot && o->handle == handle)
			break;
	return o;
}

static void
drop(struct object *o)
{
	LIST_REMOVE(o, link);
	provider_free(o->source.provider);
	free(o);
}

void
window_freed(struct windows *ws, const struct msg *m)
{
	struct object *o;
	uint32_t handle;

	if (wire_unpack(m, Nfree, NULL, &handle) == 0 && (o = find_object(ws, m->slot, handle)))
		drop(o);
}

static int
ask(const struct ring_rank *rank, uint32_t handle, const struct range *x, struct ring_place *p,
    uint64_t to, struct err *e)
{
	struct windows *ws = rank->agent;
	const struct reading *d = x->arg;
	struct copying *c = xcalloc(1, sizeof(*c));

	*c = (struct copying){.slot = d->slot, .tag = d->tag, .place = p};
	LIST_INSERT_HEAD(&ws->copies, c, link);
	conn_send(ws->agent, Tcopy, 0, d->slot, d->tag, -1, handle, x->offset, (uint32_t)x->n, to);
	return 0;
}

static bool
answered_get(struct windows *ws, const struct msg *m)
{
	struct ring_rank rank = {ws, m->slot, ask};
	struct object *o = xcalloc(1, sizeof(*o));
	struct source *s = &o->source;
	struct buf b = {0};
	struct err e = {0};
	struct slice head;
	uint64_t size, gpu;
	uint8_t kind;

	if (wire_unpack(m, Rget, NULL, &kind, &o->handle, &gpu, &size, &head) == 0 &&
	    kind == GET_DEVICE) {
		s->kind = SOURCE_PROVIDER;
		s->provider = ring_provider(ws->loop, &rank, o->handle, (unsigned)gpu, m->fd, &e);
	}
	if (e.no) {
		conn_send(ws->agent, Nfree, 0, m->slot, 0, -1, o->handle);
		packet_send_error(ws->link, m->slot, m->tag, &e);
	}
	if (!s->provider) {
		free(o);
		return e.no;
	}
	o->slot = m->slot;
	LIST_INSERT_HEAD(&ws->objects, o, link);
	wire_pack(
	    &b, Rget, 0, m->slot, m->tag, (uint32_t)GET_READ, o->handle, (uint64_t)0, size, head);
	link_send(ws->link, PACKET_FRAME, false, (struct slice){b.p, b.n}, (struct slice){0});
	buf_free(&b);
	return true;
}

/* ---- reads ---- */

/* What failed is the rank's to say, and what is cancelled nobody's. */
static void
on_read(struct range *x, const struct source *bytes, const struct err *e)
{
	struct reading *d = x->arg;
	struct buf b = {0};
	struct msg m;

	if (bytes) {
		wire_pack(&b, Rread, 0, d->slot, d->tag,
		    ((struct slice){bytes->head, (size_t)bytes->head_n}));
		bytes->sent(bytes->sent_arg);
		wire_frame(b.p, b.n, &m, NULL);
		d->all->answered(d->all->arg, &m);
		buf_free(&b);
	}
	free(d);
}

bool
window_asked(struct windows *ws, const struct msg *m)
{
	const struct object *o;
	uint32_t handle, count;
	uint64_t offset;
	struct reading *d;

	if (wire_unpack(m, Tread, NULL, &handle, &offset, &count) < 0 || count > DEVICE_SLOT ||
	    !(o = find_object(ws, m->slot, handle)))
		return false;
	d = xcalloc(1, sizeof(*d));
	*d = (struct reading){
	    .range = {.done = on_read, .arg = d}, .all = ws, .slot = m->slot, .tag = m->tag};
	source_read(&o->source, &d->range, offset, count);
	return true;
}

/* The first copy of this slot, with this tag if there is one; NULL: none. */
static struct ring_place *
take_copying(struct windows *ws, unsigned slot, const uint64_t *tag)
{
	struct ring_place *place;
	struct copying *c;

	LIST_FOREACH (c, &ws->copies, link)
		if (c->slot == slot && (!tag || c->tag == *tag))
			break;
	if (!c)
		return NULL;
	place = c->place;
	LIST_REMOVE(c, link);
	free(c);
	return place;
}

static void
ended(struct windows *ws, unsigned slot)
{
	static const struct err gone = {.no = EHOSTDOWN};
	struct object *o, *next;
	struct ring_place *place;

	for (o = LIST_FIRST(&ws->objects); o; o = next) {
		next = LIST_NEXT(o, link);
		if (o->slot == slot)
			drop(o);
	}
	while ((place = take_copying(ws, slot, NULL)))
		ring_copied(place, &gone);
}

bool
window_answered(struct windows *ws, const struct msg *m)
{
	struct ring_place *place;
	struct err e = {0};

	if (m->type == Rget && m->fd >= 0)
		return answered_get(ws, m);
	if (m->type == Nexit)
		ended(ws, m->slot);
	if ((m->type != Rcopy && m->type != Rerror) ||
	    !(place = take_copying(ws, m->slot, &m->tag)))
		return false;
	if (m->type == Rerror)
		wire_read_error(m, &e, NULL);
	ring_copied(place, m->type == Rcopy ? NULL : &e);
	return m->type == Rcopy;
}
