/* Objects as files. A rank makes the bytes (engine/values.py); here is who is asked, and how the bytes go on. */
#include "vars.h"
#include "copy.h"
#include "daemon.h"
#include "input.h"
#include "launch.h"
#include "notify.h"
#include "queue.h"
#include "rank.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONBLOCK_MS = 50, WRITE_MAX_BITS = 46 };

/* What one rank gave for an open file. */
struct got {
	struct var_file *v;
	struct rank *k;
	int slot;        /* of the process that gave it */
	bool asked, there;
	uint32_t handle; /* to be freed; 0: none */
	struct buf head;
	int fd;
	struct source source;
	uint64_t size;
	struct err err;
};

struct var_file {
	struct file *f;  /* NULL: closed before the answer came */
	struct req *r;   /* the open that waits */
	struct timer *patience;
	struct got *got;
	int n, left;
	/* writing */
	int memfd;
	uint64_t size;
	bool dirty, fresh;
};

/* ---- reading ---- */

static void
got_free(struct got *x)
{
	struct agent *a = x->k ? x->k->g->agent : NULL;

	if (x->handle && a && a->conn && x->k->slot == x->slot)
		agent_send(a, Nfree, 0, x->slot, 0, -1, x->handle);
	if (x->fd >= 0)
		close(x->fd);
	buf_free(&x->head);
}

static void
var_free(struct var_file *v)
{
	for (int i = 0; i < v->n; i++)
		got_free(&v->got[i]);
	loop_timer_del(v->patience);
	free(v->got);
	if (v->memfd >= 0)
		close(v->memfd);
	free(v);
}

static int
take_bytes(struct got *x, struct msg *m)
{
	struct slice head;
	uint64_t addr;
	uint8_t kind;
	int r = wire_unpack(m, &x->err, &kind, &x->handle, &addr, &x->size, &head);

	if (r < 0)
		return r;
	buf_add(&x->head, head.p, head.n);
	x->source = (struct source){.head = x->head.p, .head_n = x->head.n, .fd = -1};
	if (kind == GET_FD) {
		x->fd = m->fd;
		m->fd = -1;
		x->source.kind = SOURCE_FD;
		x->source.fd = x->fd;
	} else if (kind == GET_LIVE) {
		char probe;

		x->source.kind = SOURCE_PROCESS;
		x->source.pid = x->k->pid;
		x->source.addr = addr;
		/* forbidden here (ptrace rules)? Better now than in the middle of a read */
		if (x->size > x->head.n && copy_read(&x->source, x->head.n, &probe, 1) < 0)
			return fail(&x->err, EPERM,
			    "rank %d's memory can't be read from here: allow ptrace for your own processes",
			    x->k->number);
	}
	return 0;
}

/* All ranks' bytes are one and the same, or ENOTUNIQ. */
static int
check_same(struct var_file *v, struct err *e)
{
	enum { PIECE = 256 << 10 };
	char *a = xmalloc(PIECE), *b = xmalloc(PIECE);
	int differs = 0;

	for (int i = 1; i < v->n && !differs; i++) {
		uint64_t at = 0, size = v->got[0].size;

		if (v->got[i].size != size)
			differs = i;
		while (at < size && !differs) {
			size_t n = (size_t)MIN(size - at, (uint64_t)PIECE);
			ssize_t na = copy_read(&v->got[0].source, at, a, n);
			ssize_t nb = copy_read(&v->got[i].source, at, b, n);

			if (na != (ssize_t)n || nb != na || memcmp(a, b, n) != 0)
				differs = i;
			at += n;
		}
	}
	free(a);
	free(b);
	return differs ? fail(e, ENOTUNIQ, "%s: rank %d has another value than rank %d",
			     v->f->node->at.name, v->got[differs].k->number, v->got[0].k->number)
		       : 0;
}

/* Everybody has answered: the open may go on. */
static void
opened(struct var_file *v)
{
	struct req *r = v->r;
	int result = 0;

	v->r = NULL;
	loop_timer_del(v->patience);
	v->patience = NULL;
	if (!v->f || !r) {
		var_free(v);
		return;
	}
	for (int i = 0; i < v->n && !result; i++)
		if (v->got[i].err.no) {
			r->err = v->got[i].err;
			result = -r->err.no;
		}
	if (!result && v->n > 1)
		result = check_same(v, &r->err);
	if (result) {
		v->f->state = NULL;
		var_free(v);
	} else {
		v->f->node->size = v->got[0].size;
	}
	req_done(r, result);
}

static void
on_got(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct got *x = arg;

	x->there = true;
	if (!m)
		x->err = *e;
	else
		take_bytes(x, m);
	if (--x->v->left == 0)
		opened(x->v);
}

/* The open is over for its caller; the answers are still on the way. */
static void
give_up(struct var_file *v, int error)
{
	struct req *r = v->r;

	loop_timer_del(v->patience);
	v->patience = NULL;
	v->r = NULL;
	v->f->state = NULL;
	v->f = NULL;
	req_done(r, -error);
}

static void
open_interrupted(struct req *r, enum interrupt how)
{
	give_up(r->waits_for, EINTR);
}

static void
no_patience(void *arg)
{
	struct var_file *v = arg;

	v->patience = NULL;
	give_up(v, EAGAIN);
}

static int
ask(struct file *f, struct req *r, const struct var_name *name)
{
	struct group *g = f->node->at.g;
	int first = MAX(f->node->at.rank, 0), n = name->op ? g->size : 1;
	struct var_file *v;

	for (int i = first; i < first + n; i++) {
		struct rank *k = group_rank(g, i);

		if (!k || (k->state != R_READY && k->state != R_INIT))
			return fail(&r->err, ESRCH, "rank %d has no engine that could answer (echo start > %s/ctl)",
			    i, g->name);
	}
	v = xcalloc(1, sizeof(*v));
	*v = (struct var_file){.f = f, .r = r, .n = n, .left = n, .memfd = -1};
	v->got = xcalloc((size_t)n, sizeof(*v->got));
	f->state = v;
	r->waits_for = v;
	if (f->flags & O_NONBLOCK)
		v->patience = loop_timer(daemon_.loop, NONBLOCK_MS, no_patience, v);
	req_park(r, open_interrupted);
	for (int i = 0; i < n; i++) {
		struct rank *k = &g->ranks[first + i];

		v->got[i] = (struct got){.v = v, .k = k, .slot = k->slot, .fd = -1};
		agent_send(g->agent, Tget, 0, k->slot, agent_tag(g->agent, k->slot, on_got, &v->got[i]), -1,
		    ((struct slice){name->name, strlen(name->name)}),
		    ((struct slice){name->view->name, strlen(name->view->name)}), ((struct slice){"", 0}));
	}
	return PARKED;
}

/* ---- writing ---- */

static int
begin_write(struct file *f, struct req *r)
{
	struct var_file *v = xcalloc(1, sizeof(*v));
	int result;

	*v = (struct var_file){.f = f, .memfd = memfd_create("ddipfs-push", MFD_CLOEXEC)};
	if (v->memfd < 0) {
		result = fail_errno(&r->err, "memfd_create");
		free(v);
		return result;
	}
	f->state = v;
	f->node->size = 0;
	return 0;
}

static int
var_open(struct file *f, struct req *r)
{
	int mode = f->flags & O_ACCMODE;
	struct var_name name;
	int result = var_parse(f->node->at.name, f->node->at.rank < 0, &name, &r->err);

	if (result < 0)
		return result;
	if (mode == O_RDONLY) {
		if (!name.view->reads || (name.op && !name.op->reads))
			return fail(&r->err, EOPNOTSUPP, "%s can't be read", f->node->at.name);
		return ask(f, r, &name);
	}
	if (mode == O_RDWR && !(f->flags & O_TRUNC))
		return fail(&r->err, EOPNOTSUPP,
		    "an object is read or written as a whole: open it for one of both, or with O_TRUNC");
	if (!name.view->writes)
		return fail(&r->err, EOPNOTSUPP, "the view %s can only be read", name.view->name);
	if (name.op)
		return fail(&r->err, EINVAL, "%s over all ranks can only be read", name.op->name);
	result = group_accepts(f->node->at.g, &r->err);
	return result < 0 ? result : begin_write(f, r);
}

static ssize_t
var_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	struct var_file *v = f->state;
	size_t done = 0;

	if (offset + n > (uint64_t)1 << WRITE_MAX_BITS)
		return fail(e, EFBIG, "an object has at most %d TiB", 1 << (WRITE_MAX_BITS - 40));
	while (done < n) {
		ssize_t k = pwrite(v->memfd, p + done, n - done, (off_t)(offset + done));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return fail_errno(e, "no room for %zu bytes of %s", n, f->node->at.name);
		done += (size_t)k;
	}
	v->size = MAX(v->size, offset + n);
	v->dirty = true;
	f->node->size = v->size;
	return (ssize_t)n;
}

static int
var_truncate(const struct place *at, struct file *f, uint64_t size, struct err *e)
{
	struct var_file *v = f ? f->state : NULL;

	/* O_TRUNC and truncate(2) of what is not open: the bytes that are written will say what it shall be */
	if (!v || v->memfd < 0)
		return 0;
	if (ftruncate(v->memfd, (off_t)size) < 0)
		return fail_errno(e, "ftruncate");
	v->size = f->node->size = size;
	v->dirty |= size > 0;
	return 0;
}

static void
push_ended(struct work *w)
{
	struct group *g = w->g;

	if (w->err.no)
		group_fail(g, &w->err, w->name);
	work_free(w);
}

/* The ranks that a name is for. */
static int
targets(const struct place *at, int *ranks)
{
	int n = 0;

	if (at->rank >= 0) {
		ranks[0] = at->rank;
		return 1;
	}
	for (; n < at->g->size; n++)
		ranks[n] = n;
	return n;
}

static int
submit_push(struct file *f, struct req *r, bool waits)
{
	struct group *g = f->node->at.g;
	struct var_file *v = f->state;
	int ranks[MAX_RANKS], n;
	struct var_name name;
	struct work *w;
	int result = group_accepts(g, &r->err);

	if (result < 0)
		return result;
	if (g->state == G_NEW && (result = group_start(g, &r->err)) < 0)
		return result;
	var_parse(f->node->at.name, f->node->at.rank < 0, &name, NULL);
	n = targets(&f->node->at, ranks);
	if (waits && (result = input_check_caller(g, r, ranks, n, &r->err)) < 0)
		return result;
	w = work_new(g, WORK_PUT, ranks, n);
	w->name = xstrdup(name.name);
	w->view = xstrdup(name.view->name);
	w->op = xstrdup("");
	w->fd_count = 1;
	w->fds = xcalloc(1, sizeof(*w->fds));
	w->sizes = xcalloc(1, sizeof(*w->sizes));
	w->fds[0] = v->memfd;
	w->sizes[0] = v->size;
	w->ended = push_ended;
	/* the ranks map these very pages: what is written from now on must not be seen there */
	v->memfd = -1;
	v->dirty = false;
	work_submit(w);
	return waits ? work_wait(w, r) : 0;
}

static int
var_fsync(struct file *f, struct req *r)
{
	struct var_file *v = f->state;

	if (!v || !v->dirty)
		return 0;
	return submit_push(f, r, !(f->flags & O_NONBLOCK));
}

static int
var_flush(struct file *f, struct req *r)
{
	struct var_file *v = f->state;
	bool killed;

	if (!v || !v->dirty || !input_is_close(f, r))
		return 0;
	if (!req_exiting(r, &killed))
		return var_fsync(f, r);
	if (killed) {
		v->dirty = false; /* half an object is none */
		return 0;
	}
	return submit_push(f, r, false);
}

static void
var_release(struct file *f)
{
	struct var_file *v = f->state;
	struct req r = {.file = f};

	if (!v)
		return;
	if (v->dirty && submit_push(f, &r, false) < 0)
		group_fail(f->node->at.g, &r.err, f->node->at.name);
	var_free(v);
}

static void
var_read(struct file *f, struct req *r)
{
	struct var_file *v = f->state;
	struct source own = {.kind = SOURCE_FD, .fd = v ? v->memfd : -1};
	const struct source *s = v && v->n ? &v->got[0].source : &own;
	uint64_t size = v && v->n ? v->got[0].size : v ? v->size : 0;

	if (r->offset >= size || (!v->n && own.fd < 0))
		req_data(r, "", 0);
	else
		req_copy(r, s, r->offset, (size_t)MIN(size - r->offset, r->want));
}

const struct file_ops var_ops_file = {
    .open = var_open,
    .read = var_read,
    .write = var_write,
    .flush = var_flush,
    .fsync = var_fsync,
    .release = var_release,
    .truncate = var_truncate,
};

/* ---- rm, mv ---- */

static void
change_ended(struct work *w)
{
	push_ended(w);
}

static int
change(const struct place *at, enum work_kind kind, const char *name, const char *to, struct err *e)
{
	int ranks[MAX_RANKS], n = targets(at, ranks), r = group_accepts(at->g, e);
	struct work *w;

	if (r < 0)
		return r;
	w = work_new(at->g, kind, ranks, n);
	w->name = xstrdup(name);
	w->to = xstrdup(to);
	w->ended = change_ended;
	work_submit(w);
	return 0;
}

int
var_remove(const struct place *at, struct err *e)
{
	struct var_name v;
	int r = var_parse(at->name, at->rank < 0, &v, e);

	if (r < 0)
		return r;
	if (v.op || *v.view->name)
		return fail(e, EINVAL, "rm takes the variable's name, %s, without a view", v.name);
	return change(at, WORK_DEL, v.name, "", e);
}

int
var_rename(const struct place *from, const struct place *to, struct err *e)
{
	struct var_name a, b;

	if (from->g != to->g || from->rank != to->rank)
		return fail(e, EXDEV, "mv renames within one rank; cp copies to another");
	if (var_parse(from->name, from->rank < 0, &a, e) < 0 || var_parse(to->name, to->rank < 0, &b, e) < 0)
		return -e->no;
	if (a.op || b.op || *a.view->name || *b.view->name)
		return fail(e, EINVAL, "mv takes variables' names without views");
	return change(from, WORK_MOVE, a.name, b.name, e);
}

/* ---- stack ---- */

struct stack_open {
	struct file *f;
	struct req *r; /* NULL: nobody waits any more */
};

static void
on_stack(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct stack_open *s = arg;
	struct slice text;

	if (s->r && m && wire_unpack(m, &s->r->err, &text) == 0) {
		buf_add(&s->f->text, text.p, text.n);
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
stack_open(struct file *f, struct req *r)
{
	struct rank *k = group_rank(f->node->at.g, f->node->at.rank);
	struct stack_open *s;

	if (!k || k->slot == NO_SLOT || k->state == R_SPAWNING)
		return fail(&r->err, ESRCH, "rank %d has no engine", f->node->at.rank);
	s = xcalloc(1, sizeof(*s));
	*s = (struct stack_open){f, r};
	r->waits_for = s;
	req_park(r, stack_interrupted);
	agent_send(k->g->agent, Tstack, 0, k->slot, agent_tag(k->g->agent, k->slot, on_stack, s), -1);
	return PARKED;
}

const struct file_ops var_stack_ops = {.open = stack_open};
