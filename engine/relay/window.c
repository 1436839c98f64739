/* Has ranks copy the requested bytes of their GPUs into the memory shared with this process. */
#include "relay/window.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>

enum { NO_PLACE = -1 };

static const size_t WINDOW_SIZE = (size_t)DEVICE_SLOT * DEVICE_SLOTS;

struct range { /* requested by a Tread */
	TAILQ_ENTRY(range) link;
	uint64_t tag;
	uint32_t handle, count;
	uint64_t offset;
	int place; /* NO_PLACE: it waits for one */
};

struct object {
	LIST_ENTRY(object) link;
	uint32_t handle;
};

struct window { /* of a rank */
	LIST_ENTRY(window) link;
	unsigned slot;
	char *memory;
	bool taken[DEVICE_SLOTS];
	LIST_HEAD(, object) objects;
	TAILQ_HEAD(, range) ranges; /* in the order of their requests */
};

struct windows {
	struct conn *agent;
	struct link *link;
	window_fn *answered;
	void *arg;
	LIST_HEAD(, window) list;
};

struct windows *
windows_new(struct conn *agent, struct link *l, window_fn *answered, void *arg)
{
	struct windows *ws = xcalloc(1, sizeof(*ws));

	*ws = (struct windows){.agent = agent, .link = l, .answered = answered, .arg = arg};
	LIST_INIT(&ws->list);
	return ws;
}

static struct window *
find(const struct windows *ws, unsigned slot)
{
	struct window *w;

	LIST_FOREACH (w, &ws->list, link)
		if (w->slot == slot)
			return w;
	return NULL;
}

static struct object *
find_object(const struct window *w, uint32_t handle)
{
	struct object *o;

	LIST_FOREACH (o, &w->objects, link)
		if (o->handle == handle)
			return o;
	return NULL;
}

static void
drop_range(struct window *w, struct range *x)
{
	if (x->place != NO_PLACE)
		w->taken[x->place] = false;
	TAILQ_REMOVE(&w->ranges, x, link);
	free(x);
}

static void
destroy(struct window *w)
{
	struct object *o;

	while ((o = LIST_FIRST(&w->objects))) {
		LIST_REMOVE(o, link);
		free(o);
	}
	while (!TAILQ_EMPTY(&w->ranges))
		drop_range(w, TAILQ_FIRST(&w->ranges));
	munmap(w->memory, WINDOW_SIZE);
	LIST_REMOVE(w, link);
	free(w);
}

/* Passes on the reply to a Tread. */
static void
answer(struct windows *ws, struct buf *b)
{
	struct msg m;

	wire_frame(b->p, b->n, &m, NULL);
	ws->answered(ws->arg, &m);
	buf_free(b);
}

/* Requests from the rank those waiting ranges for which there is a free place. */
static void
serve(struct windows *ws, struct window *w)
{
	struct range *x;
	int place = 0;

	TAILQ_FOREACH (x, &w->ranges, link) {
		if (x->place != NO_PLACE)
			continue;
		while (place < DEVICE_SLOTS && w->taken[place])
			place++;
		if (place == DEVICE_SLOTS)
			return;
		x->place = place;
		w->taken[place] = true;
		conn_send(ws->agent, Tcopy, 0, w->slot, x->tag, -1, x->handle, x->offset, x->count,
		    (uint64_t)place * DEVICE_SLOT);
	}
}

static bool
asked_read(struct windows *ws, struct window *w, const struct msg *m)
{
	uint32_t handle, count;
	uint64_t offset;
	struct range *x;

	if (wire_unpack(m, Tread, NULL, &handle, &offset, &count) < 0 || !find_object(w, handle) ||
	    count > DEVICE_SLOT)
		return false;
	x = xcalloc(1, sizeof(*x));
	*x = (struct range){
	    .tag = m->tag, .handle = handle, .count = count, .offset = offset, .place = NO_PLACE};
	TAILQ_INSERT_TAIL(&w->ranges, x, link);
	serve(ws, w);
	return true;
}

bool
window_asked(struct windows *ws, const struct msg *m)
{
	struct window *w = find(ws, m->slot);

	return w && asked_read(ws, w, m);
}

void
window_freed(struct windows *ws, const struct msg *m)
{
	const struct window *w = find(ws, m->slot);
	struct object *o;
	uint32_t handle;

	if (!w || wire_unpack(m, Nfree, NULL, &handle) < 0 || !(o = find_object(w, handle)))
		return;
	LIST_REMOVE(o, link);
	free(o);
}

/* Maps the memory that comes with m. It must not be able to shrink: SIGBUS would kill us. */
static struct window *
map(struct windows *ws, const struct msg *m, struct err *e)
{
	struct window *w;
	struct stat st;
	int seals = fcntl(m->fd, F_GET_SEALS);
	void *memory;

	if (fstat(m->fd, &st) < 0 || (uint64_t)st.st_size < WINDOW_SIZE || seals < 0 ||
	    !(seals & F_SEAL_SHRINK)) {
		fail(e, EBADMSG, "the rank's memory for copies is too small, or can shrink");
		return NULL;
	}
	memory = mmap(NULL, WINDOW_SIZE, PROT_READ, MAP_SHARED, m->fd, 0);
	if (memory == MAP_FAILED) {
		fail_errno(e, "the rank's memory for copies");
		return NULL;
	}
	w = xcalloc(1, sizeof(*w));
	*w = (struct window){.slot = m->slot, .memory = memory};
	LIST_INIT(&w->objects);
	TAILQ_INIT(&w->ranges);
	LIST_INSERT_HEAD(&ws->list, w, link);
	return w;
}

static bool
answered_get(struct windows *ws, const struct msg *m)
{
	struct window *w = find(ws, m->slot);
	struct slice head;
	struct object *o;
	struct buf b = {0};
	struct err e = {0};
	uint32_t handle;
	uint64_t size;
	uint8_t kind;

	if (wire_unpack(m, Rget, NULL, &kind, &handle, NULL, &size, &head) < 0 ||
	    kind != GET_DEVICE)
		return false;
	if (!w)
		w = map(ws, m, &e);
	if (!w) {
		conn_send(ws->agent, Nfree, 0, m->slot, 0, -1, handle);
		packet_send_error(ws->link, m->slot, m->tag, &e);
		return true;
	}
	o = xcalloc(1, sizeof(*o));
	o->handle = handle;
	LIST_INSERT_HEAD(&w->objects, o, link);
	wire_pack(
	    &b, Rget, 0, m->slot, m->tag, (uint32_t)GET_READ, handle, (uint64_t)0, size, head);
	link_send(ws->link, PACKET_FRAME, false, (struct slice){b.p, b.n}, (struct slice){0});
	buf_free(&b);
	return true;
}

bool
window_answered(struct windows *ws, const struct msg *m)
{
	struct window *w = find(ws, m->slot);
	struct buf b = {0};
	struct range *x;

	if (m->type == Rget && m->fd >= 0)
		return answered_get(ws, m);
	if (w && m->type == Nexit)
		destroy(w);
	if (!w || (m->type != Rcopy && m->type != Rerror))
		return false;
	TAILQ_FOREACH (x, &w->ranges, link)
		if (x->tag == m->tag)
			break;
	if (!x)
		return false;
	if (m->type == Rcopy) {
		wire_pack(&b, Rread, 0, m->slot, m->tag,
		    ((struct slice){w->memory + (size_t)x->place * DEVICE_SLOT, x->count}));
	}
	drop_range(w, x);
	serve(ws, w);
	if (b.n)
		answer(ws, &b);
	return m->type == Rcopy;
}
