/* Files that accept verbs: each line takes effect as it is written. */
#include "tree/ctl_file.h"
#include "group/cell.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/task.h"
#include "tree/caller.h"
#include "tree/ctl.h"
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
	enum ctl_wait waits; /* of the last verb that sets it */
	struct task *task;   /* the last one; it clears this pointer when it ends */
	int task_errno;
	void (*ended)(struct task *w);
};

static void
ctl_task_ended(struct task *w)
{
	struct ctl_input *in = w->arg;

	if (in) {
		in->task = NULL;
		in->task_errno = w->err.no;
		in->ended(w);
		return;
	}
	task_free(w);
}

static int
ctl_do(struct file *f, const char *line, struct err *e)
{
	struct ctl_input *in = f->state;
	struct ctl_result res;
	int r = ctl_line(f->node->at.g, line, &res, e);

	if (r < 0)
		return r;
	if (res.waits)
		in->waits = res.waits;
	if (res.task) {
		if (in->task)
			in->task->arg = NULL;
		in->task = res.task;
		in->ended = res.task->ended;
		res.task->arg = in;
		res.task->ended = ctl_task_ended;
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
	enum ctl_wait waits = in->waits;
	int task_errno = in->task_errno;

	if (!waits || (f->flags & O_NONBLOCK))
		return 0;
	if (in->task)
		return caller_check(g, r, NULL, 0, &r->err) < 0 ? -r->err.no
								: task_wait(in->task, r);
	in->waits = WAITS_FOR_NOTHING;
	in->task_errno = 0;
	if (task_errno)
		return -task_errno;
	if (!lifecycle_settled(g) && caller_check_group(g, r, &r->err) < 0)
		return -r->err.no;
	return lifecycle_wait(g, r, waits == WAITS_FOR_START);
}

static int
ctl_flush(struct file *f, struct req *r)
{
	return writer_close(f, r) == WRITER_CLOSES ? ctl_wait(f, r) : 0;
}

static void
ctl_release(struct file *f)
{
	struct ctl_input *in = f->state;

	if (in && in->task) {
		in->task->ended = in->ended;
		in->task->arg = NULL;
	}
	free(in);
}

const struct file_ops ctl_file_group_ops = {
    .open = ctl_open,
    .write = ctl_write,
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

const struct file_ops ctl_file_rank_ops = {.write = rank_ctl_write};

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

const struct file_ops ctl_file_cell_ops = {.write = cell_ctl_write};
