/*
 * Live readers of the ranks' output: their positions in the spools, and the last data formatted for
 * them.
 */
#include "tree/live.h"
#include "base/daemon.h"
#include "group/hooks.h"
#include "group/output.h"
#include "group/registry.h"
#include "group/task.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	PIECE = 64 << 10,    /* bytes read from a spool at once */
	FILL_MAX = 1 << 20,  /* … per turn of the event loop, so that others are served */
	SEEK_BACK = 32 << 10 /* bytes kept before a reader's position */
};

static struct timer *more_timer; /* set: readers wait for output that has already arrived */

static void
live_interrupted(struct req *r, enum interrupt how)
{
	struct group *g = r->waits_for;

	TAILQ_REMOVE(&g->live, r, link);
	req_done(r, -EINTR);
}

void
live_park(struct group *g, struct req *r)
{
	if (g->gone || r->nonblock) {
		req_done(r, g->gone ? -ENODEV : -EAGAIN);
		return;
	}
	r->waits_for = g;
	TAILQ_INSERT_TAIL(&g->live, r, link);
	req_park(r, live_interrupted);
}

struct live *
live_new(int n, live_take_fn *take, live_tell_fn *tell)
{
	struct live *l = xcalloc(1, sizeof(*l));

	l->ranks = xcalloc((size_t)n, sizeof(*l->ranks));
	l->n = n;
	l->take = take;
	l->tell = tell;
	return l;
}

static void
drop_parts(struct live *l)
{
	for (int i = 0; i < l->n; i++)
		for (int s = 0; s < SPOOL_STREAMS; s++)
			buf_free(&l->ranks[i].part[s]);
}

void
live_free(struct live *l)
{
	if (!l)
		return;
	drop_parts(l);
	free(l->ranks);
	buf_free(&l->ready);
	free(l);
}

void
live_release(struct file *f)
{
	live_free(f->state);
}

void
live_tell_lost(struct live *l, struct live_rank *s)
{
	if (s->lost)
		l->tell(l, s->rank, s->lost);
	s->lost = 0;
}

/* Formats one piece of a rank's output into `ready`. Returns false if there is none. */
static bool
pull(struct group *g, struct live *l, struct live_rank *s)
{
	static char piece[PIECE]; /* all callers are on one thread */
	struct rank *k = output_rank(g, s->rank);
	const struct spool_mark *end = s->subtask && s->subtask->ended ? &s->subtask->end : NULL;
	uint64_t offset;
	int stream;
	size_t len;
	ssize_t n;

	if (!k || !s->placed)
		return false;
	s->lost += spool_skip(output_spool(k), &s->at, end);
	if (!spool_next(output_spool(k), &s->at, end, sizeof(piece), &stream, &offset, &len))
		return false;
	if (offset < k->output.base[stream]) { /* dropped: this is a hole now */
		size_t hole = (size_t)MIN(k->output.base[stream] - offset, (uint64_t)len);

		s->lost += hole;
		offset += hole;
		len -= hole;
		if (stream == SPOOL_DISPLAY)
			buf_clear(&s->part[stream]); /* part of a message */
	}
	n = len ? pread(k->output.spool.fd[stream], piece, len, (off_t)offset) : 0;
	if (n <= 0)
		return true;
	live_tell_lost(l, s);
	l->take(l, s, stream, piece, (size_t)n);
	return true;
}

/* Discards data well before an offset that is being read. */
static void
forget(struct live *l, uint64_t offset)
{
	size_t old;

	if (offset < l->base + 2 * SEEK_BACK)
		return;
	old = (size_t)MIN(offset - SEEK_BACK - l->base, (uint64_t)l->ready.n);
	buf_drop(&l->ready, old);
	l->base += old;
}

bool
live_fill(struct group *g, struct live *l, uint64_t from, uint64_t until)
{
	size_t round = (size_t)MAX(l->n, 1) * PIECE;
	bool more = true;

	for (size_t done = 0; more && l->base + l->ready.n < until; done += round) {
		if (done >= FILL_MAX)
			return true;
		more = false;
		for (int i = 0; i < l->n; i++)
			more |= pull(g, l, &l->ranks[i]);
		forget(l, MIN(from, l->base + l->ready.n));
	}
	return false;
}

size_t
live_there(const struct live *l, uint64_t offset)
{
	uint64_t end = l->base + l->ready.n;

	return offset >= l->base && offset < end ? (size_t)(end - offset) : 0;
}

void
live_go_back(struct live *l, uint64_t offset)
{
	struct buf kept = l->ready;
	const char *line = kept.n ? memchr(kept.p, '\n', kept.n) : NULL;
	size_t skip = line ? (size_t)(line - kept.p) + 1 : kept.n;

	l->ready = (struct buf){0};
	if (offset == 0) {
		drop_parts(l);
		for (int i = 0; i < l->n; i++) {
			l->ranks[i].at = l->ranks[i].start;
			l->ranks[i].lost = 0;
		}
		l->finished = l->noticed = false;
	} else {
		l->tell(l, -1, l->base - offset + skip);
		buf_add(&l->ready, kept.p + skip, kept.n - skip);
	}
	l->base = offset;
	buf_free(&kept);
}

uint64_t
live_end_of(const struct req *r)
{
	return r->offset > UINT64_MAX - r->want ? UINT64_MAX : r->offset + r->want;
}

void
live_give(struct live *l, struct req *r)
{
	size_t n = MIN(r->want, live_there(l, r->offset));

	if (n)
		l->next = r->offset + n;
	req_data(r, n ? l->ready.p + (r->offset - l->base) : "", n);
	forget(l, l->next);
}

bool
live_answers(const struct live *l, const struct req *r)
{
	return live_there(l, r->offset) || l->finished || r->offset > l->base + l->ready.n;
}

/* Each parked reader reads again, and is parked again if there is still no data for it. Readers of
 * a rank that the group no longer has get ENODEV, as a new read would. */
static void
wake(struct group *g)
{
	struct req_list woken = TAILQ_HEAD_INITIALIZER(woken);
	struct req *r;

	TAILQ_CONCAT(&woken, &g->live, link);
	while ((r = TAILQ_FIRST(&woken))) {
		TAILQ_REMOVE(&woken, r, link);
		if (place_gone(&r->file->node->at))
			req_done(r, -ENODEV);
		else
			r->file->ops->read(r->file, r);
	}
	req_wake_pollers();
}

/* Continues with readers that asked for more than one turn formats. */
static void
go_on(void *arg)
{
	struct group *g;

	more_timer = NULL;
	TAILQ_FOREACH (g, &groups, link)
		wake(g);
}

void
live_park_more(struct group *g, struct req *r)
{
	if (!more_timer)
		more_timer = loop_timer(daemon_.loop, 0, go_on, NULL);
	live_park(g, r);
}

void
live_read(struct file *f, struct req *r)
{
	struct live *l = f->state;
	struct group *g = f->node->at.g;
	bool more;

	if (r->offset < l->base)
		live_go_back(l, r->offset);
	more = live_fill(g, l, r->offset, live_end_of(r));
	if (more && !live_there(l, r->offset))
		live_park_more(g, r);
	else if (live_answers(l, r))
		live_give(l, r);
	else
		live_park(g, r);
}

unsigned
live_poll(struct file *f)
{
	struct live *l = f->state;

	live_fill(f->node->at.g, l, l->next, l->next + 1);
	return live_there(l, l->next) || l->finished ? EPOLLIN | EPOLLRDNORM : 0;
}

void
live_place_now(struct group *g, struct live_rank *s, int k)
{
	if (k < g->size)
		output_advance(&g->ranks[k]);
	*s = (struct live_rank){.rank = k, .at = g->ranks[k].output.tail, .placed = true};
	s->start = s->at;
}

void
live_init(void)
{
	group_news.output_moved = wake;
}
