/* The table of objects, and who reads their bytes: a copy thread, or the rank. */
#include "agent/objects.h"
#include "ring.h"
#include "source.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { READ_MAX = DEVICE_SLOT }; /* as a rank, too, would read */

static const uint32_t OWN_HANDLE = 1u << 31; /* of what no rank keeps */

struct object {
	LIST_ENTRY(object) link;
	bool served; /* the daemon asks for its bytes by Tread */
	struct engine *e;
	unsigned slot;
	uint32_t handle;
	uint64_t size;
	struct source source; /* has no head; owns its provider and its pidfd */
	bool by_rank;	      /* its memory cannot be read: the rank is asked */
	int refs;	      /* its owner, and each read that a thread is at */
	TAILQ_HEAD(, reading) readings;
};

struct reading {
	TAILQ_ENTRY(reading) link;
	struct object *of;
	uint64_t tag, offset;
	size_t n;
	uint32_t blob;	  /* 0: it is for an Rread, else for an Nblob of this one */
	reading_fn *done; /* NULL: no longer wanted */
	void *arg;
	bool asked;	    /* the rank was, by Tread */
	bool on_thread;	    /* a copy thread is at it; then `came` is called */
	bool on_gpu;	    /* range is pending */
	struct range range; /* of a GPU */
	struct loop_call came;
	struct buf frame; /* the Rread or Nblob */
	ssize_t got;	  /* by the thread; -errno */
};

/* A Tcopy whose reply is to come, or a Tread whose reply is for nobody any more. */
struct awaited {
	TAILQ_ENTRY(awaited) link;
	struct engine *e;
	uint64_t tag;
	struct ring_place *place; /* of a Tcopy, else NULL */
};

/* A Tget with an OP, which wants the whole object; not answered by its rank yet. */
struct wish {
	LIST_ENTRY(wish) link;
	struct engine *e;
	uint64_t tag;
	bool cancelled;
};

static LIST_HEAD(, object) all = LIST_HEAD_INITIALIZER(all);
static LIST_HEAD(, wish) wishes = LIST_HEAD_INITIALIZER(wishes);
static TAILQ_HEAD(, awaited) replies = TAILQ_HEAD_INITIALIZER(replies); /* the oldest first */

void
object_unpin(const struct engine *e, uint32_t handle)
{
	if (e->conn && !(handle & OWN_HANDLE))
		conn_send(e->conn, Nfree, 0, e->slot, 0, -1, handle);
}

struct engine *
object_engine(const struct object *o)
{
	return o->e;
}

uint32_t
object_handle(const struct object *o)
{
	return o->handle;
}

uint64_t
object_size(const struct object *o)
{
	return o->size;
}

/* ---- objects ---- */

static struct object *
new_object(struct engine *e, uint32_t handle, uint64_t size)
{
	struct object *o = xcalloc(1, sizeof(*o));

	*o = (struct object){.e = e, .slot = e->slot, .handle = handle, .size = size, .refs = 1};
	o->source = (struct source){.fd = -1, .pidfd = -1};
	TAILQ_INIT(&o->readings);
	LIST_INSERT_HEAD(&all, o, link);
	return o;
}

/* n bytes at addr in the process of e's rank. */
static struct object *
object_in_memory(struct engine *e, uint32_t handle, uint64_t addr, uint64_t n)
{
	struct object *o = new_object(e, handle, n);
	struct source *s = &o->source;

	s->kind = SOURCE_PROCESS;
	s->pid = e->pid;
	s->addr = addr;
	/* we have not waited for it yet: it is still that process */
	if (e->state == ENGINE_RUNS && !fault("object.pidfd", EMFILE))
		s->pidfd = (int)syscall(SYS_pidfd_open, e->pid, 0);
	o->by_rank = s->pidfd < 0;
	return o;
}

struct object *
object_in_file(struct engine *e, int fd, uint64_t n)
{
	static uint32_t last_handle;
	struct object *o = new_object(e, OWN_HANDLE | ++last_handle, n);

	o->source.kind = SOURCE_FD;
	o->source.fd = fd;
	return o;
}

static void
unref(struct object *o)
{
	if (--o->refs > 0)
		return;
	if (o->source.pidfd >= 0)
		close(o->source.pidfd);
	if (o->source.fd >= 0)
		close(o->source.fd);
	free(o);
}

static void
await(struct engine *e, uint64_t tag, struct ring_place *place)
{
	struct awaited *a = xcalloc(1, sizeof(*a));

	*a = (struct awaited){.e = e, .tag = tag, .place = place};
	TAILQ_INSERT_TAIL(&replies, a, link);
}

/* Ends one reply that is awaited from this rank, the one with this tag if there is one: err is NULL
 * if it has come. Returns false if there is none. */
static bool
end_awaited(const struct engine *e, const uint64_t *tag, const struct err *err)
{
	struct ring_place *place;
	struct awaited *a;

	TAILQ_FOREACH (a, &replies, link)
		if (a->e == e && (!tag || a->tag == *tag))
			break;
	if (!a)
		return false;
	place = a->place;
	TAILQ_REMOVE(&replies, a, link);
	free(a);
	if (place)
		ring_copied(place, err);
	return true;
}

/* Removes a read, which a thread may be at, or the rank. */
static void
forget(struct reading *x)
{
	if (x->asked)
		await(x->of->e, x->tag, NULL);
	TAILQ_REMOVE(&x->of->readings, x, link);
	x->done = NULL;
	if (x->on_thread)
		return;
	if (x->on_gpu)
		range_cancel(&x->range);
	buf_free(&x->frame);
	free(x);
}

void
object_free(struct object *o)
{
	struct reading *x;

	while ((x = TAILQ_FIRST(&o->readings)))
		forget(x);
	LIST_REMOVE(o, link);
	provider_free(o->source.provider);
	unref(o);
}

/* Does it have these bytes, and are they not too many at once? */
static bool
has(const struct object *o, uint64_t offset, size_t n)
{
	return offset <= o->size && n <= o->size - offset && n <= READ_MAX;
}

/* One that the daemon asks for by Tread. */
static struct object *
find_served(const struct engine *e, uint32_t handle)
{
	struct object *o;

	LIST_FOREACH (o, &all, link)
		if (o->served && o->e == e && o->handle == handle)
			break;
	return o;
}

/* Its reads are answered with this error. */
static void
drop_served(struct object *o, const struct err *e)
{
	reads_drop(o, e);
	object_free(o);
}

/* ---- reads ---- */

static void
answer(struct reading *x, const struct err *e)
{
	struct buf frame = x->frame;
	reading_fn *done = x->done;
	void *arg = x->arg;

	x->frame = (struct buf){0};
	forget(x);
	done(arg, e ? NULL : &frame, e);
	buf_free(&frame);
}

static void
ask_rank(struct reading *x)
{
	const struct object *o = x->of;
	struct err e;

	if (o->e->conn) {
		x->asked = true;
		conn_send(o->e->conn, Tread, 0, o->slot, x->tag, -1, o->handle, x->offset,
		    (uint32_t)x->n);
		return;
	}
	fail(&e, EHOSTDOWN, "the rank is gone");
	answer(x, &e);
}

/* Makes the frame for these bytes. */
static void
pack(struct reading *x, struct slice data)
{
	if (x->blob)
		wire_pack(
		    &x->frame, Nblob, 0, SLOT_AGENT, 0, x->blob, x->of->size, x->offset, data);
	else
		wire_pack(&x->frame, Rread, 0, x->of->slot, x->tag, data);
}

/* A thread has read, or could not. */
static void
on_came(void *arg)
{
	struct reading *x = arg;
	struct object *o = x->of;
	struct err e = {0};

	x->on_thread = false;
	if (!x->done) {
		buf_free(&x->frame);
		free(x);
	} else if (x->got == -EPERM || x->got == -ENOSYS) {
		/* not permitted (ptrace rules, seccomp) */
		o->by_rank = true;
		ask_rank(x);
	} else {
		if (x->got == -ESRCH)
			fail(&e, EHOSTDOWN, "the rank is gone");
		else if (x->got != (ssize_t)x->n)
			fail(&e, EFAULT, "read: the object's memory is gone (%s)",
			    strerror(x->got < 0 ? (int)-x->got : EFAULT));
		answer(x, e.no ? &e : NULL);
	}
	unref(o);
}

/* Runs on a copy thread. */
static void
on_copied(void *arg, const char *p, ssize_t n)
{
	struct reading *x = arg;

	x->got = n;
	if (n == (ssize_t)x->n)
		pack(x, (struct slice){p, (size_t)n});
	loop_post(agent.loop, &x->came);
}

/* A copy through the memory shared with the rank has ended. */
static void
on_gpu_read(struct range *range, const struct source *bytes, const struct err *e)
{
	struct reading *x = range->arg;

	x->on_gpu = false;
	if (bytes) {
		pack(x, (struct slice){bytes->head, (size_t)bytes->head_n});
		bytes->sent(bytes->sent_arg);
	}
	answer(x, e);
}

void
object_read(struct object *o, uint64_t tag, uint32_t blob, uint64_t offset, size_t n,
    reading_fn *done, void *arg)
{
	struct reading *x = xcalloc(1, sizeof(*x));
	struct err e;

	*x = (struct reading){
	    .of = o, .tag = tag, .blob = blob, .offset = offset, .n = n, .done = done, .arg = arg};
	x->came = (struct loop_call){.fn = on_came, .arg = x};
	TAILQ_INSERT_TAIL(&o->readings, x, link);
	if (o->source.kind == SOURCE_PROVIDER) {
		x->on_gpu = true;
		x->range = (struct range){.done = on_gpu_read, .arg = x};
		source_read(&o->source, &x->range, offset, n);
	} else if (o->by_rank || copy_start(&e) < 0) {
		ask_rank(x);
	} else {
		x->on_thread = true;
		o->refs++;
		copy_later(&o->source, offset, n, on_copied, x);
	}
}

static struct reading *
find_asked(const struct engine *e, uint64_t tag)
{
	const struct object *o;
	struct reading *x;

	LIST_FOREACH (o, &all, link)
		TAILQ_FOREACH (x, &o->readings, link)
			if (o->e == e && x->asked && x->tag == tag)
				return x;
	return NULL;
}

/* ---- messages of the rank ---- */

static struct wish *
find_wish(const struct engine *e, uint64_t tag)
{
	struct wish *w;

	LIST_FOREACH (w, &wishes, link)
		if (w->e == e && w->tag == tag)
			break;
	return w;
}

static void
drop_wish(struct wish *w)
{
	LIST_REMOVE(w, link);
	free(w);
}

/* The daemon reads the object by Tread. */
static void
serve(struct object *o, const struct msg *m)
{
	struct slice head;
	uint64_t size;

	o->served = true;
	wire_unpack(m, Rget, NULL, NULL, NULL, NULL, &size, &head);
	conn_send(agent.up, Rget, 0, o->slot, m->tag, -1, (uint32_t)GET_READ, o->handle,
	    (uint64_t)0, size, head);
}

static int
ask_copy(const struct ring_rank *rank, uint32_t handle, const struct range *x, struct ring_place *p,
    uint64_t to, struct err *err)
{
	const struct reading *of = x->arg;
	struct engine *e = of->of->e;

	if (!e->conn)
		return fail(err, EHOSTDOWN, "the rank is gone");
	await(e, of->tag, p);
	conn_send(e->conn, Tcopy, 0, e->slot, of->tag, -1, handle, x->offset, (uint32_t)x->n, to);
	return 0;
}

/* An object on a GPU. */
static void
take_device(struct engine *e, const struct msg *m, uint32_t handle, unsigned gpu, uint64_t size)
{
	struct ring_rank rank = {&agent, e->slot, ask_copy};
	struct object *o = new_object(e, handle, size);
	struct err err;

	o->source.kind = SOURCE_PROVIDER;
	o->source.provider = ring_provider(agent.loop, &rank, handle, gpu, m->fd, &err);
	if (o->source.provider) {
		serve(o, m);
		return;
	}
	object_free(o);
	object_unpin(e, handle);
	agent_refuse(e->slot, m->tag, &err);
}

/* Returns false if the daemon can use the answer as it is. */
static bool
take_get(struct engine *e, struct msg *m)
{
	struct object *o;
	struct wish *w = find_wish(e, m->tag);
	bool wanted = w, cancelled = w && w->cancelled;
	uint64_t addr, size;
	struct slice head;
	struct err err;
	uint32_t handle;
	uint8_t kind;

	if (w)
		drop_wish(w);
	if (wire_unpack(m, Rget, NULL, &kind, &handle, &addr, &size, &head) < 0)
		return false;
	size -= MIN(size, (uint64_t)head.n);
	if (kind == GET_DEVICE && m->fd >= 0) {
		take_device(e, m, handle, (unsigned)addr, size);
		return true;
	}
	if (kind == GET_FD && m->fd >= 0) {
		o = object_in_file(e, m->fd, size);
		m->fd = -1;
	} else if (kind == GET_LIVE) {
		o = object_in_memory(e, handle, addr, size);
	} else {
		return false;
	}
	if (cancelled) {
		wire_cancelled(&err);
		object_unpin(e, o->handle);
		agent_refuse(e->slot, m->tag, &err);
		object_free(o);
	} else if (wanted || kind == GET_FD) {
		reads_whole(o, m->tag, size + head.n, head);
	} else {
		serve(o, m);
	}
	return true;
}

bool
objects_answered(struct engine *e, struct msg *m)
{
	struct slice data;
	struct reading *x;
	struct err err = {0};

	if (m->type == Rget)
		return take_get(e, m);
	if (m->type != Rread && m->type != Rcopy && m->type != Rerror)
		return false;
	if (m->type == Rerror)
		wire_read_error(m, &err, NULL);
	if (end_awaited(e, &m->tag, m->type == Rcopy ? NULL : &err))
		return true;
	x = find_asked(e, m->tag);
	if (x) {
		x->asked = false;
		if (wire_unpack(m, Rread, NULL, &data) == 0)
			pack(x, data);
		answer(x, m->type == Rread ? NULL : &err);
		return true;
	}
	if (m->type == Rerror && find_wish(e, m->tag))
		drop_wish(find_wish(e, m->tag));
	return false;
}

/* ---- messages of the daemon ---- */

static void
ask_get(struct engine *e, const struct msg *m)
{
	struct slice op;
	struct wish *w;

	if (wire_unpack(m, Tget, NULL, NULL, NULL, &op) < 0 || op.n == 0)
		return;
	w = xcalloc(1, sizeof(*w));
	*w = (struct wish){.e = e, .tag = m->tag};
	LIST_INSERT_HEAD(&wishes, w, link);
}

/* Returns true if the rank need not know: it has answered. */
static bool
cancel(const struct engine *e, uint64_t tag)
{
	struct wish *w = find_wish(e, tag);

	if (w)
		w->cancelled = true;
	return !w && reads_cancel(e, tag);
}

bool
objects_asked(struct engine *e, const struct msg *m)
{
	struct object *o;
	struct err err;
	uint32_t handle, count;
	uint64_t offset, tag;

	if (m->type == Tget)
		ask_get(e, m);
	if (wire_unpack(m, Ncancel, NULL, &tag) == 0)
		return cancel(e, tag);
	if (wire_unpack(m, Nfree, NULL, &handle) == 0 && (o = find_served(e, handle))) {
		wire_cancelled(&err);
		drop_served(o, &err);
	}
	if (wire_unpack(m, Tread, NULL, &handle, &offset, &count) < 0 ||
	    !(o = find_served(e, handle)) || !has(o, offset, count))
		return false; /* the rank knows what is wrong */
	reads_ask(o, m);
	return true;
}

void
objects_ended(struct engine *e)
{
	static const struct err gone = {EHOSTDOWN, "the rank is gone"};
	struct object *o, *next;
	struct wish *w, *after;

	reads_ended(e);
	for (o = LIST_FIRST(&all); o; o = next) {
		next = LIST_NEXT(o, link);
		if (o->e == e && o->served)
			drop_served(o, &gone);
	}
	while (end_awaited(e, NULL, &gone))
		;
	for (w = LIST_FIRST(&wishes); w; w = after) {
		after = LIST_NEXT(w, link);
		if (w->e == e)
			drop_wish(w);
	}
}
