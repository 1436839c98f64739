/* rankK/follow and log: the ranks' output from now on, as it arrives or line by line. */
#include "tree/stream_file.h"
#include "group/output.h"
#include "tree/live.h"
#include <string.h>

enum {
	LINE_MAX_KEPT = 64 << 10, /* bytes; longer lines are split */
	/* of log.last: bytes in all, and limits of a stream's share of them */
	LAST_BYTES = 64 << 10,
	SHARE_MIN = 256,
	SHARE_MAX = 8 << 10
};

static void
tell_text(struct live *l, int rank, uint64_t lost)
{
	buf_addf(&l->ready, "... %llu bytes were dropped ...\n", (unsigned long long)lost);
}

static void
take_raw(struct live *l, struct live_rank *s, int stream, const char *p, size_t n)
{
	if (stream != SPOOL_DISPLAY)
		buf_add(&l->ready, p, n);
}

static int
follow_open(struct file *f, struct req *r)
{
	struct live *l = live_new(1, take_raw, tell_text);

	live_place_now(f->node->at.g, &l->ranks[0], f->node->at.rank);
	f->state = l;
	return 0;
}

const struct file_ops stream_file_follow_ops = {
    .open = follow_open, .read = live_read, .poll = live_poll, .release = live_release};

/* "0: text" for stdout, "0! text" for stderr. */
static void
add_line(struct live *l, const struct live_rank *s, int stream, const char *p, size_t n)
{
	buf_addf(&l->ready, "%d%c ", s->rank, stream == SPOOL_STDERR ? '!' : ':');
	buf_add(&l->ready, p, n);
	buf_addc(&l->ready, '\n');
}

static void
take_lines(struct live *l, struct live_rank *s, int stream, const char *p, size_t n)
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
	int n = output_known(g); /* a rank that returns appends to its old output */
	struct live *l = live_new(MAX(n, 1), take_lines, tell_text);

	l->n = n;
	for (int i = 0; i < n; i++)
		live_place_now(g, &l->ranks[i], i);
	f->state = l;
	return 0;
}

/* Adds ranks that did not exist at open: all of their output is newer. */
static void
add_ranks(const struct group *g, struct live *l)
{
	if (g->size <= l->n)
		return;
	l->ranks = xrealloc(l->ranks, (size_t)g->size * sizeof(*l->ranks));
	for (; l->n < g->size; l->n++)
		l->ranks[l->n] = (struct live_rank){.rank = l->n, .placed = true};
}

static void
all_read(struct file *f, struct req *r)
{
	add_ranks(f->node->at.g, f->state);
	live_read(f, r);
}

static unsigned
all_poll(struct file *f)
{
	add_ranks(f->node->at.g, f->state);
	return live_poll(f);
}

/* The ranks' last lines, one rank after the other. */
int
stream_file_log_last(const struct place *at, struct buf *out, struct err *e)
{
	int n = output_known(at->g);
	size_t share = MIN(LAST_BYTES / (size_t)MAX(n, 1) + SHARE_MIN, (size_t)SHARE_MAX);
	struct live *l = live_new(1, take_lines, tell_text);

	for (int i = 0; i < n && l->ready.n < LAST_BYTES; i++) {
		struct rank *k = output_rank(at->g, i);
		struct live_rank *s = &l->ranks[0];

		for (int stream = SPOOL_STDOUT; k && stream <= SPOOL_STDERR; stream++) {
			struct buf b = {0};
			uint64_t end = spool_reader_size(output_spool(k), stream);

			s->rank = i;
			output_last(k, stream, 0, end, share, &b);
			take_lines(l, s, stream, b.n ? b.p : "", b.n);
			if (s->part[stream].n)
				add_line(l, s, stream, s->part[stream].p, s->part[stream].n);
			buf_free(&s->part[stream]);
			buf_free(&b);
		}
	}
	buf_add(out, l->ready.p, l->ready.n);
	live_free(l);
	return 0;
}

const struct file_ops stream_file_log_ops = {
    .open = all_open, .read = all_read, .poll = all_poll, .release = live_release};
