/* Follows spools with inotify and sends what is new, each rank in turn. */
#include "relay/follow.h"
#include "spool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	KEPT_BEHIND = 64 << 10, /* of what was sent: the agent reads a rank's last words there */
	PUNCHED = 1 << 20,	/* disk space is freed in units of this size */
	RECORDS_KEPT = 1 << 16, /* of the index, or up to twice that */
	GATHER_MS = 5,		/* output within this time of a sent piece goes in one piece */
	QUIT_MS = 1000		/* for sending the last output of a rank that was asked to quit */
};

struct follow {
	TAILQ_ENTRY(follow) link;
	unsigned slot;
	uint64_t tag; /* of the Tspawn */
	char *dir, *name;
	struct spool_reader spool;
	struct spool_cursor at;
	uint64_t punched[SPOOL_STREAMS];
	struct spool_mark cut; /* what spool_trim() drops next */
	int wd;
	uint64_t sent; /* when its last piece was sent */
	bool news, ended;
	bool replaced;		/* its files have been removed, there are those of another */
	bool empty;		/* nothing followed that piece */
	bool hurry;		/* a mark waits for the output so far */
	bool quit;		/* it was asked to quit */
	struct timer *patience; /* drops what is not sent by then */
	struct spool_mark end;	/* of all that it printed, once it has exited */
	struct follows *all;
};

struct follows {
	struct loop *loop;
	struct link *link;
	int inotify;
	struct watch *watch;
	struct timer *gathers;	   /* a piece waits for more bytes; NULL: none */
	TAILQ_HEAD(, follow) list; /* the first is the next to send a piece */
	char piece[LINK_PIECE];
};

static void
on_inotify(void *arg, uint32_t events)
{
	char space[16 << 10] __attribute__((aligned(__alignof__(struct inotify_event))));
	struct follows *fs = arg;
	ssize_t n = read(fs->inotify, space, sizeof(space));
	struct follow *f;

	for (char *p = space; p < space + n;) {
		const struct inotify_event *ev = (const struct inotify_event *)(const void *)p;

		TAILQ_FOREACH (f, &fs->list, link)
			if (f->wd == ev->wd || ev->mask & IN_Q_OVERFLOW)
				f->news = true;
		p += sizeof(*ev) + ev->len;
	}
	link_more(fs->link);
}

struct follows *
follows_new(struct loop *loop, struct link *l, struct err *e)
{
	int inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	struct follows *fs;

	if (inotify < 0) {
		fail_errno(e, "output cannot be followed: inotify (see /proc/sys/fs/inotify)");
		return NULL;
	}
	fs = xcalloc(1, sizeof(*fs));
	fs->loop = loop;
	fs->link = l;
	fs->inotify = inotify;
	fs->watch = loop_fd(loop, fs->inotify, EPOLLIN, on_inotify, fs);
	TAILQ_INIT(&fs->list);
	return fs;
}

static void
destroy(struct follows *fs, struct follow *f)
{
	TAILQ_REMOVE(&fs->list, f, link);
	loop_timer_del(f->patience);
	inotify_rm_watch(fs->inotify, f->wd);
	spool_reader_close(&f->spool);
	free(f->dir);
	free(f->name);
	free(f);
}

void
follows_free(struct follows *fs)
{
	if (!fs)
		return;
	while (!TAILQ_EMPTY(&fs->list))
		destroy(fs, TAILQ_FIRST(&fs->list));
	loop_fd_del(fs->watch);
	loop_timer_del(fs->gathers);
	close(fs->inotify);
	free(fs);
}

static void
remove_files(const struct follow *f)
{
	for (int i = 0; i <= SPOOL_STREAMS && !f->replaced; i++) {
		char *path = xasprintf("%s/%s.%s", f->dir, f->name, spool_names[i]);

		unlink(path);
		free(path);
	}
}

/* What an earlier process has printed may still be on its way: its files go, their contents stay
 * until they are sent. */
static void
replace(struct follows *fs, const struct follow *by)
{
	struct follow *f;

	TAILQ_FOREACH (f, &fs->list, link)
		if (!strcmp(f->dir, by->dir) && !strcmp(f->name, by->name)) {
			remove_files(f);
			f->replaced = true;
		}
}

/* Opens the spools, and watches the index: it changes after each of them. */
static int
open_spools(struct follow *f, struct err *e)
{
	char *order;
	int r = 0;

	if (mkdir(f->dir, 0700) < 0 && errno != EEXIST)
		return fail_errno(e, "%s", f->dir);
	if (spool_reader_open(&f->spool, f->dir, f->name, e) < 0)
		return -e->no;
	order = xasprintf("%s/%s.%s", f->dir, f->name, spool_names[SPOOL_STREAMS]);
	f->wd = inotify_add_watch(f->all->inotify, order, IN_MODIFY);
	if (f->wd < 0)
		r = fail_errno(e, "%s: output can't be followed: inotify", order);
	free(order);
	return r;
}

int
follow_open(
    struct follows *fs, const struct msg *spawn, const char *dir, const char *name, struct err *e)
{
	struct follow *f = xcalloc(1, sizeof(*f));
	int r;

	*f = (struct follow){.all = fs,
	    .slot = spawn->slot,
	    .tag = spawn->tag,
	    .dir = xstrdup(dir),
	    .name = xstrdup(name),
	    .spool = SPOOL_NOT_OPEN,
	    .wd = -1};
	replace(fs, f);
	TAILQ_INSERT_TAIL(&fs->list, f, link);
	r = open_spools(f, e);
	if (r < 0)
		destroy(fs, f);
	return r;
}

/* The rest of its output, if there is any, is dropped. */
static void
on_patience(void *arg)
{
	struct follow *f = arg;
	struct buf b = {0};

	f->patience = NULL;
	wire_put_number(&b, '4', f->slot);
	for (int i = 0; i < SPOOL_STREAMS; i++)
		wire_put_number(&b, '8', f->end.size[i]);
	wire_put_number(&b, '8', f->end.records);
	link_send(f->all->link, PACKET_SKIP, false, (struct slice){b.p, b.n}, (struct slice){0});
	buf_free(&b);
	remove_files(f);
	destroy(f->all, f);
}

static void
be_patient(struct follow *f)
{
	if (f->quit && f->ended && !f->patience)
		f->patience = loop_timer(f->all->loop, QUIT_MS, on_patience, f);
}

/* A mark waits for what the rank has printed so far: sends that without delay. */
static void
hurry(struct follows *fs, unsigned slot)
{
	struct follow *f;

	TAILQ_FOREACH (f, &fs->list, link)
		if (f->slot == slot)
			f->news = f->hurry = true;
	link_more(fs->link);
}

/* Its rank has exited (Nexit), or was not started. */
static void
end(struct follow *f, const struct msg *m)
{
	f->news = f->hurry = f->ended = true;
	wire_unpack(m, Nexit, NULL, NULL, NULL, NULL, &f->end.size[SPOOL_STDOUT],
	    &f->end.size[SPOOL_STDERR], &f->end.size[SPOOL_DISPLAY], &f->end.records);
	be_patient(f);
}

void
follow_told(struct follows *fs, const struct msg *m)
{
	struct wire_many it;
	struct msg each;
	struct follow *f;

	if (m->type == Nmany && wire_many_begin(&it, m, NULL) == 0) {
		while (wire_many_next(&it, &each))
			follow_told(fs, &each);
		wire_many_end(&it);
		return;
	}
	if (m->type == Nmark || m->flags & FLAG_MARK)
		hurry(fs, m->slot);
	if (m->type != Nexit && m->type != Rerror)
		return;
	TAILQ_FOREACH (f, &fs->list, link)
		if (f->slot == m->slot && (m->type == Nexit || f->tag == m->tag))
			end(f, m);
	link_more(fs->link);
}

static void
quit(struct follows *fs, unsigned slot)
{
	struct follow *f;

	TAILQ_FOREACH (f, &fs->list, link)
		if (f->slot == slot) {
			f->quit = true;
			be_patient(f);
		}
}

void
follow_quit(struct follows *fs, const struct msg *m)
{
	struct wire_many it;
	struct msg each;

	if (m->type == Nquit)
		quit(fs, m->slot);
	if (m->type != Nmany || wire_many_begin(&it, m, NULL) < 0)
		return;
	while (wire_many_next(&it, &each))
		if (each.type == Nquit)
			quit(fs, each.slot);
	wire_many_end(&it);
}

/* Frees the disk space of what was sent. */
static void
punch(struct follow *f, int stream)
{
	uint64_t size = f->at.at.size[stream];
	uint64_t to = size > KEPT_BEHIND ? (size - KEPT_BEHIND) / PUNCHED * PUNCHED : 0;

	if (to <= f->punched[stream])
		return;
	if (fallocate(f->spool.fd[stream], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		(off_t)f->punched[stream], (off_t)(to - f->punched[stream])) < 0)
		debug("agent", "fallocate: %s", strerror(errno));
	f->punched[stream] = to;
}

static void
on_gathered(void *arg)
{
	struct follows *fs = arg;

	fs->gathers = NULL;
	link_more(fs->link);
}

/* Should more output be awaited before the next piece is sent? Many small pieces cost both sides,
 * and the encryption between them, more than their bytes do. */
static bool
gathers(struct follows *fs, const struct follow *f)
{
	if (!f->empty || f->hurry || now_ns() - f->sent >= GATHER_MS * 1000000ull)
		return false;
	if (!fs->gathers)
		fs->gathers = loop_timer(fs->loop, GATHER_MS, on_gathered, fs);
	return true;
}

/* Returns false if there is nothing new. */
static bool
send_piece(struct follows *fs, struct follow *f)
{
	struct buf head = {0};
	uint64_t offset;
	int stream;
	size_t n;
	ssize_t got;

	if (!spool_next(&f->spool, &f->at, NULL, link_piece(fs->link), &stream, &offset, &n))
		return false;
	got = pread(f->spool.fd[stream], fs->piece, n, (off_t)offset);
	/* zeros if it cannot be read; but the index never covers bytes that are missing */
	for (size_t i = got > 0 ? (size_t)got : 0; i < n; i++)
		fs->piece[i] = '\0';
	wire_put_number(&head, '4', f->slot);
	wire_put_number(&head, '1', (uint64_t)stream);
	wire_put_number(&head, '8', f->at.at.records);
	link_send(fs->link, PACKET_OUTPUT, true, (struct slice){head.p, head.n},
	    (struct slice){fs->piece, n});
	buf_free(&head);
	f->sent = now_ns();
	f->empty = false;
	punch(f, stream);
	spool_trim(&f->spool, &f->cut, &f->at, RECORDS_KEPT);
	return true;
}

bool
follows_more(struct follows *fs)
{
	struct follow *f, *next;

	for (f = TAILQ_FIRST(&fs->list); f; f = next) {
		next = TAILQ_NEXT(f, link);
		if (!f->news || gathers(fs, f))
			continue;
		if (send_piece(fs, f)) {
			TAILQ_REMOVE(&fs->list, f, link);
			TAILQ_INSERT_TAIL(&fs->list, f, link);
			return true;
		}
		f->news = f->hurry = false;
		f->empty = true;
		if (f->ended) {
			remove_files(f);
			destroy(fs, f);
		}
	}
	return false;
}
