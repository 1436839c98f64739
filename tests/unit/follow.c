/* Tests of engine/relay/follow.c: small output gathers for a while, unless a mark waits for it;
 * each process has its own spools. */
#include "relay/follow.h"
#include "check.h"
#include "spool.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2 };

static struct spool_writer spools[RANKS];
static struct loop *loop;
static struct follows *follows;

static time_t now = 1;

/* Replaces libc's: time passes when the test says so. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	*t = (struct timespec){.tv_sec = now};
	return 0;
}

/* In place of link.c: there is always room. */
void
link_send(struct link *l, int type, bool bulk, struct slice head, struct slice body)
{
}

void
link_more(struct link *l)
{
}

size_t
link_piece(const struct link *l)
{
	return LINK_PIECE;
}

/* Each rank prints something, and inotify reports it. */
static void
print(void)
{
	for (int i = 0; i < RANKS; i++)
		spool_writer_add(&spools[i], SPOOL_STDOUT, "x\n", 2);
	loop_once(loop, 0);
}

/* The number of pieces that are sent now. */
static int
pieces(void)
{
	int n = 0;

	while (follows_more(follows))
		n++;
	return n;
}

static void
tell(const struct buf *frame)
{
	struct msg m;

	CHECK(wire_frame(frame->p, frame->n, &m, NULL) > 0);
	follow_told(follows, &m);
}

/* Marks of several ranks that end at the same time come as one message. */
static void
test_marks(void)
{
	struct buf mark = {0}, who = {0}, many = {0};

	print();
	CHECK(pieces() == RANKS);
	print();
	CHECK(pieces() == 0);
	wire_pack(
	    &mark, Nmark, 0, 1, 0, (uint64_t)5, (uint64_t)4, (uint64_t)0, (uint64_t)0, (uint64_t)2);
	tell(&mark);
	CHECK(pieces() == 1);
	for (unsigned slot = 0; slot < RANKS; slot++)
		wire_many_add(&who, slot, 0, (struct slice){0});
	wire_pack(&many, Nmany, 0, SLOT_AGENT, 0, 0u, ((struct slice){who.p, who.n}),
	    ((struct slice){mark.p, mark.n}));
	print();
	CHECK(pieces() == 0);
	tell(&many);
	CHECK(pieces() == RANKS);
	buf_free(&mark);
	buf_free(&who);
	buf_free(&many);
}

/* The next process of a rank begins with empty spools, while output of the last one is on its way;
 * those are there still when that is over. */
static void
test_next_process(const char *dir)
{
	struct msg spawn = {.type = Tspawn, .slot = RANKS, .tag = 2};
	char *order = xasprintf("%s/r0.order", dir);
	struct buf end = {0};
	struct stat st;
	struct err e = {0};

	now++;
	print();
	CHECK(follow_open(follows, &spawn, dir, "r0", &e) == 0);
	CHECK(stat(order, &st) == 0 && st.st_size == 0);
	wire_pack(&end, Nexit, 0, 0, 0, 1u, 0u, slice_text(""), spools[0].at.size[SPOOL_STDOUT],
	    (uint64_t)0, (uint64_t)0, spools[0].at.records);
	tell(&end);
	CHECK(pieces() == RANKS);
	spool_writer_close(&spools[0]);
	CHECK(spool_writer_open(&spools[0], dir, "r0", &e) == 0);
	CHECK(spools[0].at.records == 0 && access(order, F_OK) == 0);
	now++;
	print();
	CHECK(pieces() == RANKS);
	buf_free(&end);
	free(order);
}

int
main(void)
{
	char dir[] = "/tmp/ddip-unit.XXXXXX", *command;
	struct err e = {0};

	loop = loop_new();
	follows = follows_new(loop, NULL, &e);
	CHECK(follows && mkdtemp(dir));
	for (int i = 0; i < RANKS; i++) {
		struct msg spawn = {.type = Tspawn, .slot = (uint32_t)i, .tag = 1};
		char name[] = {'r', (char)('0' + i), '\0'};

		CHECK(follow_open(follows, &spawn, dir, name, &e) == 0);
		CHECK(spool_writer_open(&spools[i], dir, name, &e) == 0);
	}
	test_marks();
	test_next_process(dir);
	for (int i = 0; i < RANKS; i++)
		spool_writer_close(&spools[i]);
	follows_free(follows);
	loop_free(loop);
	command = xasprintf("rm -r %s", dir);
	CHECK(system(command) == 0);
	free(command);
	return CHECK_DONE();
}
