/* Files that accept verbs: each line takes effect as it is written. */
#include "tree/ctl_file.h"
#include "group/cell.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/task.h"
#include "tree/caller.h"
#include "tree/ctl.h"
#include "tree/tell.h"
#include "tree/writer.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* Runs each line of a write in turn. If one fails, returns the number of bytes done so far, or
 * -errno if there are none. */
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
			*e = (struct err){0}; /* the retry will report it */
			free(line);
			return (ssize_t)done;
		}
		if (r < 0) {
			journal_fail(f->node->at.g, e, line);
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
	int refs;	     /* of the open file, and of each task that has not ended */
	enum ctl_wait waits; /* of the last verb that sets it */
	struct task *last;   /* ends after those before it, or has failed; NULL: it has ended */
	int task_errno;	     /* of the first task that failed and has not been told */
	bool told;	     /* a waiter has been told the outcome of the task that is ending */
};

/* A task that a verb has made. */
struct ctl_task {
	struct ctl_input *in;
	void (*ended)(struct task *w);
};

static void
input_unref(struct ctl_input *in)
{
	if (--in->refs == 0)
		free(in);
}

static void
ctl_task_ended(struct task *w)
{
	struct ctl_task *t = w->arg;
	struct ctl_input *in = t->in;

	if (in->last == w)
		in->last = NULL;
	if (in->told)
		in->task_errno = 0;
	else if (!in->task_errno)
		in->task_errno = w->err.no;
	in->told = false;
	input_unref(in);
	t->ended(w);
	free(t);
}

/* Once all tasks have ended, waits until the group is in the state that was asked for. */
static int
wait_for_group(struct file *f, struct req *r)
{
	struct ctl_input *in = f->state;
	struct group *g = f->node->at.g;
	bool for_start = in->waits == WAITS_FOR_START;

	in->waits = WAITS_FOR_NOTHING;
	if (!lifecycle_settled(g) && caller_check_group(g, r, &r->err) < 0)
		return -r->err.no;
	return lifecycle_wait(g, r, for_start);
}

/* Answers who waited for the last task. The texts of failures are in `error` already. */
static void
ctl_answer(struct task *w, struct req *r)
{
	struct ctl_input *in = r->file->state;
	int no = in->task_errno ? in->task_errno : w->err.no, result;

	in->told = true;
	if (no)
		in->waits = WAITS_FOR_NOTHING;
	result = no ? -no : wait_for_group(r->file, r);
	if (result != PARKED)
		req_done(r, result);
}

static int
ctl_do(struct file *f, const char *line, struct err *e)
{
	struct ctl_input *in = f->state;
	struct ctl_result res;
	struct ctl_task *t;
	int r = ctl_line(f->node->at.g, line, &res, e);

	if (r < 0)
		return r;
	if (res.waits)
		in->waits = res.waits;
	if (res.task && res.task->done) {
		if (!in->task_errno)
			in->task_errno = res.task->err.no;
	} else if (res.task) {
		t = xcalloc(1, sizeof(*t));
		*t = (struct ctl_task){in, res.task->ended};
		in->refs++;
		in->last = res.task;
		res.task->arg = t;
		res.task->ended = ctl_task_ended;
		res.task->answer = ctl_answer;
	}
	return 0;
}

static int
ctl_open(struct file *f, struct req *r)
{
	struct ctl_input *in = xcalloc(1, sizeof(*in));

	in->refs = 1;
	f->state = in;
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
	static const struct rank_set all; /* empty */
	struct ctl_input *in = f->state;
	int task_errno = in->task_errno;

	if (!in->waits || (f->flags & O_NONBLOCK))
		return 0;
	if (in->last)
		return caller_check(f->node->at.g, r, &all, &r->err) < 0 ? -r->err.no
									 : task_wait(in->last, r);
	in->task_errno = 0;
	if (!task_errno)
		return wait_for_group(f, r);
	in->waits = WAITS_FOR_NOTHING;
	return -task_errno;
}

/* The text of a failure, as `error` has it, or will in a moment. NULL: it has none, as an interrupt
 * by the writer itself. */
static const char *
text_of(const struct file *f, const struct req *r, int result)
{
	const struct ctl_input *in = f->state;

	if (in && in->last && r->waits_for == in->last && *in->last->err.text)
		return in->last->err.text;
	return *r->err.text ? r->err.text : journal_last(f->node->at.g, -result);
}

/* The errno of a verb does not tell what was wrong. */
static bool
ctl_tell(struct req *r, int result)
{
	const char *text = text_of(r->file, r, result);

	return text && tell_text(r, result, text);
}

static int
ctl_flush(struct file *f, struct req *r)
{
	r->on_done = ctl_tell;
	return writer_close(f, r) == WRITER_CLOSES ? ctl_wait(f, r) : 0;
}

static void
ctl_release(struct file *f)
{
	if (f->state)
		input_unref(f->state);
}

const struct file_ops ctl_file_group_ops = {
    .open = ctl_open,
    .write = ctl_write,
    .refused = ctl_tell,
    .flush = ctl_flush,
    .fsync = ctl_wait,
    .release = ctl_release,
    .mtime = writer_mtime,
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

const struct file_ops ctl_file_rank_ops = {.write = rank_ctl_write, .refused = ctl_tell};

static int
cell_ctl_do(struct file *f, const char *line, struct err *e)
{
	return ctl_cell_line(f->node->at.cell, line, e);
}

static ssize_t
cell_ctl_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	return each_line(f, p, n, e, cell_ctl_do);
}

const struct file_ops ctl_file_cell_ops = {.write = cell_ctl_write, .refused = ctl_tell};
