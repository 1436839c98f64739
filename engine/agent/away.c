/*
 * Sends what ranks print to a daemon on another host: from the spools in the session's directory,
 * as the relay takes it, each rank in turn. A slow link therefore slows down no rank.
 */
#include "agent/agent.h"
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
	bool replaced;		/* its files have been removed, there are those of another */
	bool empty;		/* nothing followed that piece */
	bool hurry;		/* a mark waits for the output so far */
	bool quit;		/* it was asked to quit */
	bool late;		/* the rest of its output is skipped */
	struct timer *patience; /* until then */
	struct spool_mark end;	/* of all that it printed, once it has exited */
};

/* The first is the next to send a piece. */
static TAILQ_HEAD(, away) all = TAILQ_HEAD_INITIALIZER(all);

static struct timer *gathered; /* a piece waits for more bytes; NULL: none */

static void
remove_files(const struct away *a)
{
	for (int i = 0; i <= SPOOL_STREAMS && !a->replaced; i++) {
		char *path = xasprintf("%s/%s.%s", a->dir, a->name, spool_names[i]);

		unlink(path);
		free(path);
	}
}

void
away_drop(struct away *a)
{
	if (!a)
		return;
	remove_files(a);
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

struct away *
away_open(const struct engine *e, struct err *err)
{
	struct away *a = xcalloc(1, sizeof(*a));

	*a = (struct away){.slot = e->slot,
	    .dir = xstrdup(e->dir),
	    .name = xstrdup(e->name),
	    .spool = SPOOL_NOT_OPEN};
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
away_news(struct away *a, bool hurry)
{
	if (!a)
		return;
	a->news = true;
	a->hurry |= hurry;
	bulk_ready(BULK_OUTPUT);
}

static void
on_patience(void *arg)
{
	struct away *a = arg;

	a->patience = NULL;
	a->late = true;
	bulk_ready(BULK_OUTPUT);
}

static void
be_patient(struct away *a)
{
	if (a->quit && a->ended && !a->patience)
		a->patience = loop_timer(agent.loop, QUIT_MS, on_patience, a);
}

void
away_end(struct away *a, const struct spool_mark *end)
{
	if (!a)
		return;
	a->ended = true;
	a->end = *end;
	be_patient(a);
	away_news(a, true);
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
	bulk_ready(BULK_OUTPUT);
}

/* Should more output be awaited before the next piece is sent? Many small pieces cost both sides,
 * and the encryption between them, more than their bytes do. */
static bool
gathers(const struct away *a)
{
	if (!a->empty || a->hurry || now_ns() - a->sent >= GATHER_MS * NS_PER_MS)
		return false;
	if (!gathered)
		gathered = loop_timer(agent.loop, GATHER_MS, on_gathered, NULL);
	return true;
}

/* Returns false if there is nothing new. */
static bool
next_piece(struct away *a, struct buf *frame)
{
	static char piece[BULK_PIECE];
	uint64_t offset;
	int stream;
	size_t n;
	ssize_t got;

	if (!spool_next(&a->spool, &a->at, NULL, bulk_piece(BULK_OUTPUT), &stream, &offset, &n))
		return false;
	got = pread(a->spool.fd[stream], piece, n, (off_t)offset);
	/* zeros if it cannot be read; but the index never covers bytes that are missing */
	for (size_t i = got > 0 ? (size_t)got : 0; i < n; i++)
		piece[i] = '\0';
	wire_pack(frame, Noutput, 0, a->slot, 0, (unsigned)stream, a->at.at.records,
	    ((struct slice){piece, n}));
	a->sent = now_ns();
	a->empty = false;
	punch(a, stream);
	spool_trim(&a->spool, &a->cut, &a->at, RECORDS_KEPT);
	return true;
}

/* Returns false if this rank has nothing to say now. It may be gone then. */
static bool
next_of(struct away *a, struct buf *frame)
{
	if (a->late) {
		wire_pack(frame, Nskip, 0, a->slot, 0, a->end.size[SPOOL_STDOUT],
		    a->end.size[SPOOL_STDERR], a->end.size[SPOOL_DISPLAY], a->end.records);
		away_drop(a);
		return true;
	}
	if (!a->news || gathers(a))
		return false;
	if (next_piece(a, frame)) {
		TAILQ_REMOVE(&all, a, link);
		TAILQ_INSERT_TAIL(&all, a, link);
		return true;
	}
	a->news = a->hurry = false;
	a->empty = true;
	if (a->ended)
		away_drop(a);
	return false;
}

bool
away_next(struct buf *frame)
{
	struct away *a, *next;

	for (a = TAILQ_FIRST(&all); a; a = next) {
		next = TAILQ_NEXT(a, link);
		if (next_of(a, frame))
			return true;
	}
	return false;
}
