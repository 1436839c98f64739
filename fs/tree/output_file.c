/* The ranks' output as files: a rank's stdout and stderr, and a cell's part of them. */
#include "tree/output_file.h"
#include "group/cell.h"
#include "group/output.h"
#include "group/task.h"
#include <errno.h>

/* ---- rankK/stdout, rankK/stderr ---- */

static uint64_t
stdout_size(const struct place *at)
{
	struct rank *k = group_rank(at->g, at->rank);

	return k ? output_size(k, SPOOL_STDOUT) : 0;
}

static uint64_t
stderr_size(const struct place *at)
{
	struct rank *k = group_rank(at->g, at->rank);

	return k ? output_size(k, SPOOL_STDERR) : 0;
}

static double
output_mtime(const struct place *at)
{
	struct rank *k = group_rank(at->g, at->rank);

	return k ? k->output.time : 0;
}

static void
read_output(struct file *f, struct req *r, int stream)
{
	struct rank *k = group_rank(f->node->at.g, f->node->at.rank);
	struct source s = {.kind = SOURCE_FD};
	uint64_t size;

	if (!k) {
		req_done(r, -ENODEV);
		return;
	}
	size = output_size(k, stream);
	s.fd = k->output.spool.fd[stream];
	if (r->offset >= size)
		req_data(r, "", 0);
	else
		req_copy(r, &s, k->output.base[stream] + r->offset,
		    (size_t)MIN(size - r->offset, r->want));
}

static void
stdout_read(struct file *f, struct req *r)
{
	read_output(f, r, SPOOL_STDOUT);
}

static void
stderr_read(struct file *f, struct req *r)
{
	read_output(f, r, SPOOL_STDERR);
}

static int
drop_output(const struct place *at, int stream, uint64_t size, struct err *e)
{
	struct rank *k = group_rank(at->g, at->rank);

	if (size != 0)
		return fail(e, EINVAL, "output can only be dropped as a whole (: > %s)",
		    spool_names[stream]);
	if (k)
		output_drop(k, stream, spool_reader_size(&k->output.spool, stream));
	return 0;
}

static int
stdout_truncate(const struct place *at, struct file *f, uint64_t size, struct err *e)
{
	return drop_output(at, SPOOL_STDOUT, size, e);
}

static int
stderr_truncate(const struct place *at, struct file *f, uint64_t size, struct err *e)
{
	return drop_output(at, SPOOL_STDERR, size, e);
}

static ssize_t
output_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	return fail(e, EACCES, "only the ranks write here; `: > stdout` drops what is there");
}

const struct file_ops output_file_stdout_ops = {
    .read = stdout_read,
    .write = output_write,
    .size = stdout_size,
    .mtime = output_mtime,
    .truncate = stdout_truncate,
};

const struct file_ops output_file_stderr_ops = {
    .read = stderr_read,
    .write = output_write,
    .size = stderr_size,
    .mtime = output_mtime,
    .truncate = stderr_truncate,
};

/* ---- cells/N/rankK/stdout, stderr ---- */

/* The range of the spool that holds the cell's output on a rank, without what was dropped. */
static bool
cell_range(const struct place *at, int stream, uint64_t *from, uint64_t *to)
{
	struct subtask *j = cell_subtask(at->cell, at->rank);
	struct rank *k = output_rank(at->g, at->rank);

	if (!j || !k || !j->begun)
		return false;
	*from = j->begin.size[stream];
	*to = j->ended ? j->end.size[stream] : spool_reader_size(&k->output.spool, stream);
	*from = MAX(*from, k->output.base[stream]);
	*to = MAX(*from, *to);
	return true;
}

static uint64_t
cell_stdout_size(const struct place *at)
{
	uint64_t from, to;

	return cell_range(at, SPOOL_STDOUT, &from, &to) ? to - from : 0;
}

static uint64_t
cell_stderr_size(const struct place *at)
{
	uint64_t from, to;

	return cell_range(at, SPOOL_STDERR, &from, &to) ? to - from : 0;
}

static void
read_cell_output(struct file *f, struct req *r, int stream)
{
	const struct place *at = &f->node->at;
	struct source s = {.kind = SOURCE_FD};
	uint64_t from, to;

	if (!cell_range(at, stream, &from, &to) || r->offset >= to - from) {
		req_data(r, "", 0);
		return;
	}
	s.fd = output_spool(output_rank(at->g, at->rank))->fd[stream];
	req_copy(r, &s, from + r->offset, (size_t)MIN(to - from - r->offset, r->want));
}

static void
cell_stdout_read(struct file *f, struct req *r)
{
	read_cell_output(f, r, SPOOL_STDOUT);
}

static void
cell_stderr_read(struct file *f, struct req *r)
{
	read_cell_output(f, r, SPOOL_STDERR);
}

const struct file_ops output_file_cell_stdout_ops = {
    .read = cell_stdout_read, .size = cell_stdout_size};
const struct file_ops output_file_cell_stderr_ops = {
    .read = cell_stderr_read, .size = cell_stderr_size};
