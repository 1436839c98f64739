/*
 * Tests of fs/group/output.c: when the kernel drops inotify's events, live readers of the groups
 * are woken nevertheless, and output is trimmed. What ranks on other hosts print is written here,
 * after what is there already, as far as there is room. The test plays the engines, see
 * fake_agent.h.
 */
#include "fake_agent.h"
#include "base/daemon.h"
#include "group/hooks.h"
#include "group/output.h"
#include "group/registry.h"
#include "group/start.h"
#include "group/task.h"
#include "host/agent.h"
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { KEPT = 1000, PRINTED = 100000, EVENTS_READ = 100 /* at least, in a round of the loop */ };

static struct group *quiet; /* the group whose events are dropped */
static int moved;	    /* how often readers of that group were woken */

static void
on_moved(struct group *g)
{
	moved += g == quiet;
}

/* The number of events that the kernel keeps for a reader. */
static int
most_events(void)
{
	FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
	char line[32] = "";

	CHECK(f && fgets(line, sizeof(line), f));
	if (f)
		fclose(f);
	return atoi(line);
}

static struct spool_writer
writer(struct rank *k)
{
	struct spool_writer w = {0};
	struct err e;
	char name[32];

	snprintf(name, sizeof(name), "rank%d", k->number);
	CHECK(spool_writer_open(&w, k->g->run_dir, name, &e) == 0);
	output_advance(k);
	return w;
}

static void
test_overflow(void)
{
	struct group *loud = fake_begin(2);
	struct spool_writer busy[2], w;
	char *text = calloc(1, PRINTED);
	int events = most_events();
	struct err e;

	CHECK(group_make("quiet", &e) == 0);
	quiet = group_find("quiet");
	start_make_ranks(quiet);
	quiet->set.spool = KEPT;
	for (int i = 0; i < 2; i++)
		busy[i] = writer(&loud->ranks[i]);
	w = writer(&quiet->ranks[0]);
	fake_step();
	group_news.output_moved = on_moved;
	/* in turn, because the kernel merges equal events */
	for (int i = 0; i < events; i++)
		spool_writer_add(&busy[i % 2], SPOOL_STDOUT, ".", 1);
	spool_writer_add(&w, SPOOL_STDOUT, text, PRINTED);
	for (int i = 0; i < events / EVENTS_READ + 2; i++)
		loop_once(daemon_.loop, 0);
	CHECK(moved == 1);
	CHECK(quiet->ranks[0].output.tail.at.size[SPOOL_STDOUT] == PRINTED);
	CHECK(output_size(&quiet->ranks[0], SPOOL_STDOUT) == KEPT);
	for (int i = 0; i < 2; i++)
		spool_writer_close(&busy[i]);
	spool_writer_close(&w);
	free(text);
	fake_end();
}

enum { ROOM = 60 }; /* bytes of a file, when the disk is full */

static void
prints(const struct fake_msg *to, int stream, const char *text)
{
	conn_send(fake_conn, Noutput, 0, to->m.slot, 0, -1, (unsigned)stream, fake_slice(text));
}

/* A cell on rank 0 of another host prints this. Returns where it began and ended on stdout. */
static void
run(struct group *g, const char *text, uint64_t from_to[2])
{
	const int rank = 0;
	struct cell *c = fake_cell(g, "…", 1, &rank);
	struct fake_msg *m = fake_take(Trun, 0);
	struct fake_req r;
	struct subtask *j;

	CHECK(m != NULL);
	/* its own places are those on the other host, which nobody wants to know here */
	conn_send(fake_conn, Nmark, FLAG_ORDERED, m->m.slot, 0, -1, m->m.tag, (uint64_t)1,
	    (uint64_t)2, (uint64_t)3, (uint64_t)4);
	prints(m, SPOOL_STDOUT, text);
	prints(m, SPOOL_STDERR, "!");
	fake_ran(m, OUT_OK, "");
	j = &c->w->subtasks[0];
	from_to[0] = j->begin.size[SPOOL_STDOUT];
	from_to[1] = j->end.size[SPOOL_STDOUT];
	CHECK(j->end.records - j->begin.records == 2);
	fake_wait(c->w, &r);
}

static void
test_another_host(void)
{
	struct group *g = fake_begin(1);
	struct rank *k = &g->ranks[0];
	struct rlimit room, none;
	char kept[ROOM + 6], twos[2 * ROOM + 1] = "";
	struct spool_writer earlier;
	uint64_t from_to[2];
	struct err e;

	memset(twos, '2', sizeof(twos) - 1);
	earlier = writer(k);
	spool_writer_add(&earlier, SPOOL_STDOUT, "old\n", 4);
	spool_writer_close(&earlier);
	rank_agent(k)->hello = HELLO_AWAY;
	CHECK(output_begin(k, &e) == 0);
	run(g, "one\n", from_to);
	CHECK(from_to[0] == 4 && from_to[1] == 8);
	getrlimit(RLIMIT_FSIZE, &room);
	none = (struct rlimit){.rlim_cur = ROOM, .rlim_max = room.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &none);
	run(g, twos, from_to);
	setrlimit(RLIMIT_FSIZE, &room);
	CHECK(from_to[0] == 8 && from_to[1] == ROOM);
	run(g, "three\n", from_to);
	CHECK(from_to[0] == ROOM && from_to[1] == sizeof(kept));
	CHECK(pread(k->output.spool.fd[SPOOL_STDOUT], kept, sizeof(kept), 0) == sizeof(kept));
	CHECK(memcmp(kept, "old\none\n222", 11) == 0);
	CHECK(memcmp(kept + ROOM - 3, "222three\n", 9) == 0);
	CHECK(g->journal.error_count == 1 && strstr(g->journal.errors[0].text, "no room in"));
	fake_end();
}

int
main(void)
{
	test_overflow();
	test_another_host();
	return CHECK_DONE();
}
