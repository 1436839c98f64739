/*
 * Tests of fs/group/output.c: when the kernel drops inotify's events, live readers of the groups
 * are woken nevertheless, and output is trimmed. The test plays the engines, see fake_agent.h.
 */
#include "fake_agent.h"
#include "base/daemon.h"
#include "group/hooks.h"
#include "group/output.h"
#include "group/registry.h"
#include "group/start.h"
#include <stdio.h>
#include <stdlib.h>
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

int
main(void)
{
	test_overflow();
	return CHECK_DONE();
}
