/*
 * cells/N/stream (everything that a cell prints and displays, as JSON lines) and cells/N/wait (the
 * end of the cell).
 */
#include "tree/cell_stream.h"
#include "base/json.h"
#include "group/cell.h"
#include "group/task.h"
#include "tree/caller.h"
#include "tree/live.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

/* Parks a read that may get no answer before the cell ends. A read that has waited before was
 * already checked: a later request that would close the circle is refused instead. */
static void
park_for_cell(struct cell *c, struct req *r)
{
	if (!r->nonblock && !r->may_wait && caller_check_cell(c, r, &r->err) < 0) {
		req_done(r, -r->err.no);
		return;
	}
	r->may_wait = true;
	live_park(c->g, r);
}

static void
tell_json(struct live *l, int rank, uint64_t lost)
{
	buf_addf(&l->ready, "{\"type\":\"dropped\",\"bytes\":%llu", (unsigned long long)lost);
	if (rank >= 0)
		buf_addf(&l->ready, ",\"rank\":%d", rank);
	buf_adds(&l->ready, "}\n");
}

/* Adds a message with the next n bytes that a rank printed. */
static void
tell_text(struct live *l, struct live_rank *s, int stream, size_t n)
{
	struct buf *part = &s->part[stream];

	if (n == 0)
		return;
	buf_addf(&l->ready, "{\"type\":\"stream\",\"name\":\"%s\",\"text\":", spool_names[stream]);
	json_string(&l->ready, part->p, n);
	buf_addf(&l->ready, ",\"rank\":%d}\n", s->rank);
	buf_drop(part, n);
}

/* Output for a cell's stream: printed text becomes JSON messages, display lines are passed on as
 * they are. */
static void
take_json(struct live *l, struct live_rank *s, int stream, const char *p, size_t n)
{
	struct buf *part = &s->part[stream];

	buf_add(part, p, n);
	if (stream == SPOOL_DISPLAY) {
		const char *end = memrchr(part->p, '\n', part->n);

		size_t whole = end ? (size_t)(end - part->p) + 1 : 0;

		buf_add(&l->ready, part->p, whole);
		buf_drop(part, whole);
	} else {
		tell_text(l, s, stream, json_whole(part->p, part->n));
	}
}

/* At the end of the cell: bytes of a character that was never completed. */
static void
tell_rests(struct live *l)
{
	for (int i = 0; i < l->n; i++)
		for (int stream = SPOOL_STDOUT; stream <= SPOOL_STDERR; stream++)
			tell_text(l, &l->ranks[i], stream, l->ranks[i].part[stream].n);
}

struct live *
cell_stream_new(const struct cell *c)
{
	struct live *l = live_new(c->n, take_json, tell_json);

	for (int i = 0; i < c->n; i++)
		l->ranks[i] =
		    (struct live_rank){.rank = c->ranks[i], .subtask = &c->w->subtasks[i]};
	return l;
}

/* What the writer of the cell must know of its ranks comes first. */
static void
tell_notice(const struct cell *c, struct live *l)
{
	if (l->noticed || !c->w->begun)
		return;
	l->noticed = true;
	if (!c->notice)
		return;
	buf_adds(&l->ready, "{\"type\":\"notice\",\"text\":");
	json_string(&l->ready, c->notice, strlen(c->notice));
	buf_adds(&l->ready, "}\n");
}

/* Places the readers of ranks that have begun, and adds the final message after all output. Returns
 * as live_fill() does. */
static bool
jsonl_advance(struct cell *c, struct live *l, uint64_t from, uint64_t until)
{
	bool more;

	tell_notice(c, l);
	for (int i = 0; i < l->n; i++) {
		struct live_rank *s = &l->ranks[i];

		if (s->placed || !s->subtask->begun)
			continue;
		s->at = s->start = (struct spool_cursor){.at = s->subtask->begin};
		s->placed = true;
	}
	more = live_fill(c->g, l, from, until);
	if (more || l->finished || !c->w->done || l->base + l->ready.n >= until)
		return more;
	l->finished = true;
	for (int i = 0; i < l->n; i++)
		live_tell_lost(l, &l->ranks[i]);
	tell_rests(l);
	buf_addf(&l->ready,
	    "{\"type\":\"status\",\"cell\":%d,\"state\":\"%s\",\"errno\":\"%s\",\"seconds\":%.6f}"
	    "\n",
	    c->number, task_state(c->w), c->w->err.no ? err_name(c->w->err.no) : "",
	    task_seconds(c->w));
	return false;
}

void
cell_stream_read(struct cell *c, struct live *l, struct req *r)
{
	bool more;

	if (r->offset < l->base)
		live_go_back(l, r->offset);
	more = jsonl_advance(c, l, r->offset, live_end_of(r));
	if (more && !live_there(l, r->offset))
		live_park_more(c->g, r);
	else if (live_answers(l, r))
		live_give(l, r);
	else
		park_for_cell(c, r);
}

unsigned
cell_stream_poll(struct cell *c, struct live *l)
{
	jsonl_advance(c, l, l->next, l->next + 1);
	return live_there(l, l->next) || l->finished ? EPOLLIN | EPOLLRDNORM : 0;
}

static int
jsonl_open(struct file *f, struct req *r)
{
	f->state = cell_stream_new(f->node->at.cell);
	return 0;
}

static void
jsonl_read(struct file *f, struct req *r)
{
	cell_stream_read(f->node->at.cell, f->state, r);
}

static unsigned
jsonl_poll(struct file *f)
{
	return cell_stream_poll(f->node->at.cell, f->state);
}

const struct file_ops cell_stream_ops = {
    .open = jsonl_open, .read = jsonl_read, .poll = jsonl_poll, .release = live_release};

/* ---- cells/N/wait ---- */

/* For a cell that has ended, this is a text like any other. */
static int
wait_open(struct file *f, struct req *r)
{
	struct record text = {.out = &f->text, .form = RECORD_LINES};

	if (f->node->at.cell->w->done)
		cell_status(f->node->at.cell, &text);
	return 0;
}

static void
wait_read(struct file *f, struct req *r)
{
	struct cell *c = f->node->at.cell;
	struct buf b = {0};
	struct record text = {.out = &b, .form = RECORD_LINES};

	if (!c->w->done) {
		park_for_cell(c, r);
		return;
	}
	cell_status(c, &text);
	req_data(r, b.p + MIN(r->offset, b.n), r->offset < b.n ? MIN(b.n - r->offset, r->want) : 0);
	buf_free(&b);
}

static unsigned
wait_poll(struct file *f)
{
	return f->node->at.cell->w->done ? EPOLLIN | EPOLLRDNORM : 0;
}

const struct file_ops cell_stream_wait_ops = {
    .open = wait_open, .read = wait_read, .poll = wait_poll};
