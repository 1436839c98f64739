/* What ranks print, as files. The daemon learns of growth by inotify on the index of each spool. */
#include "tree/output_file.h"
#include "base/daemon.h"
#include "host/ticks.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

static int inotify_fd = -1;

static struct {
	int wd;
	struct group *g;
} * watched;

static size_t watched_count;

static int
stream_of(const struct place *at, const struct row *row)
{
	return strstr(row->path, "stderr") ? SPOOL_STDERR : SPOOL_STDOUT;
}

/* ---- what is kept ---- */

static uint64_t
whole_size(const struct rank *k, int stream)
{
	uint64_t size = spool_reader_size(&k->spool, stream);

	return size > k->base[stream] ? size - k->base[stream] : 0;
}

static void
move_base(struct rank *k, int stream, uint64_t base)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	k->base[stream] = base;
	/* the disk gets its room back; offsets stay */
	if (base >= page &&
	    fallocate(k->spool.fd[stream], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		(off_t)(base / page * page)) < 0)
		debug("cell", "fallocate: %s", strerrordesc_np(errno));
}

/* Drops what is there beyond so many bytes. */
static void
trim(struct rank *k, int stream, uint64_t keep)
{
	uint64_t size = whole_size(k, stream);

	if (size <= keep)
		return;
	group_event(k->g, "spool rank=%d stream=%s dropped=%llu", k->number, spool_names[stream],
	    (unsigned long long)(size - keep));
	move_base(k, stream, k->base[stream] + size - keep);
}

void
log_trim(struct group *g)
{
	for (int i = 0; g->set.spool && i < g->size; i++)
		for (int s = 0; s <= SPOOL_STDERR; s++)
			trim(&g->ranks[i], s, (uint64_t)g->set.spool);
}

/* While a cell prints it may be half as much more: not each line is worth an event. */
static void
trim_growing(struct rank *k)
{
	uint64_t keep = (uint64_t)k->g->set.spool;

	for (int s = 0; keep && s <= SPOOL_STDERR; s++)
		if (whole_size(k, s) > keep + keep / 2)
			trim(k, s, keep);
}

/* ---- waking ---- */

void
log_wake(struct group *g)
{
	struct req_list woken = TAILQ_HEAD_INITIALIZER(woken);
	struct req *r;

	TAILQ_CONCAT(&woken, &g->live, link);
	while ((r = TAILQ_FIRST(&woken))) {
		TAILQ_REMOVE(&woken, r, link);
		r->file->ops->read(r->file, r);
	}
	req_wake_pollers();
}

/* Walks the index to its end; tells which streams grew. */
void
log_advance(struct rank *k)
{
	uint64_t before[SPOOL_STREAMS], offset;
	int stream;
	size_t len;

	memcpy(before, k->tail.at.size, sizeof(before));
	while (spool_next(&k->spool, &k->tail, NULL, SIZE_MAX / 2, &stream, &offset, &len))
		;
	for (int s = 0; s <= SPOOL_STDERR; s++) {
		if (k->tail.at.size[s] == before[s])
			continue;
		k->output_time = now_wall();
		ticks_path(TICK_MODIFY, "%s/rank%d/%s", k->g->name, k->number, spool_names[s]);
	}
}

static void
grew(struct group *g, const char *file)
{
	int k;
	char tail[16];

	if (sscanf(file, "rank%d.%15s", &k, tail) != 2 ||
	    strcmp(tail, spool_names[SPOOL_STREAMS]) != 0)
		return;
	if (k >= g->size)
		return;
	log_advance(&g->ranks[k]);
	log_wake(g);
	trim_growing(&g->ranks[k]);
}

static void
on_inotify(void *arg, uint32_t events)
{
	char space[16 << 10] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n = read(inotify_fd, space, sizeof(space));

	for (char *p = space; p < space + n;) {
		const struct inotify_event *ev = (const struct inotify_event *)(const void *)p;

		for (size_t i = 0; i < watched_count; i++)
			if (watched[i].wd == ev->wd && watched[i].g && ev->len)
				grew(watched[i].g, ev->name);
		if (ev->mask & IN_Q_OVERFLOW)
			for (size_t i = 0; i < watched_count; i++)
				for (int k = 0; watched[i].g && k < watched[i].g->size; k++)
					log_advance(&watched[i].g->ranks[k]);
		p += sizeof(*ev) + ev->len;
	}
}

void
log_follow(struct group *g)
{
	size_t i = 0;

	if (inotify_fd < 0) {
		inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
		if (inotify_fd < 0)
			die("inotify: %s", strerrordesc_np(errno));
		loop_fd(daemon_.loop, inotify_fd, EPOLLIN, on_inotify, NULL);
	}
	while (i < watched_count && watched[i].g)
		i++;
	if (i == watched_count)
		watched = xrealloc(watched, ++watched_count * sizeof(*watched));
	watched[i].g = g;
	watched[i].wd = inotify_add_watch(inotify_fd, g->run_dir, IN_MODIFY);
	if (watched[i].wd < 0)
		note("inotify: %s: %s: output of %s will not be seen as it comes", g->run_dir,
		    strerrordesc_np(errno), g->name);
}

void
log_gone(struct group *g)
{
	struct req *r;

	for (size_t i = 0; i < watched_count; i++)
		if (watched[i].g == g) {
			inotify_rm_watch(inotify_fd, watched[i].wd);
			watched[i].g = NULL;
		}
	while ((r = TAILQ_FIRST(&g->live))) {
		TAILQ_REMOVE(&g->live, r, link);
		req_done(r, -ENODEV);
	}
}

/* ---- rankK/stdout, rankK/stderr ---- */

static uint64_t
stdout_size(const struct place *at)
{
	struct rank *k = group_rank(at->g, at->rank);

	return k ? whole_size(k, SPOOL_STDOUT) : 0;
}

static uint64_t
stderr_size(const struct place *at)
{
	struct rank *k = group_rank(at->g, at->rank);

	return k ? whole_size(k, SPOOL_STDERR) : 0;
}

static double
output_mtime(const struct place *at)
{
	struct rank *k = group_rank(at->g, at->rank);

	return k ? k->output_time : 0;
}

static void
output_read(struct file *f, struct req *r)
{
	struct rank *k = group_rank(f->node->at.g, f->node->at.rank);
	int stream = stream_of(&f->node->at, f->node->row);
	struct source s = {.kind = SOURCE_FD};
	uint64_t size;

	if (!k) {
		req_done(r, -ENODEV);
		return;
	}
	size = whole_size(k, stream);
	s.fd = k->spool.fd[stream];
	if (r->offset >= size)
		req_data(r, "", 0);
	else
		req_copy(
		    r, &s, k->base[stream] + r->offset, (size_t)MIN(size - r->offset, r->want));
}

static int
output_truncate(const struct place *at, struct file *f, uint64_t size, struct err *e)
{
	struct rank *k = group_rank(at->g, at->rank);
	const struct row *row = f ? f->node->row : NULL;
	int stream = row ? stream_of(at, row) : SPOOL_STDOUT;

	if (size != 0)
		return fail(e, EINVAL, "output can only be dropped as a whole (: > stdout)");
	if (k)
		move_base(k, stream, spool_reader_size(&k->spool, stream));
	return 0;
}

static ssize_t
output_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	return fail(e, EACCES, "only the ranks write here; `: > stdout` drops what is there");
}

const struct file_ops log_stdout_ops = {
    .read = output_read,
    .write = output_write,
    .size = stdout_size,
    .mtime = output_mtime,
    .truncate = output_truncate,
};

const struct file_ops log_stderr_ops = {
    .read = output_read,
    .write = output_write,
    .size = stderr_size,
    .mtime = output_mtime,
    .truncate = output_truncate,
};

/* ---- cells/N/rankK/stdout, stderr ---- */

/* The range of the spool that belongs to a cell on a rank, less what was dropped. */
static bool
cell_range(const struct place *at, int stream, uint64_t *from, uint64_t *to)
{
	struct job *j = cell_job(at->cell, at->rank);
	struct rank *k = group_rank(at->g, at->rank);

	if (!j || !k || !j->begun)
		return false;
	*from = j->begin.size[stream];
	*to = j->ended ? j->end.size[stream] : spool_reader_size(&k->spool, stream);
	*from = MAX(*from, k->base[stream]);
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
cell_output_read(struct file *f, struct req *r)
{
	const struct place *at = &f->node->at;
	int stream = stream_of(at, f->node->row);
	struct source s = {.kind = SOURCE_FD};
	uint64_t from, to;

	if (!cell_range(at, stream, &from, &to) || r->offset >= to - from) {
		req_data(r, "", 0);
		return;
	}
	s.fd = group_rank(at->g, at->rank)->spool.fd[stream];
	req_copy(r, &s, from + r->offset, (size_t)MIN(to - from - r->offset, r->want));
}

const struct file_ops log_cell_stdout_ops = {.read = cell_output_read, .size = cell_stdout_size};
const struct file_ops log_cell_stderr_ops = {.read = cell_output_read, .size = cell_stderr_size};
