/* Tests of fs/group/facts.c: which ranks can form a group, with which backend, and what is said of
 * those that cannot. The test plays the engines, see fake_agent.h. */
#include "fake_agent.h"
#include "group/facts.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/rank.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define ENGINE "engine " DDIP_VERSION "\n"
#define CPU "python 3.11.7\nexecutable /v/bin/python\ntorch 2.13.0+cpu\ngpus 0\n" ENGINE "cwd /w\n"
#define GPU "python 3.11.7\ntorch 2.13.0+cu130\ncuda 13.0\nnccl 2.27.7\ngpus 2\n" ENGINE
#define PLAIN "python 3.11.2\n" ENGINE "cwd /w\n"

/* A group of two ranks whose Pythons report this. */
static struct group *
group_with(const char *backend, const char *first, const char *second)
{
	struct group *g = fake_begin(2);

	free(g->set.backend);
	g->set.backend = xstrdup(backend);
	facts_forget_backend(g);
	facts_set(&g->ranks[0], fake_slice(first));
	facts_set(&g->ranks[1], fake_slice(second));
	return g;
}

/* Two such ranks form a group with the backend `chosen`; NULL: they are refused, and `said` is part
 * of the text. Whichever is first. */
static void
expect(const char *backend, const char *a, const char *b, const char *chosen, const char *said)
{
	for (int swapped = 0; swapped < 2; swapped++) {
		struct group *g = group_with(backend, swapped ? b : a, swapped ? a : b);
		struct err e = {0};
		int r = facts_check(g, &e);

		CHECK(r == (chosen ? 0 : -EPROTO));
		if (chosen)
			CHECK_STR(facts_backend(g), chosen);
		else if (!strstr(e.text, said))
			CHECK_STR(e.text, said);
		fake_end();
	}
}

static void
test_backend(void)
{
	expect("auto", CPU, CPU, "gloo", NULL);
	expect("auto", GPU, GPU, "nccl", NULL);
	expect("auto", PLAIN, PLAIN, "none", NULL);
	expect("auto", "", "", "auto", NULL); /* nothing is known */
	expect("gloo", GPU, GPU, "gloo", NULL);
	expect("none", GPU, PLAIN, "none", NULL);
	/* too few GPUs for the ranks of the host, or none */
	expect("auto", GPU,
	    "python 3.11.7\ntorch 2.13.0+cu130\ncuda 13.0\nnccl 2.27.7\ngpus 1\n" ENGINE, NULL,
	    "write `backend gloo`");
	expect("auto", GPU, CPU, NULL, "NCCL cannot be used everywhere");
	expect("nccl", GPU, CPU, NULL, "NCCL cannot be used everywhere");
	expect("gloo", GPU, CPU, "gloo", NULL);
}

static void
test_versions(void)
{
	expect("auto", CPU, PLAIN, NULL, "torch is not everywhere");
	expect("gloo", CPU, PLAIN, NULL, "torch is not everywhere");
	expect("nccl", GPU, PLAIN, NULL, "torch is not everywhere");
	expect("auto", CPU, "torch 2.8.0+cpu\ngpus 0\n" ENGINE, NULL, "same minor version");
	expect("auto", CPU, "torch 2.1.3\ngpus 0\n" ENGINE, NULL, "same minor version");
	expect("none", CPU, "torch 2.8.0+cpu\ngpus 0\n" ENGINE, "none", NULL);
	expect("auto", CPU, "torch 2.13.1\ngpus 0\n" ENGINE, "gloo", NULL);
	expect("auto", GPU, "torch 2.13.0+cu130\ncuda 13.0\nnccl 2.28.1\ngpus 2\n" ENGINE, NULL,
	    "NCCL must have the same version");
	expect("gloo", GPU, "torch 2.13.0+cu130\ncuda 13.0\nnccl 2.28.1\ngpus 2\n" ENGINE, "gloo",
	    NULL);
	expect("auto", GPU, "torch 2.13.0+cu126\ncuda 12.6\nnccl 2.27.7\ngpus 2\n" ENGINE, "nccl",
	    NULL);
	expect("none", PLAIN, "python 3.11.2\nengine 0.0\ncwd /w\n", NULL, "this version");
}

/* What a rank reports is a stranger's: nothing of it breaks a line or a column. */
static void
test_columns(void)
{
	struct group *g = group_with("none", "cwd /a b\\c\td\ntorch\n \n\nx y\ncwd /second\n", "");
	struct buf b = {0};
	struct record columns = {.out = &b, .form = RECORD_WORDS};
	char *much = xcalloc(1, 20000);

	record_begin(&columns, NULL);
	record_number(&columns, "rank", 0);
	facts_print(g->ranks[0].facts, &columns);
	CHECK_STR(b.p, "0 python=- executable=- torch=- cuda=- nccl=- gpus=- engine=- "
		       "cwd=/a\\040b\\134c\\011d");
	CHECK(!g->ranks[1].facts);
	memset(much, 'x', 19999);
	facts_set(&g->ranks[1], fake_slice(much));
	CHECK(!g->ranks[1].facts);
	facts_set(&g->ranks[0], fake_slice(CPU));
	facts_set(&g->ranks[1], fake_slice(CPU));
	CHECK(g->ranks[0].facts == g->ranks[1].facts);
	free(much);
	buf_free(&b);
	fake_end();
}

/* Ranks that do not fit are ended before they join, and who waits for the start gets the table. */
static void
test_start(void)
{
	struct group *g = fake_begin(3);
	struct fake_req r = {0};
	struct err e = {0};

	free(g->set.backend);
	g->set.backend = xstrdup("gloo");
	fake_set_facts(0, CPU);
	fake_set_facts(1, CPU);
	fake_set_facts(2, PLAIN);
	CHECK(lifecycle_restart(g, &e) == 0);
	if (lifecycle_wait(g, &r.r, true) != PARKED)
		CHECK(false);
	for (int i = 0; i < 3; i++)
		fake_dies(i, 0);
	fake_step();
	CHECK_STR(lifecycle_state_name(g), "stopping");
	for (int i = 0; i < 3; i++)
		fake_dies(i, 0);
	conn_send(fake_conn, Nexit, 0, (unsigned)g->store.slot, 0, -1, (uint32_t)g->store.pid,
	    (uint32_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0);
	fake_step();
	CHECK_STR(lifecycle_state_name(g), "stopped");
	CHECK(r.done);
	CHECK(r.result == -EPROTO);
	CHECK(strstr(g->life.start_error.text,
		  "\n  rank 0, 1: python=3.11.7 torch=2.13.0+cpu cuda=- nccl=- gpus=0 "
		  "engine=" DDIP_VERSION
		  "\n  rank 2: python=3.11.2 torch=- cuda=- nccl=- gpus=- engine=" DDIP_VERSION) !=
	      NULL);
	CHECK_STR(g->journal.errors[g->journal.error_count - 1].text, g->life.start_error.text);
	fake_end();
}

int
main(void)
{
	test_backend();
	test_versions();
	test_columns();
	test_start();
	return CHECK_DONE();
}
