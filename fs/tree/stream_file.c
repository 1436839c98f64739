/* rankK/follow and log: the ranks' output from now on, as it arrives or line by line. */
#include "tree/stream_file.h"
#include "group/arrivals.h"
#include "group/output.h"
#include "tree/live.h"
#include <stdlib.h>
#include <string.h>

enum {
	LINE_MAX_KEPT = 64 << 10, /* bytes; longer lines are split */
	LAST_BYTES = 64 << 10	  /* of output that log.last shows */
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

/* What log.last takes of one stream of a rank: the bytes up to `end` in its spool. */
struct share {
	uint64_t begin, end; /* of the pieces taken; end 0: none */
	bool is_read;
	struct buf text; /* whole lines, up to end */
};

/* Adds a piece's part of the text to the lines that are complete with it. */
static void
take_piece(struct live *l, struct rank *k, struct share *s, const struct arrival *a)
{
	uint64_t from = a->end - a->len;
	size_t at, n;

	if (!s->is_read)
		output_last(k, a->stream, 0, s->end, (size_t)(s->end - s->begin), &s->text);
	s->is_read = true;
	from = MAX(from, s->end - s->text.n);
	if (from >= a->end)
		return;
	at = s->text.n - (size_t)(s->end - from);
	n = (size_t)(a->end - from);
	take_lines(l, &l->ranks[a->rank], a->stream, s->text.p + at, n);
}

/* The last lines of all ranks, in the order of their arrival. */
int
stream_file_log_last(const struct place *at, struct buf *out, struct err *e)
{
	int n = output_known(at->g);
	struct live *l = live_new(MAX(n, 1), take_lines, tell_text);
	struct share(*shares)[2] = xcalloc((size_t)MAX(n, 1), sizeof(*shares)), *s;
	const struct arrival *a;
	size_t count = 0, skip = 0;

	for (int i = 0; i < n; i++)
		l->ranks[i].rank = i;
	for (size_t total = 0; total < LAST_BYTES && (a = arrivals_at(at->g, count)); count++) {
		size_t len = (size_t)MIN(a->len, (uint64_t)(LAST_BYTES - total));

		total += len;
		s = &shares[a->rank][a->stream];
		s->end = MAX(s->end, a->end);
		s->begin = a->end - len;
	}
	while (count-- > 0 && (a = arrivals_at(at->g, count)))
		take_piece(l, output_rank(at->g, a->rank), &shares[a->rank][a->stream], a);
	for (int i = 0; i < n; i++) {
		for (int stream = SPOOL_STDOUT; stream <= SPOOL_STDERR; stream++) {
			struct buf *part = &l->ranks[i].part[stream];

			if (part->n)
				add_line(l, &l->ranks[i], stream, part->p, part->n);
			buf_free(&shares[i][stream].text);
		}
	}
	/* lines have grown by their ranks */
	if (l->ready.n > LAST_BYTES) {
		skip = l->ready.n - LAST_BYTES - 1;
		skip += (size_t)((char *)memchr(l->ready.p + skip, '\n', l->ready.n - skip) + 1 -
				 (l->ready.p + skip));
	}
	buf_add(out, l->ready.p + skip, l->ready.n - skip);
	free(shares);
	live_free(l);
	return 0;
}

const struct file_ops stream_file_log_ops = {
    .open = all_open, .read = all_read, .poll = all_poll, .release = live_release};
