/*
 * Follows what ranks print, by inotify on each spool's index, and drops the oldest output. What
 * ranks on other hosts print is written here.
 */
#include "group/output.h"
#include "base/daemon.h"
#include "group/arrivals.h"
#include "group/hooks.h"
#include "group/journal.h"
#include "host/agent.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

/* How far to search for the end of a line of rich output, in bytes: a figure takes about 100 KB. */
enum { LINE_BYTES = 1 << 20 };

/* Of a rank's index, 8 bytes each, or up to twice that. */
enum { RECORDS_KEPT = 1 << 19 };

static int inotify_fd = -1;

static struct {
	int wd; /* -1: the kernel watches no more, so we look */
	struct group *g;
} * watched;

static size_t watched_count;
static struct timer *look;

enum { LOOK_MS = 50 };

/* ---- what is kept ---- */

int
output_known(const struct group *g)
{
	int n = g->size;

	while (g->ranks && n < MAX_RANKS && g->ranks[n].output.known)
		n++;
	return n;
}

struct rank *
output_rank(struct group *g, int number)
{
	bool known = !g->gone && g->ranks && number >= 0 && number < MAX_RANKS &&
		     g->ranks[number].output.known;

	return known ? &g->ranks[number] : NULL;
}

uint64_t
output_size(const struct rank *k, int stream)
{
	uint64_t size = spool_reader_size(&k->output.spool, stream);

	return size > k->output.base[stream] ? size - k->output.base[stream] : 0;
}

void
output_drop(struct rank *k, int stream, uint64_t base)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	k->output.base[stream] = base;
	/* frees the disk space; offsets stay the same */
	if (base >= page &&
	    fallocate(k->output.spool.fd[stream], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		(off_t)(base / page * page)) < 0)
		debug("cell", "fallocate: %s", strerror(errno));
}

/* The offset after the next newline at or after this offset; 0 if there is none nearby. */
static uint64_t
line_behind(const struct rank *k, int stream, uint64_t offset)
{
	char *bytes = xmalloc(LINE_BYTES), *end;
	ssize_t n = pread(k->output.spool.fd[stream], bytes, LINE_BYTES, (off_t)offset);
	uint64_t at;

	end = n > 0 ? memchr(bytes, '\n', (size_t)n) : NULL;
	at = end ? offset + (uint64_t)(end - bytes) + 1 : 0;
	free(bytes);
	return at;
}

/* Drops everything but the last `keep` bytes. Rich output is dropped in whole lines, because each
 * line is a message. */
static void
trim(struct rank *k, int stream, uint64_t keep)
{
	uint64_t size = output_size(k, stream), base;

	if (size <= keep)
		return;
	base = k->output.base[stream] + size - keep;
	if (stream == SPOOL_DISPLAY && (base = line_behind(k, stream, base)) == 0)
		return;
	journal_event(k->g, "spool rank=%d stream=%s dropped=%llu", k->number, spool_names[stream],
	    (unsigned long long)(base - k->output.base[stream]));
	output_drop(k, stream, base);
}

void
output_trim(struct group *g)
{
	for (int i = 0; g->set.spool && i < g->size; i++)
		for (int s = 0; s < SPOOL_STREAMS; s++)
			trim(&g->ranks[i], s, (uint64_t)g->set.spool);
}

/* While a cell prints, output may exceed the limit by half: not every line is worth an event. */
static void
trim_growing(struct rank *k)
{
	uint64_t keep = (uint64_t)k->g->set.spool;

	for (int s = 0; keep && s < SPOOL_STREAMS; s++)
		if (output_size(k, s) > keep + keep / 2)
			trim(k, s, keep);
}

static int
open_spool(struct rank *k, struct err *e)
{
	char name[32];

	if (k->output.spool.order >= 0)
		return 0;
	snprintf(name, sizeof(name), "rank%d", k->number);
	return spool_reader_open(&k->output.spool, k->g->run_dir, name, e);
}

/* ---- writing ---- */

/* NULL: the agent writes; or, with *e set, nobody can. */
static struct spool_writer *
writer(struct rank *k, struct err *e)
{
	const struct agent *a = rank_agent(k);

	if (k->output.writer || !a || a->hello != HELLO_AWAY || open_spool(k, e) < 0)
		return k->output.writer;
	k->output.writer = xmalloc(sizeof(*k->output.writer));
	spool_writer_follow(k->output.writer, &k->output.spool);
	return k->output.writer;
}

int
output_begin(struct rank *k, struct err *e)
{
	e->no = 0;
	output_end(k);
	writer(k, e);
	return -e->no;
}

void
output_end(struct rank *k)
{
	free(k->output.writer);
	k->output.writer = NULL;
}

size_t
output_take(struct rank *k, int stream, struct slice bytes, struct err *e)
{
	struct spool_writer *w = writer(k, e);
	uint64_t before;

	if (!w)
		return bytes.n;
	before = w->dropped;
	spool_writer_add(w, stream, bytes.p, bytes.n);
	return (size_t)(w->dropped - before);
}

void
output_place(struct rank *k, struct spool_mark *at)
{
	struct err e = {0};
	struct spool_writer *w = writer(k, &e);

	if (w)
		*at = spool_writer_cut(w);
	else if (e.no) /* its positions are those of files elsewhere */
		*at = output_now(k);
}

/* ---- following ---- */

void
output_open(struct rank *k)
{
	struct err e = {0};

	if (open_spool(k, &e) < 0)
		journal_fail_rank(k->g, k->number, &e, "start");
}

/* The former rank whose spool is open; NULL: none. */
static struct rank *former;

static bool
is_former(const struct rank *k)
{
	return k->number >= k->g->size;
}

void
output_close(struct rank *k)
{
	spool_reader_close(&k->output.spool);
	if (former == k)
		former = NULL;
}

const struct spool_reader *
output_spool(struct rank *k)
{
	output_open(k);
	if (is_former(k) && former != k) {
		if (former && is_former(former))
			output_close(former);
		former = k;
	}
	return &k->output.spool;
}

/* Reads the index to its end and reports which streams grew. */
void
output_advance(struct rank *k)
{
	uint64_t before[SPOOL_STREAMS], offset;
	int stream;
	size_t len;

	output_open(k);
	memcpy(before, k->output.tail.at.size, sizeof(before));
	while (spool_next(
	    &k->output.spool, &k->output.tail, NULL, SIZE_MAX / 2, &stream, &offset, &len))
		if (stream != SPOOL_DISPLAY)
			arrivals_add(k->g, k->number, stream, len, offset + len);
	if (k->g->set.spool)
		spool_trim(&k->output.spool, &k->output.cut, &k->output.tail, RECORDS_KEPT);
	for (int s = 0; s <= SPOOL_STDERR; s++) {
		if (k->output.tail.at.size[s] == before[s])
			continue;
		k->output.time = now_wall();
		k->output.time_ns = now_ns();
		group_tell(output_grew, k, s);
	}
}

struct spool_mark
output_now(struct rank *k)
{
	struct spool_mark at;

	output_advance(k);
	at = k->output.tail.at;
	at.records += k->output.tail.inside > 0;
	return at;
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
	output_advance(&g->ranks[k]);
	group_tell(output_moved, g);
	trim_growing(&g->ranks[k]);
}

/* Any rank may have printed. always: it is told also if nothing is seen of it. */
static void
look_at_all(struct group *g, bool always)
{
	bool moved = always;

	for (int k = 0; k < g->size; k++) {
		struct rank *r = &g->ranks[k];

		if (r->output.spool.order < 0) /* it has never started */
			continue;
		output_advance(r);
		/* others may have advanced it, for themselves */
		moved |= memcmp(&r->output.seen, &r->output.tail.at, sizeof(r->output.seen)) != 0;
		r->output.seen = r->output.tail.at;
	}
	if (moved)
		group_tell(output_moved, g);
	for (int k = 0; moved && k < g->size; k++)
		trim_growing(&g->ranks[k]);
}

static void
on_look(void *arg)
{
	bool any = false;

	for (size_t i = 0; i < watched_count; i++)
		if (watched[i].g && watched[i].wd < 0) {
			look_at_all(watched[i].g, false);
			any = true;
		}
	look = any ? loop_timer(daemon_.loop, LOOK_MS, on_look, NULL) : NULL;
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
				if (watched[i].g)
					look_at_all(watched[i].g, true);
		p += sizeof(*ev) + ev->len;
	}
}

void
output_follow(struct group *g)
{
	size_t i = 0;

	if (inotify_fd < 0) {
		inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
		if (inotify_fd >= 0)
			loop_fd(daemon_.loop, inotify_fd, EPOLLIN, on_inotify, NULL);
	}
	while (i < watched_count && watched[i].g)
		i++;
	if (i == watched_count)
		watched = xrealloc(watched, ++watched_count * sizeof(*watched));
	watched[i].g = g;
	watched[i].wd = inotify_fd < 0 ? -1 : inotify_add_watch(inotify_fd, g->run_dir, IN_MODIFY);
	if (watched[i].wd >= 0)
		return;
	note("inotify: %s: what %s prints is looked for every %d ms (the limits are "
	     "fs.inotify.max_user_instances and max_user_watches)",
	    strerror(errno), g->name, LOOK_MS);
	if (!look)
		look = loop_timer(daemon_.loop, LOOK_MS, on_look, NULL);
}

void
output_gone(struct group *g)
{
	for (size_t i = 0; i < watched_count; i++)
		if (watched[i].g == g) {
			if (watched[i].wd >= 0)
				inotify_rm_watch(inotify_fd, watched[i].wd);
			watched[i].g = NULL;
		}
}

bool
output_last(struct rank *k, int stream, uint64_t from, uint64_t to, size_t max, struct buf *out)
{
	const struct spool_reader *spool = output_spool(k);
	uint64_t at = MAX(from, k->output.base[stream]), begin;
	char *p, *line;
	ssize_t n;

	if (to <= at || spool->fd[stream] < 0)
		return at == from || to <= from;
	/* a byte more: a line begins behind the end of another */
	begin = to - at > max ? to - max - 1 : at;
	p = xmalloc((size_t)(to - begin));
	n = pread(spool->fd[stream], p, (size_t)(to - begin), (off_t)begin);
	if (n > 0) {
		line = begin == at ? p : memchr(p, '\n', (size_t)n - 1);
		line = line ? line + (begin != at) : p + 1;
		buf_add(out, line, (size_t)(p + n - line));
	}
	free(p);
	return begin == from;
}
