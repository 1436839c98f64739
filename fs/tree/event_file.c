/* Live files that are streams of lines: `trace` and each group's `events`. */
#include "tree/event_file.h"
#include "base/stream.h"
#include "frame.h"
#include "group/group.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { LAST_BYTES = 64 << 10 }; /* that events.last shows */

static struct stream *trace;
static int tracers;

static int
open_at_end(struct file *f, struct stream *s)
{
	struct stream_reader *reader = xcalloc(1, sizeof(*reader));

	stream_reader_init(reader, s);
	f->state = reader;
	return 0;
}

static void
stream_file_read(struct file *f, struct req *r)
{
	stream_read(f->state, r);
}

static unsigned
stream_file_poll(struct file *f)
{
	const struct stream_reader *reader = f->state;

	return stream_ready(reader) ? EPOLLIN | EPOLLRDNORM : 0;
}

static void
stream_file_release(struct file *f)
{
	free(f->state);
}

static int
events_open(struct file *f, struct req *r)
{
	return open_at_end(f, f->node->at.g->journal.events);
}

const struct file_ops event_file_ops = {
    .open = events_open,
    .read = stream_file_read,
    .poll = stream_file_poll,
    .release = stream_file_release,
};

int
event_file_last(const struct place *at, struct buf *out, struct err *e)
{
	if (at->g->journal.events)
		stream_last(at->g->journal.events, LAST_BYTES, out);
	return 0;
}

static int
trace_open(struct file *f, struct req *r)
{
	tracers++;
	return open_at_end(f, trace);
}

static void
trace_release(struct file *f)
{
	if (f->state && --tracers == 0)
		stream_drop(trace);
	free(f->state);
}

const struct file_ops event_file_trace_ops = {
    .open = trace_open,
    .read = stream_file_read,
    .poll = stream_file_poll,
    .release = trace_release,
};

bool
event_file_tracing(void)
{
	return tracers > 0;
}

void
event_file_trace(const char *fmt, ...)
{
	struct buf b = {0};
	va_list ap;

	if (!tracers)
		return;
	buf_addf(&b, "%.6f ", now_wall());
	va_start(ap, fmt);
	buf_vaddf(&b, fmt, ap);
	va_end(ap);
	buf_addc(&b, '\n');
	stream_add(trace, b.p, b.n);
	buf_free(&b);
}

static void
wire_line(bool in, const struct msg *m)
{
	struct buf b = {0};

	if (!tracers)
		return;
	wire_print(m, &b);
	event_file_trace("wire %s %s", in ? "<" : ">", b.p);
	buf_free(&b);
}

void
event_file_init(void)
{
	struct err e = {0};

	trace = stream_new(NULL, &e);
	if (!trace)
		die("%s", e.text);
	frame_trace(wire_line);
}

void
event_file_answer(void)
{
	stream_answer(trace, ENODEV);
}

void
event_file_stop(void)
{
	frame_trace(NULL);
	stream_free(trace, ENODEV);
	trace = NULL;
}
