/*
 * Live readers of what ranks print: rankK/follow, log, a cell's stream and wait. A reader is a set
 * of cursors in the spools; nothing is kept for it but what it was given last.
 */
#include "tree/stream_file.h"
#include "base/json.h"
#include "group/cell.h"
#include "group/hooks.h"
#include "group/output.h"
#include "group/task.h"
#include "tree/caller.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { PIECE = 64 << 10, LINE_MAX_KEPT = 64 << 10, SEEK_BACK = 32 << 10 };

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

/* A read that only the end of a cell is sure to answer. */
static void
park_for_cell(struct cell *c, struct req *r)
{
	if (!(r->file->flags & O_NONBLOCK) && caller_check_cell(c, r, &r->err) < 0)
		req_done(r, -r->err.no);
	else
		park(c->g, r);
}

/* One rank's output, taken in order. */
struct source_rank {
	int rank;
	struct spool_cursor at;
	struct job *job;		/* of a cell's stream; NULL: everything */
	bool placed;			/* at is set */
	struct buf part[SPOOL_STREAMS]; /* a line (a character) that is not whole yet */
};

struct live {
	struct source_rank *ranks;
	int n;
	struct buf ready; /* made; what was read stays a while: shells read ahead and seek back */
	uint64_t base, next; /* the file's offset of ready.p[0]; behind the last read */
	bool finished;	     /* nothing more will come */
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

	if (!k || !s->placed ||
	    !spool_next(&k->output.spool, &s->at, end, sizeof(piece), &stream, &offset, &len))
		return false;
	if (stream <= SPOOL_STDERR && offset < k->output.base[stream]) { /* dropped: a hole now */
		size_t hole = (size_t)MIN(k->output.base[stream] - offset, (uint64_t)len);

		offset += hole;
		len -= hole;
	}
	n = pread(k->output.spool.fd[stream], piece, len, (off_t)offset);
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
	log_advance(&g->ranks[k]);
	*s = (struct source_rank){.rank = k, .at = g->ranks[k].output.tail, .placed = true};
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

const struct file_ops follow_rank_ops = {
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

const struct file_ops follow_all_ops = {
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
			buf_addf(&l->ready,
			    "{\"type\":\"stream\",\"name\":\"%s\",\"text\":", spool_names[stream]);
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
	buf_addf(&l->ready,
	    "{\"type\":\"status\",\"cell\":%d,\"state\":\"%s\",\"errno\":\"%s\",\"seconds\":%.6f}"
	    "\n",
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
		park_for_cell(f->node->at.cell, r);
}

static unsigned
jsonl_poll(struct file *f)
{
	struct live *l = f->state;

	jsonl_advance(f->node->at.cell, l, l->next + 1);
	return there(l, l->next) || l->finished ? EPOLLIN | EPOLLRDNORM : 0;
}

const struct file_ops follow_stream_ops = {
    .open = jsonl_open, .read = jsonl_read, .poll = jsonl_poll, .release = live_release};

/* ---- cells/N/wait ---- */

static void
wait_read(struct file *f, struct req *r)
{
	struct cell *c = f->node->at.cell;
	struct buf b = {0};

	if (!c->w->done) {
		park_for_cell(c, r);
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

const struct file_ops follow_wait_ops = {.read = wait_read, .poll = wait_poll};

/* ---- waking ---- */

/* Each parked reader reads again, and parks again if there is still nothing for it. */
static void
wake(struct group *g)
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

void
stream_file_init(void)
{
	group_hooks.output_moved = wake;
}
