/* Tests of engine/agent/away.c: small output gathers for a while, unless a mark waits for it; each
 * process has its own spools. */
#include "agent/agent.h"
#include "check.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2 };

struct agent agent;

static struct engine ranks[RANKS + 1]; /* the last is another process of the first */
static struct msg last;		       /* that was sent */
static time_t now = 1;

/* Replaces libc's: time passes when the test says so. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	*t = (struct timespec){.tv_sec = now};
	return 0;
}

/* In place of bulk.c: the test takes what there is. */
void
bulk_ready(enum bulk_kind kind)
{
}

size_t
bulk_piece(enum bulk_kind kind)
{
	return BULK_PIECE;
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
		away_news(ranks[i].output.away, false);
	}
}

/* The number of messages that are sent now. */
static int
sent(void)
{
	static struct buf frame; /* of the last */
	struct buf next = {0};
	int n = 0;

	for (; away_next(&next); n++) {
		buf_free(&frame);
		frame = next;
		next = (struct buf){0};
		CHECK(wire_frame(frame.p, frame.n, &last, NULL) == (long)frame.n);
	}
	return n;
}

static void
test_marks(void)
{
	print();
	CHECK(sent() == RANKS);
	print();
	CHECK(sent() == 0);
	away_news(ranks[1].output.away, true);
	CHECK(sent() == 1 && last.type == Noutput && last.slot == 1);
	away_news(ranks[0].output.away, true);
	CHECK(sent() == 1 && last.slot == 0);
	away_news(ranks[0].output.away, true);
	CHECK(sent() == 0);
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
	away_end(old->output.away, &old->output.spool.at);
	old->output.away = NULL;
	CHECK(sent() == RANKS);
	spool_writer_add(&e->output.spool, SPOOL_STDERR, "y\n", 2);
	away_news(e->output.away, false);
	CHECK(sent() == 1 && last.slot == RANKS && access(order, F_OK) == 0);
	free(order);
}

/* What is not sent a while after the end of a rank that was asked to quit is skipped. */
static void
test_quit(void)
{
	struct engine *e = &ranks[1];
	struct spool_mark end;

	now++;
	print();
	away_quit(e->slot);
	end = e->output.spool.at;
	away_end(e->output.away, &end);
	e->output.away = NULL;
	loop_once(agent.loop, 0); /* the clock stands still */
	now += 2;
	loop_once(agent.loop, 0);
	CHECK(sent() == 1 && last.type == Nskip && last.slot == e->slot);
	CHECK(wire_unpack(&last, Nskip, NULL, &end.size[SPOOL_STDOUT], NULL, NULL, NULL) == 0);
	CHECK(end.size[SPOOL_STDOUT] == e->output.spool.at.size[SPOOL_STDOUT]);
	CHECK(sent() == 0);
}

int
main(void)
{
	char dir[] = "/tmp/ddip-unit.XXXXXX", names[RANKS][3] = {"r0", "r1"};

	agent.loop = loop_new();
	CHECK(mkdtemp(dir) != NULL);
	for (unsigned i = 0; i < RANKS; i++)
		begin(i, dir, names[i]);
	test_marks();
	test_next_process(dir);
	test_quit();
	for (int i = 0; i <= RANKS; i++)
		spool_writer_close(&ranks[i].output.spool);
	away_drop(ranks[RANKS].output.away);
	CHECK(rmdir(dir) == 0);
	loop_free(agent.loop);
	return CHECK_DONE();
}
