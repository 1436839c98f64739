/* Objects as files. A rank makes the bytes (engine/values.py); here is who is asked, and how the
 * bytes go on. */
#include "tree/var_file.h"
#include "base/copy.h"
#include "base/daemon.h"
#include "group/external.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/task.h"
#include "host/agent.h"
#include "host/ticks.h"
#include "object/pull.h"
#include "object/var_table.h"
#include "tree/caller.h"
#include "tree/input.h"
#include "tree/staged_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONBLOCK_MS = 50, WRITE_MAX_BITS = 46 };

struct var_file {
	struct file *f;
	struct req *r; /* the open that waits */
	struct timer *patience;
	/* reading */
	struct var_name name;
	struct pull *pull;
	bool waits; /* for a push to this name: among the openings */
	TAILQ_ENTRY(var_file) link;
	/* writing */
	int memfd;
	uint64_t size;
	bool dirty;
};

/* A push that no close waits for: a staged file was renamed. */
struct coming {
	struct work *w;
	TAILQ_ENTRY(coming) link;
};

static TAILQ_HEAD(, coming) comings = TAILQ_HEAD_INITIALIZER(comings);
static TAILQ_HEAD(, var_file) openings = TAILQ_HEAD_INITIALIZER(openings);

static void
var_free(struct var_file *v)
{
	pull_free(v->pull);
	if (v->waits)
		TAILQ_REMOVE(&openings, v, link);
	loop_timer_del(v->patience);
	if (v->memfd >= 0)
		close(v->memfd);
	free(v);
}

/* ---- reading ---- */

/* The open has failed. */
static void
give_up(struct var_file *v, const struct err *e)
{
	struct req *r = v->r;

	v->f->state = NULL;
	var_free(v);
	r->err = *e;
	req_done(r, -r->err.no);
}

static void
open_interrupted(struct req *r, enum interrupt how)
{
	give_up(r->waits_for, &(struct err){.no = EINTR});
}

static void
no_patience(void *arg)
{
	struct var_file *v = arg;

	v->patience = NULL;
	give_up(v, &(struct err){.no = EAGAIN});
}

static void
on_pulled(void *arg, const struct err *e)
{
	struct var_file *v = arg;
	struct err why = *e;
	struct req *r = v->r;

	if (why.no) {
		give_up(v, &why);
		return;
	}
	v->r = NULL;
	loop_timer_del(v->patience);
	v->patience = NULL;
	v->f->node->size = pull_size(v->pull);
	req_done(r, 0);
}

bool
var_is_coming(const struct place *at, const char *name)
{
	int rank = at->rank >= 0 ? at->rank : external_first(at->g);
	struct coming *c;

	/* one behind a running cell takes its time: until then the old object is shown */
	TAILQ_FOREACH (c, &comings, link)
		if (c->w->g == at->g && c->w->begun && strcmp(c->w->name, name) == 0)
			for (int i = 0; i < c->w->n; i++)
				if (at->rank < 0 || c->w->jobs[i].k->number == rank)
					return true;
	return false;
}

/* A lookup has nobody who would tell the path and the text. */
static void
fail_lookup(const struct place *at, const char *name, const struct err *e)
{
	char *path = at->rank < 0 ? xasprintf("%s/vars/%s", at->g->name, name)
				  : xasprintf("%s/rank%d/vars/%s", at->g->name, at->rank, name);

	group_fail(at->g, e, path);
	free(path);
}

/* Not in the rank's table, though it would be if it were there. */
static bool
is_absent(const struct rank *k, const char *name)
{
	/* what begins with _ never is, what a running cell makes not yet: opening will tell */
	return !var_table_find(k->table, name).p && *name != '_' && !group_busy(k->g);
}

int
var_find(const struct place *at, const char *name)
{
	struct rank *k = place_rank(at, NULL);
	struct var_name v;
	struct err e = {0};
	bool bad;

	if (var_is_staging(name))
		return -ENOENT;
	bad = var_parse(name, at->rank < 0, &v, &e) < 0;
	if (!bad && var_is_coming(at, v.name))
		return 0;
	if (!k || !*v.name || is_absent(k, v.name) || (bad && !var_table_find(k->table, v.name).p))
		return -ENOENT;
	if (bad)
		fail_lookup(at, name, &e);
	return bad ? -EINVAL : 0;
}

static void
ask(struct var_file *v)
{
	struct err e = {0};

	if (v->waits)
		TAILQ_REMOVE(&openings, v, link);
	v->waits = false;
	v->pull = pull_new(&v->f->node->at, &v->name, &e);
	if (v->pull)
		pull_start(v->pull, on_pulled, v);
	else
		give_up(v, &e);
}

/* A push that was awaited has ended. */
static void
ask_again(void)
{
	struct var_file *v, *next;

	for (v = TAILQ_FIRST(&openings); v; v = next) {
		next = TAILQ_NEXT(v, link);
		if (!var_is_coming(&v->f->node->at, v->name.name))
			ask(v);
	}
}

static int
begin_read(struct file *f, struct req *r, const struct var_name *name)
{
	struct var_file *v = xcalloc(1, sizeof(*v));

	*v = (struct var_file){.f = f, .r = r, .name = *name, .memfd = -1};
	f->state = v;
	r->waits_for = v;
	if (f->flags & O_NONBLOCK)
		v->patience = loop_timer(daemon_.loop, NONBLOCK_MS, no_patience, v);
	req_park(r, open_interrupted);
	/* a rank that waited for it could be waited for by it: it gets the old object */
	if (var_is_coming(&f->node->at, name->name) && !caller_rank(req_process(r))) {
		v->waits = true;
		TAILQ_INSERT_TAIL(&openings, v, link);
	} else {
		ask(v);
	}
	return PARKED;
}

/* ---- writing ---- */

static int
begin_write(struct file *f, struct req *r)
{
	struct var_file *v = xcalloc(1, sizeof(*v));
	int result;

	*v = (struct var_file){.f = f, .memfd = -1};
	if (!fault("push.memfd", EMFILE))
		v->memfd = memfd_create("ddipfs-push", MFD_CLOEXEC);
	if (v->memfd < 0) {
		result = fail_errno(&r->err, "memfd_create");
		free(v);
		return result;
	}
	f->state = v;
	f->node->size = 0;
	return 0;
}

/* 0, or -EOPNOTSUPP: what is written here is (in parts) for a rank that is external. */
static int
refuse_external(const struct place *at, bool parts, struct err *e)
{
	struct rank *k = place_rank(at, e);

	if (!k)
		return -e->no;
	if (parts && external_any(at->g))
		return fail(e, EOPNOTSUPP, "%s: an external rank would miss its part", at->name);
	return at->rank >= 0 ? external_refuse(k, e) : 0;
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
		return begin_read(f, r, &name);
	}
	if (mode == O_RDWR && !(f->flags & O_TRUNC))
		return fail(&r->err, EOPNOTSUPP,
		    "an object is read or written as a whole: open it for one of both, or with "
		    "O_TRUNC");
	if (f->flags & O_APPEND)
		return fail(&r->err, EOPNOTSUPP,
		    "an object is written as a whole: nothing can be appended to it (> for >>)");
	if (!name.view->writes)
		return fail(&r->err, EOPNOTSUPP, "the view %s can only be read", name.view->name);
	if (name.op && !name.op->writes)
		return fail(
		    &r->err, EOPNOTSUPP, "%s over all ranks can only be read", name.op->name);
	result = refuse_external(&f->node->at, name.op, &r->err);
	if (result == 0)
		result = lifecycle_accepts(f->node->at.g, &r->err);
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
		ssize_t k = fault("push.write", ENOSPC)
				? -1
				: pwrite(v->memfd, p + done, n - done, (off_t)(offset + done));

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

	/* O_TRUNC and truncate(2) of what is not open: the bytes that are written will say what it
	 * shall be */
	if (!v || v->memfd < 0)
		return 0;
	if (fault("push.size", EFBIG) || ftruncate(v->memfd, (off_t)size) < 0)
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

/* The ranks that a name is for: how many, or -ENODEV. */
static int
targets(const struct place *at, int *ranks, struct err *e)
{
	if (!place_rank(at, e))
		return -e->no;
	if (at->rank >= 0) {
		ranks[0] = at->rank;
		return 1;
	}
	return external_own(at->g, ranks);
}

/* A work that pushes a memfd, which it takes over. NULL with e: the group takes none. */
static struct work *
push_work(const struct place *at, int memfd, uint64_t size, struct err *e)
{
	struct group *g = at->g;
	int ranks[MAX_RANKS], n;
	struct var_name name;
	struct work *w;

	if (var_parse(at->name, at->rank < 0, &name, e) < 0 || lifecycle_accepts(g, e) < 0 ||
	    refuse_external(at, name.op, e) < 0 ||
	    (g->life.state == G_NEW && lifecycle_start(g, e) < 0))
		return NULL;
	n = targets(at, ranks, e);
	if (n < 0)
		return NULL;
	w = work_new(g, WORK_PUT, ranks, n);
	w->name = xstrdup(name.name);
	w->view = xstrdup(name.view->name);
	w->op = xstrdup(name.op ? name.op->name : "");
	w->fd_count = 1;
	w->fds = xcalloc(1, sizeof(*w->fds));
	w->sizes = xcalloc(1, sizeof(*w->sizes));
	w->fds[0] = memfd;
	w->sizes[0] = size;
	w->ended = push_ended;
	return w;
}

static int
submit_push(struct file *f, struct req *r, bool waits)
{
	const struct place *at = &f->node->at;
	struct var_file *v = f->state;
	int ranks[MAX_RANKS], n = targets(at, ranks, &r->err);
	struct work *w;

	if (n < 0 || (waits && caller_check(at->g, r, ranks, n, &r->err) < 0))
		return -r->err.no;
	w = push_work(at, v->memfd, v->size, &r->err);
	if (!w)
		return -r->err.no;
	/* the ranks map these very pages: what is written from now on must not be seen there */
	v->memfd = -1;
	v->dirty = false;
	work_submit(w);
	return waits ? work_wait(w, r) : 0;
}

static void
coming_ended(struct work *w)
{
	struct coming *c = w->arg;

	TAILQ_REMOVE(&comings, c, link);
	free(c);
	push_ended(w);
	ask_again();
}

int
var_push_file(const struct place *at, int memfd, uint64_t size, struct err *e)
{
	struct var_name name;
	struct coming *c;
	struct work *w = NULL;

	if (var_parse(at->name, at->rank < 0, &name, e) == 0) {
		if (!name.view->writes || (name.op && !name.op->writes))
			fail(e, EOPNOTSUPP, "%s can only be read", at->name);
		else
			w = push_work(at, memfd, size, e);
	}
	if (!w) {
		close(memfd);
		return -e->no;
	}
	c = xcalloc(1, sizeof(*c));
	c->w = w;
	w->arg = c;
	w->ended = coming_ended;
	TAILQ_INSERT_TAIL(&comings, c, link);
	work_submit(w);
	return 0;
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
	const struct source *s = v && v->pull ? pull_source(v->pull) : &own;
	uint64_t size = v && v->pull ? pull_size(v->pull) : v ? v->size : 0;

	if (r->offset >= size || (s == &own && own.fd < 0))
		req_data(r, "", 0);
	else
		req_copy(r, s, r->offset, (size_t)MIN(size - r->offset, r->want));
}

/* When the ranks last did something: an editor that finds another time than when it read warns. */
static double
var_mtime(const struct place *at)
{
	return MAX(at->g->journal.changed, daemon_.mounted);
}

const struct file_ops var_ops_file = {
    .open = var_open,
    .read = var_read,
    .write = var_write,
    .flush = var_flush,
    .fsync = var_fsync,
    .release = var_release,
    .truncate = var_truncate,
    .mtime = var_mtime,
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
	int ranks[MAX_RANKS], n = targets(at, ranks, e), r = n < 0 ? n : lifecycle_accepts(at->g, e);
	struct work *w;

	if (r < 0 || (r = refuse_external(at, false, e)) < 0)
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
	int r = staged_remove(at);

	if (r == 0 || (r = var_parse(at->name, at->rank < 0, &v, e)) < 0)
		return r;
	if (v.op || *v.view->name)
		return fail(e, EINVAL, "rm takes the variable's name, %s, without a view", v.name);
	return change(at, WORK_DEL, v.name, "", e);
}

int
var_rename(const struct place *from, const struct place *to, struct err *e)
{
	struct var_name a, b;

	if (staged_concerns(from, to))
		return staged_rename(from, to, e);
	if (from->g != to->g || from->rank != to->rank)
		/* not EXDEV: mv(1) would copy the text that people read, and delete the object */
		return fail(e, EOPNOTSUPP,
		    "mv renames within one rank: copy a view to the other, as pkl, and rm it here");
	if (var_parse(from->name, from->rank < 0, &a, e) < 0 ||
	    var_parse(to->name, to->rank < 0, &b, e) < 0)
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

	if (s->r && m && wire_unpack(m, &s->r->err, NULL, NULL, NULL, &text) == 0) {
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
	struct rank *k = place_rank(&f->node->at, &r->err);
	struct stack_open *s;

	if (!k || external_refuse(k, &r->err) < 0)
		return -r->err.no;
	if (k->slot == NO_SLOT || k->state == R_SPAWNING)
		return fail(&r->err, ESRCH, "rank %d has no engine", f->node->at.rank);
	s = xcalloc(1, sizeof(*s));
	*s = (struct stack_open){f, r};
	r->waits_for = s;
	req_park(r, stack_interrupted);
	agent_send(
	    k->g->agent, Tstack, 0, k->slot, agent_tag(k->g->agent, k->slot, on_stack, s), -1);
	return PARKED;
}

const struct file_ops var_stack_ops = {.open = stack_open};
