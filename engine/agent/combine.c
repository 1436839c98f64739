/*
 * An object that spans several ranks of this host, for a daemon on another host (Treduce): requests
 * the ranks' parts, has reduce.c combine them, and sends a single part.
 */
#include "agent/objects.h"
#include "reduce.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The tags of our own requests; the daemon never counts so far. */
static const uint64_t OWN_TAGS = (uint64_t)1 << 63;

enum { RANK_SIZE = 4 + 4 }; /* bytes per rank in Treduce */

enum { READ_BYTES = 512 << 10 }; /* per Tread */

/* One rank's part. */
struct part {
	int rank;
	unsigned slot;
	pid_t pid;	 /* of its process; 0: there is none */
	bool waits;	 /* its reply is pending */
	uint32_t handle; /* to be freed; 0: none */
	struct buf head;
	int fd, pidfd;
	struct source source;
	uint64_t size;
	uint64_t got; /* bytes received by Tread, if its memory cannot be read from here */
	struct err err;
};

struct combine {
	LIST_ENTRY(combine) link;
	unsigned slot; /* slot and tag of the request */
	uint64_t tag;
	uint64_t own_tag; /* of our requests to the ranks */
	const struct reduce_op *op;
	char *name;
	int n, left;
	struct part *parts;
	struct reduction *reduction;
	bool running, cancelled;
};

static LIST_HEAD(, combine) all = LIST_HEAD_INITIALIZER(all);
static uint64_t last; /* counts our tags */

/* The engine that a part is requested from; NULL: it is gone. */
static struct engine *
engine_of(const struct part *x)
{
	struct engine *e = spawn_find(x->slot);

	return e && e->conn ? e : NULL;
}

static void
release_part(struct part *x)
{
	if (x->handle && engine_of(x))
		object_unpin(engine_of(x), x->handle);
	x->handle = 0;
	if (x->fd >= 0)
		close(x->fd);
	if (x->pidfd >= 0)
		close(x->pidfd);
	buf_free(&x->head);
}

static void
destroy(struct combine *c)
{
	for (int i = 0; i < c->n; i++)
		release_part(&c->parts[i]);
	reduce_free(c->reduction);
	LIST_REMOVE(c, link);
	free(c->parts);
	free(c->name);
	free(c);
}

/* Replies with this error, and frees c. */
static void
refuse(struct combine *c, const struct err *e)
{
	agent_refuse(c->slot, c->tag, e);
	destroy(c);
}

static void
refuse_cancelled(struct combine *c)
{
	struct err e;

	wire_cancelled(&e);
	refuse(c, &e);
}

static void
send_result(struct combine *c)
{
	struct slice head = slice_text(reduce_line(c->reduction));
	struct engine *by = spawn_find(c->slot);
	int fd = fcntl(reduce_result(c->reduction), F_DUPFD_CLOEXEC, 0);
	struct err e = {0};
	off_t size;

	if (fd < 0)
		fail_errno(&e, "the result");
	else if (!by)
		fail(&e, EHOSTDOWN, "the rank is gone");
	if (e.no) {
		if (fd >= 0)
			close(fd);
		refuse(c, &e);
		return;
	}
	size = lseek(fd, 0, SEEK_END);
	reads_whole(object_in_file(by, fd, (uint64_t)size), c->tag, (uint64_t)size + head.n, head);
	destroy(c);
}

/* The reduction has ended. */
static void
on_combined(void *arg, const struct err *e)
{
	struct combine *c = arg;

	c->running = false;
	if (c->cancelled)
		refuse_cancelled(c);
	else if (e->no)
		refuse(c, e);
	else
		send_result(c);
}

static void
run(struct combine *c)
{
	struct shard *shards = xcalloc((size_t)c->n, sizeof(*shards));
	struct err e = {0};

	for (int i = 0; i < c->n && !e.no; i++) {
		struct part *x = &c->parts[i];

		if (c->op == &reduce_same)
			shard_raw(&shards[i], x->rank, &x->source, x->size);
		else
			shard_parse(&shards[i], x->rank, &x->source, x->size, &e);
	}
	if (!e.no)
		c->reduction = reduce_new_part(c->op, c->name, shards, c->n, &e);
	free(shards);
	if (e.no || copy_start(&e) < 0) {
		refuse(c, &e);
		return;
	}
	c->running = true;
	reduce_run(c->reduction, agent.loop, on_combined, c);
}

/* All ranks have replied, or never will. */
static void
all_arrived(struct combine *c)
{
	if (c->cancelled) {
		refuse_cancelled(c);
		return;
	}
	for (int i = 0; i < c->n; i++)
		if (c->parts[i].err.no) {
			refuse(c, &c->parts[i].err);
			return;
		}
	run(c);
}

/* One rank has replied, or never will. */
static void
arrived(struct combine *c, struct part *x)
{
	x->waits = false;
	if (--c->left == 0)
		all_arrived(c);
}

static bool
is_readable(const struct part *x)
{
	return x->size <= x->head.n || (x->pidfd >= 0 && source_permits(&x->source) == 0);
}

/* Requests the next bytes from the rank itself. Returns false if all have arrived. */
static bool
read_more(const struct combine *c, const struct part *x)
{
	uint64_t left = x->size - x->head.n - x->got;

	if (left && engine_of(x))
		conn_send(engine_of(x)->conn, Tread, 0, x->slot, c->own_tag, -1, x->handle, x->got,
		    (uint32_t)MIN(left, (uint64_t)READ_BYTES));
	return left > 0;
}

/* If a rank's memory cannot be read (ptrace rules, seccomp), the rank is asked for the bytes. */
static void
begin_reading(const struct combine *c, struct part *x)
{
	x->fd = memfd_create("ddip-agent", MFD_CLOEXEC);
	if (x->fd < 0)
		fail_errno(&x->err, "rank %d's object: memfd_create", x->rank);
	x->source.kind = SOURCE_FD;
	x->source.fd = x->fd;
	if (!x->err.no)
		read_more(c, x);
}

/* Returns false if more is to come. */
static bool
take_read(const struct combine *c, struct part *x, const struct msg *m)
{
	uint64_t left = x->size - x->head.n - x->got;
	struct slice data = {0};

	if (wire_unpack(m, Rread, &x->err, &data) < 0)
		return true;
	if (!data.n || data.n > left)
		fail(&x->err, EBADMSG, "rank %d gave %zu of %llu bytes", x->rank, data.n,
		    (unsigned long long)left);
	else if (pwrite_all("combine.write", x->fd, data.p, data.n, x->got) < data.n)
		fail_errno(&x->err, "no memory for rank %d's object", x->rank);
	x->got += data.n;
	return x->err.no || c->cancelled || !read_more(c, x);
}

/* Returns false if more is to come. */
static bool
take_bytes(const struct combine *c, struct part *x, struct msg *m)
{
	struct slice head;
	uint64_t addr;
	uint8_t kind;

	if (wire_unpack(m, Rget, &x->err, &kind, &x->handle, &addr, &x->size, &head) < 0)
		return true;
	buf_add(&x->head, head.p, head.n);
	x->source = (struct source){.head = x->head.p, .head_n = x->head.n, .fd = -1};
	if (kind == GET_LIVE) {
		x->source.kind = SOURCE_PROCESS;
		x->source.pid = x->pid;
		x->source.pidfd = x->pidfd;
		x->source.addr = addr;
		if (is_readable(x))
			return true;
		begin_reading(c, x);
		return x->err.no != 0;
	} else if (kind == GET_FD && m->fd >= 0) {
		x->source.kind = SOURCE_FD;
		x->source.fd = x->fd = m->fd;
		m->fd = -1;
	} else if (kind != GET_BYTES) {
		fail(&x->err, EBADMSG, "rank %d's object came without its bytes", x->rank);
	}
	return true;
}

bool
combine_answered(struct engine *e, struct msg *m)
{
	bool whole = true;
	struct combine *c;
	struct part *x;
	int i = 0;

	if (m->tag < OWN_TAGS)
		return false;
	LIST_FOREACH (c, &all, link)
		if (c->own_tag == m->tag)
			break;
	while (c && i < c->n && !(c->parts[i].slot == e->slot && c->parts[i].waits))
		i++;
	if (!c || i == c->n)
		return true;
	x = &c->parts[i];
	if (m->type == Rerror)
		wire_read_error(m, &x->err, NULL);
	else
		whole = x->fd < 0 ? take_bytes(c, x, m) : take_read(c, x, m);
	if (whole)
		arrived(c, x);
	return true;
}

void
combine_ended(const struct engine *e)
{
	struct combine *c, *next;

	for (c = LIST_FIRST(&all); c; c = next) {
		struct part *x = NULL;

		next = LIST_NEXT(c, link);
		for (int i = 0; i < c->n && !x; i++)
			if (c->parts[i].slot == e->slot && c->parts[i].waits)
				x = &c->parts[i];
		if (!x)
			continue;
		fail(&x->err, EHOSTDOWN, "rank %d died", x->rank);
		arrived(c, x);
	}
}

bool
combine_cancel(unsigned slot, uint64_t tag)
{
	struct combine *c;

	LIST_FOREACH (c, &all, link)
		if (c->slot == slot && c->tag == tag)
			break;
	if (!c)
		return false;
	if (c->running && !c->cancelled)
		reduce_cancel(c->reduction);
	for (int i = 0; i < c->n && !c->cancelled; i++)
		if (c->parts[i].waits && engine_of(&c->parts[i]))
			conn_send(engine_of(&c->parts[i])->conn, Ncancel, 0, c->parts[i].slot, 0,
			    -1, c->own_tag);
	c->cancelled = true;
	return true;
}

static void
add_part(struct part *x, struct slice *ranks)
{
	const struct engine *e;
	uint64_t rank, slot;

	wire_get('4', &ranks->p, &ranks->n, &rank, NULL);
	wire_get('4', &ranks->p, &ranks->n, &slot, NULL);
	*x = (struct part){.rank = (int)rank, .slot = (unsigned)slot, .fd = -1, .pidfd = -1};
	e = engine_of(x);
	if (!e || e->state != ENGINE_RUNS) {
		fail(&x->err, EHOSTDOWN, "rank %d is gone", x->rank);
		return;
	}
	x->waits = true;
	x->pid = e->pid;
	/* before it is waited for: it is still that process */
	x->pidfd = (int)syscall(SYS_pidfd_open, e->pid, 0);
}

void
combine_ask(struct msg *m)
{
	struct slice name, view, op, ranks;
	struct combine *c = xcalloc(1, sizeof(*c));
	struct err e = {0};

	*c = (struct combine){.slot = m->slot, .tag = m->tag, .own_tag = OWN_TAGS + last++};
	LIST_INSERT_HEAD(&all, c, link);
	if (wire_unpack(m, Treduce, &e, &name, &view, &op, &ranks) == 0 &&
	    (!(c->op = reduce_by_hosts(op)) || !ranks.n || ranks.n % RANK_SIZE))
		fail(&e, EBADMSG, "Treduce is damaged");
	if (e.no) {
		refuse(c, &e);
		return;
	}
	c->name = slice_dup(name);
	c->n = (int)(ranks.n / RANK_SIZE);
	c->parts = xcalloc((size_t)c->n, sizeof(*c->parts));
	for (int i = 0; i < c->n; i++) {
		struct part *x = &c->parts[i];

		add_part(x, &ranks);
		if (!x->waits)
			continue;
		c->left++;
		conn_send(engine_of(x)->conn, Tget, 0, x->slot, c->own_tag, -1, name, view, op);
	}
	if (c->left == 0)
		all_arrived(c);
}
