/*
 * Objects as files. A rank produces the bytes (engine/ddip_engine/data/values.py); this file
 * decides which ranks to ask, and passes the bytes on.
 */
#include "tree/var_file.h"
#include "base/daemon.h"
#include "base/patience.h"
#include "group/external.h"
#include "group/host.h"
#include "group/journal.h"
#include "object/var_table.h"
#include "tree/caller.h"
#include "object/whole.h"
#include "tree/removal.h"
#include "tree/replacement.h"
#include "tree/tell.h"
#include "tree/var_change.h"
#include "tree/var_names.h"
#include "tree/writer.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct var_file {
	struct file *f;
	/* reading */
	struct var_name name;
	struct req *r;		   /* the pending open */
	struct patience *patience; /* of a pending O_NONBLOCK open */
	struct pull *pull;
	bool waits; /* in blocked_opens, until a pending change of this name ends */
	TAILQ_ENTRY(var_file) link;
	/* writing */
	struct var_writer writer;
	struct push push;
	struct var_told *told; /* reports the name's creation; NULL: none, or it is pushed */
	bool writes;
	int failed;	  /* errno of a failed write: the data is incomplete */
	bool interrupted; /* the push of its whole bytes was, and no close has said so yet */
	bool dirty;	  /* has data that was not pushed yet */
	uint64_t stated;  /* the size that the bytes state of themselves; 0: not known */
	bool states;	  /* the last write may have completed what states it */
	bool whole;	  /* started empty: the file holds everything that was written */
	/* nothing was written to it yet: the last close then pushes an empty object */
	bool empty;
};

static TAILQ_HEAD(, var_file) blocked_opens = TAILQ_HEAD_INITIALIZER(blocked_opens);

static void
var_free(struct var_file *v)
{
	pull_free(v->pull);
	if (v->waits)
		TAILQ_REMOVE(&blocked_opens, v, link);
	patience_end(v->patience);
	if (v->writes) {
		if (v->writer.at)
			var_names_close(&v->writer);
		var_ticks_settle(v->told);
		push_close(&v->push);
	}
	free(v);
}

/* ---- reading ---- */

/* Fails the open. */
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
on_open_timeout(void *arg)
{
	struct var_file *v = arg;

	v->patience = NULL;
	give_up(v, &(struct err){.no = EAGAIN});
}

/* Does its text represent the whole object, judging by its type? */
static bool
is_told_whole(const struct place *at, const char *name)
{
	static const char *const types[] = {
	    "str", "int", "float", "bool", "complex", "bytes", "NoneType"};
	struct rank *k = place_rank(at, NULL);
	struct slice row = k ? var_table_find(k->table, name) : (struct slice){NULL, 0};

	for (size_t i = 0; row.p && i < ARRAY_LEN(types); i++)
		if (slice_eq(var_row_column(row, VAR_TYPE), types[i]))
			return true;
	return false;
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
	patience_end(v->patience);
	v->patience = NULL;
	v->f->node->size = pull_size(v->pull);
	if (!*v->name.scope && !*v->name.view->name && !v->name.op &&
	    !is_told_whole(&v->f->node->at, v->name.name))
		removal_text_read(req_process(r), &v->f->node->at, v->name.name);
	req_done(r, 0);
}

static void
ask(struct var_file *v)
{
	struct err e = {0};

	if (v->waits)
		TAILQ_REMOVE(&blocked_opens, v, link);
	v->waits = false;
	v->pull = var_change_pull(&v->f->node->at, &v->name, &e);
	if (v->pull)
		pull_start(v->pull, on_pulled, v);
	else
		give_up(v, &e);
}

/* A change has ended: continues the opens that waited for it. */
static void
ask_again(void)
{
	struct var_file *v, *next;

	for (v = TAILQ_FIRST(&blocked_opens); v; v = next) {
		next = TAILQ_NEXT(v, link);
		if (!var_names_settling(&v->f->node->at, v->name.name))
			ask(v);
	}
}

static int
begin_read(struct file *f, struct req *r, const struct var_name *name)
{
	struct var_file *v;
	struct rank *k = place_rank(&f->node->at, &r->err);

	if (!k)
		return -r->err.no;
	if (!name->view->reads || (name->op && !name->op->reads))
		return fail(&r->err, EOPNOTSUPP, "%s can't be read", f->node->at.name);
	v = xcalloc(1, sizeof(*v));
	*v = (struct var_file){.f = f, .r = r, .name = *name, .push.memfd = -1};
	f->state = v;
	r->waits_for = v;
	if (f->flags & O_NONBLOCK)
		v->patience = patience_begin(host_local_pid(k), on_open_timeout, v);
	req_park(r, open_interrupted);
	/* a rank must not wait here, as the change may wait for that rank: it gets the old
	 * object */
	if (!*name->scope && var_names_settling(&f->node->at, name->name) &&
	    !caller_rank(req_process(r))) {
		var_change_on_settled(ask_again);
		v->waits = true;
		TAILQ_INSERT_TAIL(&blocked_opens, v, link);
	} else {
		ask(v);
	}
	return PARKED;
}

/* ---- writing ---- */

/* The name exists from now on. */
static void
claim_name(struct var_file *v)
{
	struct file *f = v->f;
	const char *name = v->name.name;

	v->writer.at = &f->node->at;
	memcpy(v->writer.name, name, sizeof(v->writer.name));
	replacement_claim(&f->node->at, name, f->opener);
	var_names_open(&v->writer);
	if ((f->flags & O_CREAT) && strcmp(f->node->at.name, name) == 0)
		v->told = var_ticks_told(&f->node->at, name, TICK_CREATE);
}

static int
begin_write(struct file *f, struct req *r, const struct var_name *name)
{
	struct var_file *v;
	struct push push;

	if (push_open(&push, f->node->at.name, &r->err) < 0)
		return -r->err.no;
	v = xcalloc(1, sizeof(*v));
	*v = (struct var_file){.f = f,
	    .name = *name,
	    .writes = true,
	    .push = push,
	    .whole = f->flags & O_TRUNC,
	    .empty = f->flags & O_TRUNC};
	if (!f->node->at.inside)
		claim_name(v);
	f->state = v;
	f->node->size = 0;
	return 0;
}

static int
var_open(struct file *f, struct req *r)
{
	int mode = f->flags & O_ACCMODE;
	struct var_name name;
	int result = var_names_parse(&f->node->at, f->node->at.name, &name, &r->err);

	if (result < 0)
		return result;
	if (mode == O_RDONLY)
		return begin_read(f, r, &name);
	if (mode == O_RDWR && !(f->flags & O_TRUNC))
		return fail(&r->err, EOPNOTSUPP,
		    "an object is read or written as a whole: open it for one of them, or with "
		    "O_TRUNC");
	if (f->flags & O_APPEND)
		return fail(&r->err, EOPNOTSUPP,
		    "an object is written as a whole: nothing can be appended to it (> for >>)");
	result = var_change_check(&f->node->at, &r->err);
	return result < 0 ? result : begin_write(f, r, &name);
}

static struct var_file *
written(struct file *f)
{
	struct var_file *v = f->state;

	return v && v->writes ? v : NULL;
}

static ssize_t
var_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	struct var_file *v = written(f);
	ssize_t k;

	if (v->failed)
		return fail(
		    e, v->failed, "a write before this one failed: write it from its beginning");
	if (!v->whole && offset > v->push.size)
		return fail(e, EINVAL,
		    "an object is written as a whole, from its beginning: nothing is known of what "
		    "lies before byte %llu",
		    (unsigned long long)offset);
	k = push_write(&v->push, p, n, offset, f->node->at.name, e);
	v->failed = k < 0 ? -(int)k : 0;
	if (offset == 0)
		v->stated = 0;
	v->states = k >= 0 && whole_may_state(v->name.view->name, offset, p, n);
	v->dirty |= k >= 0;
	v->empty &= k < 0;
	f->node->size = v->push.size;
	return k;
}

/* Not every program looks at what close(2) says. */
static bool
var_whole(struct file *f)
{
	struct var_file *v = written(f);
	const struct push *p = &v->push;

	if (!v->stated && v->states)
		v->stated = whole_size(push_fd(p), p->filled, v->name.view->name);
	return p->filled == p->size && v->stated == p->size;
}

/* truncate(2) of a name that is not open. */
static int
truncate_name(const struct place *at, uint64_t size, struct err *e)
{
	struct push empty;
	int r;

	if (size > 0)
		return fail(e, EINVAL,
		    "an object is written as a whole: it can't be cut or grown to %llu bytes",
		    (unsigned long long)size);
	if (var_change_check(at, e) < 0 || push_open(&empty, at->name, e) < 0)
		return -e->no;
	r = var_change_push_staged(at, &empty, e) ? 0 : -e->no;
	push_close(&empty);
	return r;
}

static int
var_truncate(const struct place *at, struct file *f, uint64_t size, struct err *e)
{
	struct var_file *v = f ? written(f) : NULL;
	int r;

	if (!v) /* O_TRUNC of a file being opened: its content is yet to be written */
		return f ? 0 : truncate_name(at, size, e);
	if (!v->whole && size > v->push.size)
		return fail(e, EINVAL,
		    "an object is written as a whole: it can't be cut or grown to %llu bytes",
		    (unsigned long long)size);
	r = push_resize(&v->push, size, at->name, e);
	if (r == 0 && size == 0) {
		v->whole = true;
		v->failed = 0;
	}
	v->dirty |= r == 0;
	v->empty &= r < 0;
	f->node->size = v->push.size;
	return r;
}

static int
submit(struct var_file *v, struct req *r, bool waits)
{
	int result;

	if (v->failed) {
		v->dirty = v->empty = false;
		return fail(&r->err, v->failed, "%s was written only in part: nothing is pushed",
		    v->f->node->at.name);
	}
	result = var_change_push(&v->f->node->at, &v->push, &v->told, r, waits);
	v->dirty &= result < 0;
	v->empty = false;
	return result;
}

static int
var_fsync(struct file *f, struct req *r)
{
	struct var_file *v = written(f);

	return v && v->dirty ? submit(v, r, !(f->flags & O_NONBLOCK)) : 0;
}

/* The close says what was interrupted: a program that goes on after a signal writes again what
 * failed with EINTR. */
static bool
completed(struct req *r, int result)
{
	struct var_file *v = written(r->file);

	if (result != -EINTR)
		return false;
	v->interrupted = true;
	r->on_done = NULL;
	req_done(r, 0);
	return true;
}

static int
var_complete(struct file *f, struct req *r)
{
	r->on_done = completed;
	return submit(written(f), r, !(f->flags & O_NONBLOCK));
}

/* The last close. Once it has failed, the release must not push after all. */
static int
submit_at_close(struct var_file *v, struct req *r, bool waits)
{
	int result = submit(v, r, waits);

	v->dirty = v->empty = false;
	return result;
}

static int
var_flush(struct file *f, struct req *r)
{
	struct var_file *v = written(f);

	if (v && v->interrupted) {
		v->interrupted = v->dirty = false;
		return fail(&r->err, EINTR, "%s: the push was interrupted", f->node->at.name);
	}
	if (!v || (!v->dirty && !v->empty))
		return 0;
	r->on_done = tell_closer;
	switch (writer_close(f, r)) {
	case WRITER_STAYS:
		return 0;
	case WRITER_KILLED:
		v->dirty = v->empty = false; /* incomplete data is not pushed */
		return 0;
	case WRITER_EXITS:
		return submit_at_close(v, r, false);
	case WRITER_CLOSES:
		break;
	}
	return submit_at_close(v, r, !(f->flags & O_NONBLOCK));
}

static void
var_release(struct file *f)
{
	struct var_file *v = f->state;
	struct req r = {.file = f};

	if (!v)
		return;
	if ((v->dirty || v->empty) && submit(v, &r, false) < 0) {
		journal_fail(f->node->at.g, &r.err, f->node->at.name);
		tell_error(f, &r.err);
	} else if (r.waits_for) {
		tell_leaver(f, r.waits_for);
	}
	var_free(v);
}

static void
var_read(struct file *f, struct req *r)
{
	struct var_file *v = f->state;
	uint64_t size = v->pull ? pull_size(v->pull) : 0;

	if (!v->pull)
		push_read(&v->push, f->node->at.name, r);
	else if (r->offset >= size)
		req_data(r, "", 0);
	else
		req_copy(
		    r, pull_source(v->pull), r->offset, (size_t)MIN(size - r->offset, r->want));
}

/* The mode allows nothing but reading. */
static int
local_open(struct file *f, struct req *r)
{
	struct var_name name;
	int result = var_names_parse(&f->node->at, f->node->at.name, &name, &r->err);

	return result < 0 ? result : begin_read(f, r, &name);
}

/* The time of the last change in the group: an editor warns if it differs from when it read the
 * file. */
static double
var_mtime(const struct place *at)
{
	return MAX(at->g->journal.changed, daemon_.mounted);
}

const struct file_ops var_ops_file = {
    .open = var_open,
    .read = var_read,
    .write = var_write,
    .whole = var_whole,
    .complete = var_complete,
    .flush = var_flush,
    .fsync = var_fsync,
    .release = var_release,
    .truncate = var_truncate,
    .mtime = var_mtime,
};
const struct file_ops var_ops_local = {
    .open = local_open,
    .read = var_read,
    .release = var_release,
    .mtime = var_mtime,
};
