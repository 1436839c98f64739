/* Files that take what is written: a cell is collected and submitted, a line of ctl acts at once.
 */
#include "tree/input.h"
#include "base/words.h"
#include "group/cell.h"
#include "group/external.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/task.h"
#include "host/agent.h"
#include "tree/caller.h"
#include "tree/ctl.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool
input_is_close(const struct file *f, const struct req *r)
{
	pid_t pid = req_process(r);

	/* 0: a foreign pid namespace, where nobody can be told from another */
	return pid == 0 || pid == f->opener;
}

/* ---- cells ---- */

struct cell_input {
	struct buf source;
	int number; /* of the last cell that this descriptor submitted */
	bool told;  /* a read gave the number */
	bool too_large;
};

/* The ranks that this file is for: none means all. */
static int
ranks_of(const struct place *at, int *ranks, struct err *e)
{
	if (at->rank >= 0) {
		struct rank *k = place_rank(at, e);

		ranks[0] = at->rank;
		return !k || external_refuse(k, e) < 0 ? -e->no : 1;
	}
	return at->name ? rank_list(at->name, at->g->size, ranks, e) : 0;
}

static int
cell_open(struct file *f, struct req *r)
{
	if ((f->flags & O_ACCMODE) != O_RDONLY) {
		int ranks[MAX_RANKS], n = lifecycle_accepts(f->node->at.g, &r->err);

		if (n < 0 || (n = ranks_of(&f->node->at, ranks, &r->err)) < 0)
			return n;
	}
	f->state = xcalloc(1, sizeof(struct cell_input));
	return 0;
}

static ssize_t
cell_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	struct cell_input *in = f->state;

	if (in->source.n + n > SOURCE_MAX) {
		in->too_large = true;
		buf_free(&in->source);
	}
	if (in->too_large)
		return fail(
		    e, EFBIG, "a cell has at most %d bytes (import a module instead)", SOURCE_MAX);
	buf_add(&in->source, p, n);
	return (ssize_t)n;
}

/* Submits what was collected. Returns the cell or NULL with e. */
static struct cell *
submit(struct file *f, struct req *r, bool waits, struct err *e)
{
	struct cell_input *in = f->state;
	int ranks[MAX_RANKS], n = ranks_of(&f->node->at, ranks, e);
	struct cell *c = NULL;

	if (n >= 0 && (!waits || caller_check(f->node->at.g, r, ranks, n, e) == 0))
		c = cell_submit(
		    f->node->at.g, ranks, n, (struct slice){in->source.p, in->source.n}, e);
	buf_free(&in->source);
	in->number = c ? c->number : in->number;
	in->told = false;
	return c;
}

static int
submit_and_wait(struct file *f, struct req *r)
{
	struct cell_input *in = f->state;
	bool waits = !(f->flags & O_NONBLOCK);
	struct cell *c;

	if (in->too_large) {
		in->too_large = false;
		return fail(
		    &r->err, EFBIG, "a cell has at most %d bytes: nothing was run", SOURCE_MAX);
	}
	if (in->source.n == 0)
		return 0;
	c = submit(f, r, waits, &r->err);
	if (!c)
		return -r->err.no;
	return waits ? work_wait(c->w, r) : 0;
}

static int
cell_flush(struct file *f, struct req *r)
{
	struct cell_input *in = f->state;
	struct cell *c;
	bool killed;

	if ((in->source.n == 0 && !in->too_large) || !input_is_close(f, r))
		return 0;
	if (!req_exiting(r, &killed))
		return submit_and_wait(f, r);
	if (killed) {
		group_event(f->node->at.g,
		    "discarded bytes=%zu pid=%d killed while it wrote a cell", in->source.n,
		    (int)f->opener);
		buf_free(&in->source);
		return 0;
	}
	/* an exiting process can't be killed while it waits: it goes, the cell runs */
	c = submit(f, r, false, &r->err);
	return c ? 0 : -r->err.no;
}

static void
cell_release(struct file *f)
{
	struct cell_input *in = f->state;
	struct err e = {0};

	if (in && in->source.n && !submit(f, NULL, false, &e))
		group_fail(f->node->at.g, &e, "cell");
	if (in)
		buf_free(&in->source);
	free(in);
}

static void
give_number(struct file *f, struct req *r)
{
	struct cell_input *in = f->state;
	char text[16];
	int n;

	if (in->told) {
		req_data(r, "", 0);
		return;
	}
	n = snprintf(
	    text, sizeof(text), "%d\n", in->number ? in->number : f->node->at.g->history.last);
	in->told = true;
	req_data(r, text, MIN((size_t)n, r->want));
}

static void
cell_read(struct file *f, struct req *r)
{
	struct cell_input *in = f->state;
	struct err e = {0};

	/* a program that writes and then reads on one descriptor means: run it */
	if (in->source.n && !submit(f, r, false, &e)) {
		group_fail(f->node->at.g, &e, "cell");
		req_done(r, -e.no);
		return;
	}
	give_number(f, r);
}

const struct file_ops input_cell_ops = {
    .open = cell_open,
    .read = cell_read,
    .write = cell_write,
    .flush = cell_flush,
    .fsync = submit_and_wait,
    .release = cell_release,
};

/* ---- lines ---- */

/* Does each line of a write in turn. At a bad one: the bytes done so far, or its errno if there are
 * none. */
static ssize_t
each_line(struct file *f, const char *p, size_t n, struct err *e,
    int (*fn)(struct file *f, const char *line, struct err *e))
{
	size_t done = 0;

	while (done < n) {
		const char *end = memchr(p + done, '\n', n - done);
		size_t len = end ? (size_t)(end - p) - done : n - done;
		char *line = xstrndup(p + done, len);
		int r = strlen(line) < len ? fail(e, EINVAL, "a line has no NUL bytes")
					   : fn(f, line, e);

		if (r < 0 && done) {
			*e = (struct err){0}; /* the retry will tell */
			free(line);
			return (ssize_t)done;
		}
		if (r < 0) {
			group_fail(f->node->at.g, e, line);
			e->text[0] = '\0';
			free(line);
			return r;
		}
		free(line);
		done += len + (end != NULL);
	}
	return (ssize_t)done;
}

/* What the close of a ctl waits for. */
struct ctl_input {
	bool waits;
	struct work *work; /* the last one; it clears this when it ends */
	int work_errno;
	void (*ended)(struct work *w);
};

static void
ctl_work_ended(struct work *w)
{
	struct ctl_input *in = w->arg;

	if (in) {
		in->work = NULL;
		in->work_errno = w->err.no;
		in->ended(w);
		return;
	}
	work_free(w);
}

static int
ctl_do(struct file *f, const char *line, struct err *e)
{
	struct ctl_input *in = f->state;
	struct ctl_result res;
	int r = ctl_line(f->node->at.g, line, &res, e);

	if (r < 0)
		return r;
	in->waits |= res.waits;
	if (res.work) {
		if (in->work)
			in->work->arg = NULL;
		in->work = res.work;
		in->ended = res.work->ended;
		res.work->arg = in;
		res.work->ended = ctl_work_ended;
	}
	return 0;
}

static int
ctl_open(struct file *f, struct req *r)
{
	f->state = xcalloc(1, sizeof(struct ctl_input));
	return 0;
}

static ssize_t
ctl_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	return each_line(f, p, n, e, ctl_do);
}

static int
ctl_wait(struct file *f, struct req *r)
{
	struct ctl_input *in = f->state;
	struct group *g = f->node->at.g;
	int work_errno = in->work_errno;

	if (!in->waits || (f->flags & O_NONBLOCK))
		return 0;
	if (in->work)
		return caller_check(g, r, NULL, 0, &r->err) < 0 ? -r->err.no
								: work_wait(in->work, r);
	in->waits = false;
	in->work_errno = 0;
	if (work_errno)
		return -work_errno;
	if (!lifecycle_settled(g) && caller_check_group(g, r, &r->err) < 0)
		return -r->err.no;
	return lifecycle_wait(g, r);
}

static int
ctl_flush(struct file *f, struct req *r)
{
	bool killed;

	return input_is_close(f, r) && !req_exiting(r, &killed) ? ctl_wait(f, r) : 0;
}

static void
ctl_release(struct file *f)
{
	struct ctl_input *in = f->state;

	if (in && in->work) {
		in->work->ended = in->ended;
		in->work->arg = NULL;
	}
	free(in);
}

const struct file_ops input_ctl_ops = {
    .open = ctl_open,
    .write = ctl_write,
    .flush = ctl_flush,
    .fsync = ctl_wait,
    .release = ctl_release,
};

static int
rank_ctl_do(struct file *f, const char *line, struct err *e)
{
	struct rank *k = place_rank(&f->node->at, e);

	return k ? ctl_rank_line(k, line, e) : -e->no;
}

static ssize_t
rank_ctl_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	return each_line(f, p, n, e, rank_ctl_do);
}

const struct file_ops input_rank_ctl_ops = {.write = rank_ctl_write};

static int
cell_ctl_do(struct file *f, const char *line, struct err *e)
{
	char *copy = xstrdup(line), *words[WORDS_MAX];
	int n = words_split(copy, words, WORDS_MAX, e);

	if (n == 1 && strcmp(words[0], "interrupt") == 0)
		work_interrupt(f->node->at.cell->w);
	else if (n > 0)
		n = fail(e, EINVAL, "want interrupt, not '%.80s'", words[0]);
	free(copy);
	return MIN(n, 0);
}

static ssize_t
cell_ctl_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	return each_line(f, p, n, e, cell_ctl_do);
}

const struct file_ops input_cell_ctl_ops = {.write = cell_ctl_write};

/* ---- stdin ---- */

static int
stdin_open(struct file *f, struct req *r)
{
	struct rank *k = place_rank(&f->node->at, &r->err);

	if (!k || external_refuse(k, &r->err) < 0)
		return -r->err.no;
	if (k->slot == NO_SLOT)
		return fail(&r->err, ESRCH, "rank %d has no engine", f->node->at.rank);
	return 0;
}

static ssize_t
stdin_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	struct rank *k = place_rank(&f->node->at, e);

	if (!k)
		return -e->no;
	if (k->slot == NO_SLOT)
		return fail(e, ESRCH, "rank %d has no engine", f->node->at.rank);
	agent_send(k->g->agent, Nstdin, 0, k->slot, 0, -1, ((struct slice){p, n}));
	return (ssize_t)n;
}

const struct file_ops input_stdin_ops = {.open = stdin_open, .write = stdin_write};

/* ---- error ---- */

static int
error_truncate(const struct place *at, struct file *f, uint64_t size, struct err *e)
{
	if (size != 0)
		return fail(e, EINVAL, "`error` can only be cleared as a whole (: > error)");
	journal_clear(at->g);
	return 0;
}

static ssize_t
error_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	return fail(e, EINVAL, "`error` can only be cleared (: > error)");
}

const struct file_ops input_error_ops = {.write = error_write, .truncate = error_truncate};
