/* Tests of engine/agent/away.c: small output gathers for a while, unless a message waits for it; a
 * message comes after what was printed before it, and before what was printed later; each process
 * has its own spools. */
#include "agent/agent.h"
#include "check.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2 };

struct agent agent;

static struct engine ranks[RANKS + 1]; /* the last is another process of the first */
static struct msg last;		       /* that was sent */
static struct buf types;	       /* of all that were sent since it was cleared */
static time_t now = 1;

/* Replaces libc's: time passes when the test says so. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	*t = (struct timespec){.tv_sec = now};
	return 0;
}

/* The test takes what there is. */
static bool
take_none(void *arg, struct buf *frame)
{
	return false;
}

static void
begin(unsigned i, char *dir, char *name)
{
	struct engine *e = &ranks[i];
	struct err err = {0};

	e->slot = i;
	e->dir = dir;
	e->name = name;
	CHECK((e->output.away = away_open(e, &err)) != NULL);
	CHECK(spool_writer_open(&e->output.spool, dir, name, &err) == 0);
	CHECK(e->output.spool.at.records == 0);
}

/* Each rank prints something. */
static void
print(void)
{
	for (int i = 0; i < RANKS; i++) {
		spool_writer_add(&ranks[i].output.spool, SPOOL_STDOUT, "x\n", 2);
		away_news(ranks[i].output.away);
	}
}

/* An Nmark for what this rank has printed up to now. */
static void
mark(unsigned i, uint64_t tag)
{
	struct engine *e = &ranks[i];
	struct spool_mark at = spool_writer_cut(&e->output.spool);
	struct buf frame = {0};
	struct msg m;

	wire_pack(&frame, Nmark, FLAG_ORDERED, e->slot, 0, tag, at.size[0], at.size[1], at.size[2],
	    at.records);
	wire_frame(frame.p, frame.n, &m, NULL);
	away_say(e->output.away, &m, &at);
	buf_free(&frame);
}

/* The number of messages that are sent now. */
static int
sent(void)
{
	static struct buf frames; /* with the last */
	struct buf next = {0};
	int n = 0;

	loop_once(agent.loop, 0); /* ends a round */
	while (away_next(NULL, &next)) {
		long size;

		buf_free(&frames);
		frames = next;
		next = (struct buf){0};
		for (size_t at = 0; at < frames.n; at += (size_t)size, n++) {
			size = wire_frame(frames.p + at, frames.n - at, &last, NULL);
			CHECK(size > 0);
			buf_addc(&types, last.type == Noutput ? 'o'
					 : last.type == Nmany ? 'M'
							      : 'm');
		}
		loop_once(agent.loop, 0);
	}
	buf_free(&next);
	return n;
}

static void
test_marks(void)
{
	print();
	CHECK(sent() == RANKS);
	print();
	CHECK(sent() == 0);
	buf_clear(&types);
	mark(1, 7);
	CHECK(sent() == 2 && last.type == Nmark && last.slot == 1);
	mark(0, 7);
	CHECK(sent() == 2 && last.slot == 0);
	mark(0, 8);
	CHECK(sent() == 1 && last.type == Nmark && last.slot == 0);
	CHECK(strcmp(types.p, "omomm") == 0);
}

/* Equal messages of ranks without new output are one, and come before what is printed later. */
static void
test_order(void)
{
	now++;
	buf_clear(&types);
	mark(0, 9);
	mark(1, 9);
	print();
	mark(0, 10);
	print();
	CHECK(sent() == 5);
	CHECK(strcmp(types.p, "Momoo") == 0 || strcmp(types.p, "Moomo") == 0);
	now++;
}

/* The next process of a rank begins with empty spools, while output of the last one is on its way;
 * those are there still when that is over. */
static void
test_next_process(char *dir)
{
	char *order = xasprintf("%s/r0.order", dir);
	struct engine *old = &ranks[0], *e = &ranks[RANKS];
	struct stat st;

	now++;
	print();
	begin(RANKS, dir, old->name);
	CHECK(stat(order, &st) == 0 && st.st_size == 0);
	mark(0, 1);
	away_end(old->output.away);
	old->output.away = NULL;
	CHECK(sent() == RANKS + 1);
	spool_writer_add(&e->output.spool, SPOOL_STDERR, "y\n", 2);
	away_news(e->output.away);
	CHECK(sent() == 1 && last.slot == RANKS && access(order, F_OK) == 0);
	free(order);
}

/* What is not sent a while after the end of a rank that was asked to quit is skipped. */
static void
test_quit(void)
{
	struct engine *e = &ranks[1];
	struct buf frames = {0};
	uint64_t bytes;
	struct msg m;

	now++;
	print();
	away_quit(e->slot);
	mark(1, 2);
	away_end(e->output.away);
	e->output.away = NULL;
	loop_once(agent.loop, 0); /* the clock stands still */
	now += 2;
	loop_once(agent.loop, 0);
	CHECK(away_next(NULL, &frames));
	CHECK(wire_frame(frames.p, frames.n, &m, NULL) > 0 && m.slot == e->slot);
	CHECK(wire_unpack(&m, Ndropped, NULL, &bytes, NULL) == 0 && bytes == 2);
	CHECK(sent() == 1 && last.type == Nmark && last.slot == e->slot);
	CHECK(sent() == 0);
	buf_free(&frames);
}

/* A rank claims that a descriptor comes with its message; somebody truncates its files: a message
 * that waits comes nevertheless, and nothing comes twice. */
static void
test_harm(void)
{
	struct engine *e = &ranks[RANKS];
	struct msg lie = {
	    .type = Ntaken, .flags = FLAG_ORDERED | FLAG_FD, .fd = -1, .body = "\1\0\0"};
	struct msg more = lie;

	lie.len = more.len = 4;
	now++;
	buf_clear(&types);
	spool_writer_add(&e->output.spool, SPOOL_STDOUT, "z\n", 2);
	away_news(e->output.away);
	CHECK(ftruncate(e->output.spool.order, 0) == 0);
	mark(RANKS, 3);
	lie.slot = more.slot = e->slot;
	away_say(e->output.away, &lie, NULL);
	sent();
	CHECK(last.type == Ntaken && !(last.flags & FLAG_FD));
	away_say(e->output.away, &more, NULL);
	CHECK(sent() == 1 && last.type == Ntaken);
	CHECK(sent() == 0);
}

int
main(void)
{
	char dir[] = "/tmp/ddip-unit.XXXXXX", names[RANKS][3] = {"r0", "r1"};
	int pair[2];

	agent.loop = loop_new();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	agent.bulk[LANE_OUTPUT] = bulk_new(agent.loop, pair[0], NULL, BULK_PIECE, take_none, NULL);
	CHECK(mkdtemp(dir) != NULL);
	for (unsigned i = 0; i < RANKS; i++)
		begin(i, dir, names[i]);
	test_marks();
	test_order();
	test_next_process(dir);
	test_quit();
	test_harm();
	for (int i = 0; i <= RANKS; i++)
		spool_writer_close(&ranks[i].output.spool);
	away_drop(ranks[RANKS].output.away);
	CHECK(rmdir(dir) == 0);
	loop_free(agent.loop);
	return CHECK_DONE();
}
