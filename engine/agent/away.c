/*
 * Sends what ranks print to a daemon on another host: from the spools in the session's directory,
 * as there is room, each rank in turn. A slow link therefore slows down no rank. A message
 * that must not overtake a rank's output goes the same way, behind the last piece that was printed
 * before it.
 */
#include "agent/agent.h"
#include "gather.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	KEPT_BEHIND = 64 << 10, /* of what was sent: a rank's last words are read there */
	PUNCHED = 1 << 20,	/* disk space is freed in units of this size */
	RECORDS_KEPT = 1 << 16, /* of the index, or up to twice that */
	GATHER_MS = 5,		/* output within this time of a sent piece goes in one piece */
	QUIT_MS = 1000		/* for sending the last output of a rank that was asked to quit */
};

/* A message behind output that is not sent yet. */
struct held {
	TAILQ_ENTRY(held) link;
	struct spool_mark at;
	struct buf frame;
};

struct away {
	TAILQ_ENTRY(away) link;
	unsigned slot;
	char *dir, *name;
	struct spool_reader spool;
	struct spool_cursor at;
	uint64_t punched[SPOOL_STREAMS];
	struct spool_mark cut; /* what spool_trim() drops next */
	uint64_t sent;	       /* when its last piece was sent */
	bool news, ended;
	bool replaced;		      /* its files have been removed, there are those of another */
	bool empty;		      /* nothing followed that piece */
	bool quit;		      /* it was asked to quit */
	bool late;		      /* the rest of its output is skipped */
	struct timer *patience;	      /* until then */
	unsigned flushed;	      /* `flushes`, when its last message was gathered */
	TAILQ_HEAD(helds, held) held; /* in order; the first waits for output */
};

/* The first is the next to send a piece. */
static TAILQ_HEAD(, away) all = TAILQ_HEAD_INITIALIZER(all);

static struct timer *gathered; /* a piece waits for more bytes; NULL: none */

/* Messages that are sent next, and before that those of this round of the loop. */
static struct buf ready;
static struct gather *this_round;
static unsigned flushes; /* of this_round */

static void
remove_files(const struct away *a)
{
	for (int i = 0; i <= SPOOL_STREAMS && !a->replaced; i++) {
		char *path = xasprintf("%s/%s.%s", a->dir, a->name, spool_names[i]);

		unlink(path);
		free(path);
	}
}

static void
drop_first(struct away *a)
{
	struct held *h = TAILQ_FIRST(&a->held);

	TAILQ_REMOVE(&a->held, h, link);
	buf_free(&h->frame);
	free(h);
}

void
away_drop(struct away *a)
{
	if (!a)
		return;
	remove_files(a);
	while (!TAILQ_EMPTY(&a->held))
		drop_first(a);
	TAILQ_REMOVE(&all, a, link);
	loop_timer_del(a->patience);
	spool_reader_close(&a->spool);
	free(a->dir);
	free(a->name);
	free(a);
}

/* What an earlier process has printed may still be on its way: its files go, their contents stay
 * until they are sent. */
static void
replace(const struct away *by)
{
	struct away *a;

	TAILQ_FOREACH (a, &all, link)
		if (!strcmp(a->dir, by->dir) && !strcmp(a->name, by->name)) {
			remove_files(a);
			a->replaced = true;
		}
}

static void
on_round(void *arg, struct slice frames)
{
	flushes++;
	buf_add(&ready, frames.p, frames.n);
	bulk_ready(agent.bulk[LANE_OUTPUT]);
}

struct away *
away_open(const struct engine *e, struct err *err)
{
	struct away *a = xcalloc(1, sizeof(*a));

	*a = (struct away){.slot = e->slot,
	    .dir = xstrdup(e->dir),
	    .name = xstrdup(e->name),
	    .spool = SPOOL_NOT_OPEN};
	TAILQ_INIT(&a->held);
	if (!this_round)
		this_round = gather_new(agent.loop, on_round, NULL);
	replace(a);
	TAILQ_INSERT_TAIL(&all, a, link);
	if (mkdir(a->dir, 0700) < 0 && errno != EEXIST)
		fail_errno(err, "%s", a->dir);
	else if (spool_reader_open(&a->spool, a->dir, a->name, err) == 0)
		return a;
	away_drop(a);
	return NULL;
}

void
away_news(struct away *a)
{
	if (!a)
		return;
	a->news = true;
	bulk_ready(agent.bulk[LANE_OUTPUT]);
}

/* ---- messages ---- */

static bool
is_sent(const struct away *a, const struct spool_mark *at)
{
	for (int i = 0; i < SPOOL_STREAMS; i++)
		if (a->at.at.size[i] < at->size[i])
			return false;
	return true;
}

/* Behind what has been sent of this rank. Equal messages of many ranks go as one. */
static void
send_message(struct away *a, const struct msg *m)
{
	if (gather_take(this_round, m)) {
		a->flushed = flushes;
		return;
	}
	wire_pack_raw(&ready, m);
	bulk_ready(agent.bulk[LANE_OUTPUT]);
}

/* Sends the messages whose output has been sent. */
static void
release(struct away *a)
{
	struct held *h;
	struct msg m;

	while ((h = TAILQ_FIRST(&a->held)) && is_sent(a, &h->at)) {
		struct buf frame = h->frame;

		h->frame = (struct buf){0};
		drop_first(a);
		wire_frame(frame.p, frame.n, &m, NULL);
		send_message(a, &m);
		buf_free(&frame);
	}
}

void
away_say(struct away *a, const struct msg *m, const struct spool_mark *at)
{
	const struct held *last = TAILQ_LAST(&a->held, helds);
	struct msg plain = *m;
	struct held *h;

	plain.flags &= (uint8_t)~FLAG_FD; /* a rank may lie: no such message has a descriptor */
	plain.fd = -1;
	if (!last && (!at || is_sent(a, at))) {
		send_message(a, &plain);
		return;
	}
	h = xcalloc(1, sizeof(*h));
	h->at = at ? *at : last->at;
	wire_pack_raw(&h->frame, &plain);
	TAILQ_INSERT_TAIL(&a->held, h, link);
	away_news(a);
}

/* ---- the end ---- */

static void
on_patience(void *arg)
{
	struct away *a = arg;

	a->patience = NULL;
	a->late = true;
	bulk_ready(agent.bulk[LANE_OUTPUT]);
}

static void
be_patient(struct away *a)
{
	if (a->quit && a->ended && !a->patience)
		a->patience = loop_timer(agent.loop, QUIT_MS, on_patience, a);
}

void
away_end(struct away *a)
{
	if (!a)
		return;
	a->ended = true;
	be_patient(a);
	away_news(a);
}

void
away_quit(unsigned slot)
{
	struct away *a;

	TAILQ_FOREACH (a, &all, link)
		if (a->slot == slot) {
			a->quit = true;
			be_patient(a);
		}
}

/* What is not sent yet of the output before this message never is. */
static void
pass_over(struct away *a, const struct held *end)
{
	struct buf frame = {0};
	uint64_t bytes = 0;
	struct msg m;

	for (int i = 0; i < SPOOL_STREAMS; i++)
		bytes += end->at.size[i] - MIN(end->at.size[i], a->at.at.size[i]);
	a->at = (struct spool_cursor){.at = end->at};
	wire_pack(&frame, Ndropped, FLAG_ORDERED, a->slot, 0, bytes, (unsigned)DROPPED_UNSENT);
	wire_frame(frame.p, frame.n, &m, NULL);
	if (bytes)
		send_message(a, &m);
	buf_free(&frame);
	release(a);
}

static void
skip_rest(struct away *a)
{
	const struct held *end = TAILQ_LAST(&a->held, helds); /* the Nexit */

	a->late = false;
	if (end)
		pass_over(a, end);
}

/* ---- pieces ---- */

/* Frees the disk space of what was sent. */
static void
punch(struct away *a, int stream)
{
	uint64_t size = a->at.at.size[stream];
	uint64_t to = size > KEPT_BEHIND ? (size - KEPT_BEHIND) / PUNCHED * PUNCHED : 0;

	if (to <= a->punched[stream])
		return;
	if (fallocate(a->spool.fd[stream], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		(off_t)a->punched[stream], (off_t)(to - a->punched[stream])) < 0)
		debug("agent", "fallocate: %s", strerror(errno));
	a->punched[stream] = to;
}

static void
on_gathered(void *arg)
{
	gathered = NULL;
	bulk_ready(agent.bulk[LANE_OUTPUT]);
}

/* Should more output be awaited before the next piece is sent? Many small pieces cost both sides,
 * and the encryption between them, more than their bytes do. */
static bool
gathers(const struct away *a)
{
	if (!a->empty || !TAILQ_EMPTY(&a->held) || now_ns() - a->sent >= GATHER_MS * NS_PER_MS)
		return false;
	if (!gathered)
		gathered = loop_timer(agent.loop, GATHER_MS, on_gathered, NULL);
	return true;
}

static void
take_ready(struct buf *frames)
{
	buf_add(frames, ready.p, ready.n);
	buf_clear(&ready);
}

/* Up to where the first message waits that it must not overtake. Returns false if there is nothing
 * new. */
static bool
next_piece(struct away *a, struct buf *frame)
{
	static char piece[BULK_PIECE];
	const struct held *h = TAILQ_FIRST(&a->held);
	uint64_t offset;
	int stream;
	size_t n;
	ssize_t got;

	if (!spool_next(&a->spool, &a->at, h ? &h->at : NULL, bulk_piece(agent.bulk[LANE_OUTPUT]),
		&stream, &offset, &n))
		return false;
	if (a->flushed == flushes)
		gather_flush(this_round);
	take_ready(frame);
	got = pread(a->spool.fd[stream], piece, n, (off_t)offset);
	/* zeros if it cannot be read; but the index never covers bytes that are missing */
	for (size_t i = got > 0 ? (size_t)got : 0; i < n; i++)
		piece[i] = '\0';
	wire_pack(frame, Noutput, 0, a->slot, 0, (unsigned)stream, ((struct slice){piece, n}));
	a->sent = now_ns();
	a->empty = false;
	punch(a, stream);
	spool_trim(&a->spool, &a->cut, &a->at, RECORDS_KEPT);
	return true;
}

/* Adds the next piece of this rank to frame, if there is one, or ends it. */
static void
next_of(struct away *a, struct buf *frame)
{
	if (a->late)
		skip_rest(a);
	if (!a->news || gathers(a))
		return;
	if (next_piece(a, frame)) {
		TAILQ_REMOVE(&all, a, link);
		TAILQ_INSERT_TAIL(&all, a, link);
		release(a);
		return;
	}
	if (!TAILQ_EMPTY(&a->held)) { /* somebody has harmed its files */
		pass_over(a, TAILQ_LAST(&a->held, helds));
		return;
	}
	a->news = false;
	a->empty = true;
	if (a->ended)
		away_drop(a);
}

bool
away_next(void *arg, struct buf *frame)
{
	struct away *a, *next;

	for (a = TAILQ_FIRST(&all); a && !ready.n && !frame->n; a = next) {
		next = TAILQ_NEXT(a, link);
		next_of(a, frame);
	}
	take_ready(frame);
	return frame->n > 0;
}
