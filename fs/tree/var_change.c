/* Changes of variables: which ranks they apply to, and whether they are allowed. */
#include "tree/var_change.h"
#include "group/external.h"
#include "group/host.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/task.h"
#include "tree/caller.h"
#include "tree/frame_file.h"
#include "tree/removal.h"
#include "tree/replacement.h"
#include "tree/var_names.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void (*on_settled)(void);

void
var_change_on_settled(void (*fn)(void))
{
	on_settled = fn;
}

/* Stores the ranks that a name refers to. Returns 0, or -ENODEV with *e set. */
static int
targets(const struct place *at, struct rank_set *ranks, struct err *e)
{
	*ranks = (struct rank_set){0};
	if (!place_rank(at, e))
		return -e->no;
	if (at->rank < 0)
		external_own(at->g, ranks);
	else
		rank_set_add(ranks, at->rank);
	return 0;
}

/* Returns 0, or -EOPNOTSUPP if what is written (or a part of it) is for an external rank. */
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
parse_writable(const struct place *at, struct var_name *name, struct err *e)
{
	if (var_names_parse(at, at->name, name, e) < 0)
		return -e->no;
	if (!name->view->writes)
		return fail(
		    e, EOPNOTSUPP, "%s: the view %s can only be read", at->name, name->view->name);
	if (name->op && !name->op->writes)
		return fail(e, EOPNOTSUPP, "%s: %s over all ranks can only be read", at->name,
		    name->op->name);
	return refuse_external(at, name->op, e);
}

int
var_change_check(const struct place *at, struct err *e)
{
	struct var_name name;

	return parse_writable(at, &name, e) < 0 ? -e->no : lifecycle_accepts(at->g, e);
}

/* The events of a change that the kernel has already reported: the name removed, the name
 * created. */
struct names_told {
	struct var_told *gone, *made;
};

static void
change_ended(struct task *w)
{
	struct names_told *told = w->arg;

	if (w->err.no)
		journal_fail(w->g, &w->err, w->payload.name);
	var_ticks_settle(told->gone);
	var_ticks_settle(told->made);
	free(told);
	task_free(w);
	if (on_settled)
		on_settled();
}

/* A task for the ranks of a place. NULL with e if the group accepts none. */
static struct task *
change_new(const struct place *at, enum task_kind kind, const char *name, struct err *e)
{
	struct rank_set ranks;
	struct task *w;

	if (targets(at, &ranks, e) < 0 || lifecycle_accepts(at->g, e) < 0)
		return NULL;
	w = task_new(at->g, kind, &ranks);
	w->payload.name = xstrdup(name);
	w->arg = xcalloc(1, sizeof(struct names_told));
	w->ended = change_ended;
	return w;
}

/* ---- pushes ---- */

static struct task *
push_new(const struct place *at, struct push *p, struct err *e)
{
	struct var_name name;
	struct task *w = NULL;
	struct buf shown = {0};
	int fd;

	if (parse_writable(at, &name, e) < 0 || lifecycle_accepts(at->g, e) < 0 ||
	    (at->g->life.state == G_NEW && lifecycle_start(at->g, e) < 0))
		return NULL;
	fd = push_share(p, at->name, e);
	if (at->inside) {
		frame_file_print_inside(at, &shown);
		buf_addc(&shown, '/');
	}
	buf_adds(&shown, name.name);
	if (fd >= 0)
		w = change_new(at, TASK_PUT, shown.p, e);
	buf_free(&shown);
	if (!w) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	if (at->inside)
		w->payload.path = xasprintf("%s%s", name.scope, name.name);
	w->payload.view = xstrdup(name.view->name);
	w->payload.op = xstrdup(name.op ? name.op->name : "");
	w->payload.fd_count = 1;
	w->payload.fds = xcalloc(1, sizeof(*w->payload.fds));
	w->payload.sizes = xcalloc(1, sizeof(*w->payload.sizes));
	w->payload.fds[0] = fd;
	w->payload.sizes[0] = p->size;
	return w;
}

int
var_change_push(
    const struct place *at, struct push *p, struct var_told **told, struct req *r, bool waits)
{
	struct rank_set ranks;
	struct task *w;

	if (targets(at, &ranks, &r->err) < 0 ||
	    (waits && caller_check(at->g, r, &ranks, &r->err) < 0))
		return -r->err.no;
	w = push_new(at, p, &r->err);
	if (!w)
		return -r->err.no;
	((struct names_told *)w->arg)->made = *told;
	*told = NULL;
	task_set_owner(w, waits ? req_process(r) : r->file->opener, r->file->opener_uid, NULL);
	r->waits_for = w;
	task_submit(w);
	return waits ? task_wait(w, r) : 0;
}

struct task *
var_change_push_staged(const struct place *at, struct push *p, struct err *e)
{
	struct task *w = push_new(at, p, e);

	if (!w)
		return NULL;
	if (strcmp(at->name, w->payload.name) == 0)
		((struct names_told *)w->arg)->made =
		    var_ticks_told(at, w->payload.name, TICK_CREATE);
	task_submit(w);
	return w;
}

/* ---- rm, mv ---- */

/* known: the kernel has notified the name's watchers. */
static int
submit_removal(const struct place *at, const char *name, bool known, struct err *e)
{
	struct task *w = change_new(at, TASK_DEL, name, e);

	if (!w)
		return -e->no;
	if (known)
		((struct names_told *)w->arg)->gone = var_ticks_told(at, name, TICK_DELETE);
	w->payload.to = xstrdup("");
	task_submit(w);
	return 0;
}

/* The removed view was not written again: removes the variable. */
static void
remove_at_last(const struct place *at, const char *name)
{
	struct err e = {0};

	if (!place_gone(at) && submit_removal(at, name, false, &e) < 0)
		journal_fail(at->g, &e, name);
}

int
var_change_remove(const struct place *at, pid_t process, struct err *e)
{
	struct var_name v;

	if (var_parse(at->name, at->rank < 0, &v, e) < 0)
		return -e->no;
	if (v.op || !v.view->writes)
		return fail(e, EOPNOTSUPP, "%s can't be removed: rm takes the variable, %s",
		    at->name, v.name);
	if (removal_check(process, at, v.name, e) < 0 || refuse_external(at, false, e) < 0 ||
	    lifecycle_accepts(at->g, e) < 0)
		return -e->no;
	if (*v.view->name && process) {
		replacement_expect(at, v.name, process, remove_at_last);
		return 0;
	}
	return submit_removal(at, v.name, !*v.view->name, e);
}

int
var_change_rename(const struct place *from, const struct place *to, struct err *e)
{
	struct var_name a, b;
	struct task *w;

	if (from->g != to->g || from->rank != to->rank)
		/* not EXDEV: mv(1) would copy the human-readable text, and delete the object */
		return fail(e, EOPNOTSUPP,
		    "mv renames within one rank: copy a view to the other, as pkl, and rm it here");
	if (var_parse(from->name, from->rank < 0, &a, e) < 0 ||
	    var_parse(to->name, to->rank < 0, &b, e) < 0)
		return -e->no;
	if (a.op || b.op || *a.view->name || *b.view->name)
		return fail(e, EINVAL, "mv takes variables' names without views");
	if (refuse_external(from, false, e) < 0 || !(w = change_new(from, TASK_MOVE, a.name, e)))
		return -e->no;
	w->payload.to = xstrdup(b.name);
	*(struct names_told *)w->arg = (struct names_told){
	    var_ticks_told(from, a.name, TICK_DELETE), var_ticks_told(to, b.name, TICK_CREATE)};
	task_submit(w);
	return 0;
}

/* ---- pulls ---- */

/* Returns 0, or -errno if this rank cannot be asked for an object. */
static int
fill_pull_rank(struct rank *k, bool sees_one, struct pull_rank *out, struct err *e)
{
	struct group *g = k->g;

	if (external_refuse(k, e) < 0)
		return -e->no;
	if ((k->state != R_READY && k->state != R_INIT) ||
	    !agent_slot_lives(rank_agent(k), k->slot))
		return fail(e, ESRCH,
		    "rank %d has no engine that could answer (echo start > %s/ctl)", k->number,
		    g->name);
	*out = (struct pull_rank){k->number, rank_agent(k), k->slot, host_local_pid(k), sees_one};
	return 0;
}

struct pull *
var_change_pull(const struct place *at, const struct var_name *name, struct err *e)
{
	struct rank_set own;
	struct pull_rank *ranks;
	bool sees_one;
	int n = 0;

	if (targets(at, &own, e) < 0)
		return NULL;
	sees_one = name->op && host_env_sees_one(at->g); /* which only OPs need to know */
	ranks = xcalloc((size_t)rank_set_count(&own), sizeof(*ranks));
	RANK_SET_EACH (rank, &own) {
		if (!name->op && n > 0)
			break;
		if (fill_pull_rank(group_rank(at->g, rank), sees_one, &ranks[n++], e) < 0) {
			free(ranks);
			return NULL;
		}
	}
	return pull_new(ranks, n, name);
}
