/* What ranks print, as files. The daemon learns of growth by inotify on the index of each spool. */
#include "log.h"
#include "daemon.h"
#include "fuse.h"
#include "json.h"
#include "notify.h"
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

enum { PIECE = 64 << 10, LINE_MAX_KEPT = 64 << 10, SEEK_BACK = 32 << 10 };

static int inotify_fd = -1;
static struct {
	int wd;
	struct group *g;
} *watched;
static size_t watched_count;

static int
stream_of(const struct place *at, const struct row *row)
{
	return strstr(row->path, "stderr") ? SPOOL_STDERR : SPOOL_STDOUT;
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
	fuse_wake_pollers();
}

static void
live_interrupted(struct req *r, enum interrupt how)
{
	struct group *g = r->waits_for;

	TAILQ_REMOVE(&g->live, r, link);
	req_done(r, -EINTR);
}

static void
park(struct group *g, struct req *r)
{
	if (g->gone || (r->file->flags & O_NONBLOCK)) {
		req_done(r, g->gone ? -ENODEV : -EAGAIN);
		return;
	}
	r->waits_for = g;
	TAILQ_INSERT_TAIL(&g->live, r, link);
	req_park(r, live_interrupted);
}

/* Walks the index to its end; tells which streams grew. */
static void
advance_tail(struct rank *k)
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
		notify_path(NOTICE_MODIFY, "%s/rank%d/%s", k->g->name, k->number, spool_names[s]);
	}
}

static void
grew(struct group *g, const char *file)
{
	int k;
	char tail[16];

	if (sscanf(file, "rank%d.%15s", &k, tail) != 2 || strcmp(tail, spool_names[SPOOL_STREAMS]) != 0)
		return;
	if (k >= g->size)
		return;
	advance_tail(&g->ranks[k]);
	log_wake(g);
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
					advance_tail(&watched[i].g->ranks[k]);
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
	if (base >= page && fallocate(k->spool.fd[stream], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				(off_t)(base / page * page)) < 0)
		debug("cell", "fallocate: %s", strerrordesc_np(errno));
}

void
log_trim(struct group *g)
{
	uint64_t keep = (uint64_t)g->set.spool;

	for (int i = 0; keep && i < g->size; i++)
		for (int s = 0; s <= SPOOL_STDERR; s++) {
			uint64_t size = whole_size(&g->ranks[i], s);

			if (size <= keep)
				continue;
			group_event(g, "spool rank=%d stream=%s dropped=%llu", i, spool_names[s],
			    (unsigned long long)(size - keep));
			move_base(&g->ranks[i], s, g->ranks[i].base[s] + size - keep);
		}
}

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
		req_copy(r, &s, k->base[stream] + r->offset, (size_t)MIN(size - r->offset, r->want));
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

/* The range of the spool that belongs to a cell on a rank. */
static bool
cell_range(const struct place *at, int stream, uint64_t *from, uint64_t *to)
{
	struct job *j = cell_job(at->cell, at->rank);
	struct rank *k = group_rank(at->g, at->rank);

	if (!j || !k || !j->begun)
		return false;
	*from = j->begin.size[stream];
	*to = j->ended ? j->end.size[stream] : spool_reader_size(&k->spool, stream);
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

/* ---- live: follow, log, stream ---- */

/* One rank's output, taken in order. */
struct source_rank {
	int rank;
	struct spool_cursor at;
	struct job *job;                       /* of a cell's stream; NULL: everything */
	bool placed;                           /* at is set */
	struct buf part[SPOOL_STREAMS];        /* a line (a character) that is not whole yet */
};

struct live {
	struct source_rank *ranks;
	int n;
	struct buf ready; /* made; what was read stays a while: shells read ahead and seek back */
	uint64_t base, next; /* the file's offset of ready.p[0]; behind the last read */
	bool finished;    /* nothing more will come */
	void (*take)(struct live *l, struct source_rank *s, int stream, const char *p, size_t n);
};

static struct live *
live_new(int n, void (*take)(struct live *, struct source_rank *, int, const char *, size_t))
{
	struct live *l = xcalloc(1, sizeof(*l));

	l->ranks = xcalloc((size_t)n, sizeof(*l->ranks));
	l->n = n;
	l->take = take;
	return l;
}

static void
live_release(struct file *f)
{
	struct live *l = f->state;

	if (!l)
		return;
	for (int i = 0; i < l->n; i++)
		for (int s = 0; s < SPOOL_STREAMS; s++)
			buf_free(&l->ranks[i].part[s]);
	free(l->ranks);
	buf_free(&l->ready);
	free(l);
}

/* Takes one piece of a rank's output into `ready`. False: nothing is there. */
static bool
pull(struct group *g, struct live *l, struct source_rank *s)
{
	char piece[PIECE];
	struct rank *k = group_rank(g, s->rank);
	const struct spool_mark *end = s->job && s->job->ended ? &s->job->end : NULL;
	uint64_t offset;
	int stream;
	size_t len;
	ssize_t n;

	if (!k || !s->placed || !spool_next(&k->spool, &s->at, end, sizeof(piece), &stream, &offset, &len))
		return false;
	n = pread(k->spool.fd[stream], piece, len, (off_t)offset);
	if (n > 0)
		l->take(l, s, stream, piece, (size_t)n);
	return true;
}

/* Makes more until it reaches this offset, ranks in turn. */
static void
fill(struct group *g, struct live *l, uint64_t until)
{
	bool more = true;

	while (more && l->base + l->ready.n < until) {
		more = false;
		for (int i = 0; i < l->n; i++)
			more |= pull(g, l, &l->ranks[i]);
	}
}

/* What is there from an offset on. */
static size_t
there(const struct live *l, uint64_t offset)
{
	uint64_t end = l->base + l->ready.n;

	return offset >= l->base && offset < end ? (size_t)(end - offset) : 0;
}

static void
give(struct live *l, struct req *r)
{
	size_t n = MIN(r->want, there(l, r->offset));

	l->next = r->offset + n;
	req_data(r, l->ready.p + (r->offset - l->base), n);
	if (l->next - l->base > 2 * SEEK_BACK) {
		size_t old = (size_t)(l->next - l->base) - SEEK_BACK;

		buf_drop(&l->ready, old);
		l->base += old;
	}
}

static void
live_read(struct file *f, struct req *r)
{
	struct live *l = f->state;
	struct group *g = f->node->at.g;

	fill(g, l, r->offset + r->want);
	if (there(l, r->offset) || l->finished)
		give(l, r);
	else
		park(g, r);
}

static unsigned
live_poll(struct file *f)
{
	struct live *l = f->state;

	fill(f->node->at.g, l, l->next + 1);
	return there(l, l->next) || l->finished ? EPOLLIN | EPOLLRDNORM : 0;
}

/* A reader begins now: behind what is there. */
static void
place_now(struct group *g, struct source_rank *s, int k)
{
	advance_tail(&g->ranks[k]);
	*s = (struct source_rank){.rank = k, .at = g->ranks[k].tail, .placed = true};
}

static void
take_raw(struct live *l, struct source_rank *s, int stream, const char *p, size_t n)
{
	if (stream != SPOOL_DISPLAY)
		buf_add(&l->ready, p, n);
}

static int
follow_open(struct file *f, struct req *r)
{
	struct live *l = live_new(1, take_raw);

	place_now(f->node->at.g, &l->ranks[0], f->node->at.rank);
	f->state = l;
	return 0;
}

const struct file_ops log_follow_ops = {
    .open = follow_open, .read = live_read, .poll = live_poll, .release = live_release};

/* "0: text" for stdout, "0! text" for stderr. */
static void
add_line(struct live *l, const struct source_rank *s, int stream, const char *p, size_t n)
{
	buf_addf(&l->ready, "%d%c ", s->rank, stream == SPOOL_STDERR ? '!' : ':');
	buf_add(&l->ready, p, n);
	buf_addc(&l->ready, '\n');
}

static void
take_lines(struct live *l, struct source_rank *s, int stream, const char *p, size_t n)
{
	struct buf *part = &s->part[stream];
	const char *end;

	if (stream == SPOOL_DISPLAY)
		return;
	while ((end = memchr(p, '\n', n))) {
		if (part->n) {
			buf_add(part, p, (size_t)(end - p));
			add_line(l, s, stream, part->p, part->n);
			buf_free(part);
		} else {
			add_line(l, s, stream, p, (size_t)(end - p));
		}
		n -= (size_t)(end - p) + 1;
		p = end + 1;
	}
	buf_add(part, p, n);
	if (part->n > LINE_MAX_KEPT) {
		add_line(l, s, stream, part->p, part->n);
		buf_free(part);
	}
}

static int
all_open(struct file *f, struct req *r)
{
	struct group *g = f->node->at.g;
	struct live *l = live_new(MAX(g->size, 1), take_lines);

	l->n = g->size;
	for (int i = 0; i < g->size; i++)
		place_now(g, &l->ranks[i], i);
	f->state = l;
	return 0;
}

const struct file_ops log_all_ops = {
    .open = all_open, .read = live_read, .poll = live_poll, .release = live_release};

/* One message of a cell's stream: printed text as JSON, display lines as they are. */
static void
take_json(struct live *l, struct source_rank *s, int stream, const char *p, size_t n)
{
	struct buf *part = &s->part[stream];
	size_t whole;

	buf_add(part, p, n);
	if (stream == SPOOL_DISPLAY) {
		const char *end = memrchr(part->p, '\n', part->n);

		whole = end ? (size_t)(end - part->p) + 1 : 0;
		buf_add(&l->ready, part->p, whole);
	} else {
		whole = json_whole(part->p, part->n);
		if (whole) {
			buf_addf(&l->ready, "{\"type\":\"stream\",\"name\":\"%s\",\"text\":",
			    spool_names[stream]);
			json_string(&l->ready, part->p, whole);
			buf_addf(&l->ready, ",\"rank\":%d}\n", s->rank);
		}
	}
	buf_drop(part, whole);
}

static int
jsonl_open(struct file *f, struct req *r)
{
	struct cell *c = f->node->at.cell;
	struct live *l = live_new(c->n, take_json);

	for (int i = 0; i < c->n; i++)
		l->ranks[i] = (struct source_rank){.rank = c->ranks[i], .job = &c->w->jobs[i]};
	f->state = l;
	return 0;
}

/* Places readers of ranks that have begun; adds the last message when all is told. */
static void
jsonl_advance(struct cell *c, struct live *l, uint64_t until)
{
	for (int i = 0; i < l->n; i++) {
		struct source_rank *s = &l->ranks[i];

		if (s->placed || !s->job->begun)
			continue;
		s->at = (struct spool_cursor){.at = s->job->begin};
		s->placed = true;
	}
	fill(c->g, l, until);
	if (l->finished || !c->w->done || l->base + l->ready.n >= until)
		return;
	l->finished = true;
	buf_addf(&l->ready, "{\"type\":\"status\",\"cell\":%d,\"state\":\"%s\",\"errno\":\"%s\",\"seconds\":%.6f}\n",
	    c->number, work_state(c->w), c->w->err.no ? err_name(c->w->err.no) : "",
	    c->w->begun ? c->w->t_end - c->w->t_begin : 0.0);
}

static void
jsonl_read(struct file *f, struct req *r)
{
	struct live *l = f->state;

	jsonl_advance(f->node->at.cell, l, r->offset + r->want);
	if (there(l, r->offset) || l->finished)
		give(l, r);
	else
		park(f->node->at.g, r);
}

static unsigned
jsonl_poll(struct file *f)
{
	struct live *l = f->state;

	jsonl_advance(f->node->at.cell, l, l->next + 1);
	return there(l, l->next) || l->finished ? EPOLLIN | EPOLLRDNORM : 0;
}

const struct file_ops log_jsonl_ops = {
    .open = jsonl_open, .read = jsonl_read, .poll = jsonl_poll, .release = live_release};

/* ---- cells/N/wait ---- */

static void
wait_read(struct file *f, struct req *r)
{
	struct cell *c = f->node->at.cell;
	struct buf b = {0};

	if (!c->w->done) {
		park(f->node->at.g, r);
		return;
	}
	cell_status(c, &b);
	req_data(r, b.p + MIN(r->offset, b.n), r->offset < b.n ? MIN(b.n - r->offset, r->want) : 0);
	buf_free(&b);
}

static unsigned
wait_poll(struct file *f)
{
	return f->node->at.cell->w->done ? EPOLLIN | EPOLLRDNORM : 0;
}

const struct file_ops log_wait_ops = {.read = wait_read, .poll = wait_poll};
