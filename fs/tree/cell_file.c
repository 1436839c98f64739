/*
 * Files that accept cells: they collect what is written; fsync, a read or the last close submits
 * it. Reading the files called stream returns the cell's stream; reading the others, its number,
 * reading steer, also where it has run, and reading watch waits for what it finds.
 */
#include "tree/cell_file.h"
#include "group/cell.h"
#include "group/external.h"
#include "group/hooks.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/steer.h"
#include "group/task.h"
#include "group/watch.h"
#include "tree/caller.h"
#include "tree/cell_stream.h"
#include "tree/tell.h"
#include "tree/writer.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

struct cell_input {
	struct buf source;
	struct cell *cell;   /* referenced: the last one this descriptor submitted; NULL: none */
	struct live *stream; /* what reads return; NULL: not read yet */
	bool told;	     /* a read has returned the number */
	bool too_large;
	bool discarded; /* the writer was killed: nothing is run */
	size_t seen;	/* of a watch's news */
	bool bound;	/* a watch ends with this descriptor */
};

/* Stores the ranks that this file addresses; none means all. Returns 0, or -errno with *e set. */
static int
ranks_of(const struct place *at, struct rank_set *ranks, struct err *e)
{
	char *list = at->name;

	*ranks = (struct rank_set){0};
	if (at->rank >= 0) {
		struct rank *k = place_rank(at, e);

		rank_set_add(ranks, at->rank);
		return !k || external_refuse(k, e) < 0 ? -e->no : 0;
	}
	return list ? rank_set_parse(ranks, &list, 1, at->g->size, e) : 0;
}

static int
open_input(struct file *f, struct req *r)
{
	struct cell_input *in;

	if ((f->flags & O_ACCMODE) != O_RDONLY) {
		struct rank_set ranks;

		if (lifecycle_accepts(f->node->at.g, &r->err) < 0 ||
		    ranks_of(&f->node->at, &ranks, &r->err) < 0)
			return -r->err.no;
	}
	in = xcalloc(1, sizeof(*in));
	f->state = in;
	return 0;
}

static int
cell_open(struct file *f, struct req *r)
{
	if ((f->flags & O_ACCMODE) == O_RDONLY)
		f->node->size = (uint64_t)snprintf(NULL, 0, "%d\n", f->node->at.g->history.last);
	return open_input(f, r);
}

static ssize_t
cell_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	struct cell_input *in = f->state;

	if (in->discarded)
		return fail(
		    e, ECANCELED, "a signal ended a process that wrote a part of this cell");
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

static void
forget_cell(struct cell_input *in)
{
	live_free(in->stream);
	in->stream = NULL;
	if (in->cell)
		cell_unref(in->cell);
	in->cell = NULL;
}

/* From now on, reads refer to this cell. */
static void
set_cell(struct cell_input *in, struct cell *c)
{
	forget_cell(in);
	in->cell = cell_ref(c);
	in->told = false;
	in->seen = 0;
}

/* Submits what was collected. Returns the cell, or NULL with e. */
static struct cell *
submit(struct file *f, struct req *r, bool waits, struct err *e)
{
	struct cell_input *in = f->state;
	struct group *g = f->node->at.g;
	struct rank_set ranks;
	struct cell *c = NULL;

	if (ranks_of(&f->node->at, &ranks, e) == 0 &&
	    (!waits || caller_check(g, r, &ranks, e) == 0)) {
		struct slice source = {in->source.p, in->source.n};

		if (f->ops == &cell_file_watch_ops)
			c = watch_submit(g, source, e);
		else if (f->ops == &cell_file_steer_ops)
			c = steer_submit(g, source, e);
		else
			c = cell_submit(g, &ranks, source, e);
	}
	buf_free(&in->source);
	if (c) {
		task_set_owner(c->w, r ? req_process(r) : f->opener, r ? r->uid : f->opener_uid,
		    in->cell ? in->cell->w : NULL);
		set_cell(in, c);
	}
	return c;
}

static int
submit_if_any(struct file *f, struct req *r, bool waits)
{
	struct cell_input *in = f->state;
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
	r->waits_for = c->w;
	return waits ? task_wait(c->w, r) : 0;
}

static int
submit_and_wait(struct file *f, struct req *r)
{
	return submit_if_any(f, r, !(f->flags & O_NONBLOCK));
}

/* An incomplete cell is not run, and later writes by others are refused. */
static int
discard(struct file *f)
{
	struct cell_input *in = f->state;

	journal_event(f->node->at.g, "discarded bytes=%zu: a signal ended the writer of a cell",
	    in->source.n);
	buf_free(&in->source);
	in->discarded = true;
	return 0;
}

/* A cell is dropped from the queue together with the writer that would see its outcome. */
static void
withdraw_queued(struct file *f, struct req *r)
{
	struct cell_input *in = f->state;

	if (in->cell && !in->cell->w->begun && !in->cell->w->done && !(f->flags & O_NONBLOCK) &&
	    writer_close(f, r) == WRITER_KILLED)
		task_withdraw(in->cell->w);
}

static int
cell_flush(struct file *f, struct req *r)
{
	struct cell_input *in = f->state;

	if (in->source.n == 0 && !in->too_large) {
		withdraw_queued(f, r);
		return 0;
	}
	r->on_done = tell_closer;
	switch (writer_close(f, r)) {
	case WRITER_STAYS:
		return 0;
	case WRITER_KILLED:
		return discard(f);
	case WRITER_EXITS:
		return submit_if_any(f, r, false);
	case WRITER_CLOSES:
		break;
	}
	return submit_and_wait(f, r);
}

static void
cell_release(struct file *f)
{
	struct cell_input *in = f->state;
	struct err e = {0};

	if (!in)
		return;
	if (in->source.n && submit(f, NULL, false, &e)) {
		tell_leaver(f, in->cell->w);
	} else if (e.no) {
		journal_fail(f->node->at.g, &e, "cell");
		tell_error(f, &e);
	}
	forget_cell(in);
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
	    text, sizeof(text), "%d\n", in->cell ? in->cell->number : f->node->at.g->history.last);
	in->told = true;
	req_data(r, text, MIN((size_t)n, r->want));
}

/* A program that writes and then reads on one descriptor wants the cell run. Returns false if it
 * was refused; the read is then answered. */
static bool
submit_by_read(struct file *f, struct req *r)
{
	struct cell_input *in = f->state;
	struct err e = {0};

	if (!in->source.n || submit(f, r, false, &e))
		return true;
	journal_fail(f->node->at.g, &e, "cell");
	req_done(r, -e.no);
	return false;
}

static void
cell_read(struct file *f, struct req *r)
{
	if (submit_by_read(f, r))
		give_number(f, r);
}

const struct file_ops cell_file_ops = {
    .open = cell_open,
    .read = cell_read,
    .write = cell_write,
    .flush = cell_flush,
    .fsync = submit_and_wait,
    .release = cell_release,
    .mtime = writer_mtime,
};

/* ---- steer ---- */

/* "18 state=ok within=17 step=5345 clock=optimizer" */
static void
add_steered(const struct cell *c, struct buf *out)
{
	buf_addf(out, "%d state=%s", c->number, task_state(c->w));
	if (c->steered.cell)
		buf_addf(out, " within=%d step=%u clock=%s", c->steered.cell->number,
		    c->steered.step, task_clock(c->steered.clock));
	buf_addc(out, '\n');
}

/* Who only reads gets the last one. */
static int
steer_open(struct file *f, struct req *r)
{
	struct group *g = f->node->at.g;
	const struct cell *last = cell_find(g, g->history.steered);

	if ((f->flags & O_ACCMODE) == O_RDONLY && last)
		add_steered(last, &f->text);
	f->node->size = f->text.n;
	return open_input(f, r);
}

static void
steer_read(struct file *f, struct req *r)
{
	struct cell_input *in = f->state;
	struct buf b = {0};

	if (!submit_by_read(f, r))
		return;
	if (in->cell && !in->told)
		add_steered(in->cell, &b);
	else if (r->offset < f->text.n)
		buf_add(&b, f->text.p + r->offset, f->text.n - r->offset);
	in->told = true;
	req_data(r, b.n ? b.p : "", MIN(b.n, r->want));
	buf_free(&b);
}

const struct file_ops cell_file_steer_ops = {
    .open = steer_open,
    .read = steer_read,
    .write = cell_write,
    .flush = cell_flush,
    .fsync = submit_and_wait,
    .release = cell_release,
    .mtime = writer_mtime,
};

/* ---- watch ---- */

static struct req_list watching = TAILQ_HEAD_INITIALIZER(watching);

/* "18 state=stopped within=17 step=214 clock=optimizer" */
static void
add_watched(const struct cell *c, struct buf *out)
{
	buf_addf(out, "%d state=%s within=%d", c->number, watch_state(c), c->steered.cell->number);
	if (c->steered.step)
		buf_addf(out, " step=%u clock=%s", c->steered.step, task_clock(c->steered.clock));
	buf_addc(out, '\n');
}

/* Who only reads follows the last one. */
static int
watch_open(struct file *f, struct req *r)
{
	struct group *g = f->node->at.g;
	struct cell *last = cell_find(g, g->history.watched);
	int result = open_input(f, r);

	if (result == 0 && (f->flags & O_ACCMODE) == O_RDONLY && last)
		set_cell(f->state, last);
	return result;
}

/* A watch that was submitted by other than the close ends with the descriptor, if its writer waits.
 */
static void
bind_watch(struct file *f)
{
	struct cell_input *in = f->state;

	in->bound |= in->source.n > 0 && !(f->flags & O_NONBLOCK);
}

static int
watch_fsync(struct file *f, struct req *r)
{
	bind_watch(f);
	return submit_and_wait(f, r);
}

static void
watch_release(struct file *f)
{
	struct cell_input *in = f->state;

	if (in && in->bound && in->cell && !in->cell->w->done)
		task_withdraw(in->cell->w);
	cell_release(f);
}

/* Is there something to read, if only the end? */
static bool
has_news(const struct cell_input *in)
{
	const struct cell *c = in->cell;

	return in->seen < c->steered.news.n || c->steered.stopped || c->w->done;
}

/* Answers a read of the news with those that are there. Returns false if none are, but may come. */
static bool
give_news(struct req *r)
{
	struct cell_input *in = r->file->state;
	const struct buf *news = &in->cell->steered.news;
	size_t n = MIN(news->n - in->seen, r->want);

	if (!has_news(in))
		return false;
	req_data(r, n ? news->p + in->seen : "", n);
	in->seen += n;
	return true;
}

static void
watch_interrupted(struct req *r, enum interrupt how)
{
	TAILQ_REMOVE(&watching, r, link);
	req_done(r, -EINTR);
}

static void
wake_watching(struct cell *c)
{
	struct req *r, *next;

	for (r = TAILQ_FIRST(&watching); r; r = next) {
		struct cell_input *in = r->file->state;

		next = TAILQ_NEXT(r, link);
		if (in->cell != c)
			continue;
		TAILQ_REMOVE(&watching, r, link);
		if (!give_news(r))
			TAILQ_INSERT_HEAD(&watching, r, link);
	}
	req_wake_pollers();
}

/* The first read gives the number; the next ones wait for what there is to tell, and for the end.
 */
static void
watch_read(struct file *f, struct req *r)
{
	struct cell_input *in = f->state;
	struct buf b = {0};

	bind_watch(f);
	if (!submit_by_read(f, r))
		return;
	if (!in->cell) {
		req_data(r, "", 0);
	} else if (!in->told) {
		add_watched(in->cell, &b);
		req_data(r, b.p, MIN(b.n, r->want));
		buf_free(&b);
		in->told = true;
	} else if (!give_news(r)) {
		if (r->nonblock) {
			req_done(r, -EAGAIN);
			return;
		}
		TAILQ_INSERT_TAIL(&watching, r, link);
		req_park(r, watch_interrupted);
	}
}

/* A first read never blocks: it returns the line about the watch. */
static unsigned
watch_poll(struct file *f)
{
	const struct cell_input *in = f->state;
	bool waits = !in->source.n && in->cell && in->told && !has_news(in);

	return waits ? 0 : EPOLLIN | EPOLLRDNORM;
}

const struct file_ops cell_file_watch_ops = {
    .open = watch_open,
    .read = watch_read,
    .write = cell_write,
    .flush = cell_flush,
    .fsync = watch_fsync,
    .release = watch_release,
    .poll = watch_poll,
    .mtime = writer_mtime,
};

void
cell_file_init(void)
{
	group_news.watch_news = wake_watching;
}

/* ---- stream ---- */

/* The first read returns the number alone. The stream starts at the descriptor's offset, which
 * earlier writes have moved. */
static void
begin_stream(struct cell_input *in, uint64_t offset)
{
	struct live *l = cell_stream_new(in->cell);

	buf_addf(&l->ready, "{\"type\":\"execute_input\",\"cell\":%d}\n", in->cell->number);
	l->base = l->next = offset;
	in->stream = l;
}

static void
cell_read_stream(struct file *f, struct req *r)
{
	struct cell_input *in = f->state;
	struct cell *last;

	if (!submit_by_read(f, r))
		return;
	if (!in->cell && (last = cell_find(f->node->at.g, f->node->at.g->history.last)))
		set_cell(in, last);
	if (!in->cell) {
		req_data(r, "", 0);
		return;
	}
	if (in->stream) {
		cell_stream_read(in->cell, in->stream, r);
		return;
	}
	begin_stream(in, r->offset);
	live_give(in->stream, r);
}

static unsigned
cell_poll_stream(struct file *f)
{
	struct cell_input *in = f->state;

	/* a first read never blocks: it returns the number */
	return in->source.n || !in->stream ? EPOLLIN | EPOLLRDNORM
					   : cell_stream_poll(in->cell, in->stream);
}

const struct file_ops cell_file_stream_ops = {
    .open = open_input,
    .read = cell_read_stream,
    .write = cell_write,
    .flush = cell_flush,
    .fsync = submit_and_wait,
    .release = cell_release,
    .poll = cell_poll_stream,
    .mtime = writer_mtime,
};
