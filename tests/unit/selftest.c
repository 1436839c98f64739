/*
 * Tests of fs/group/selftest.c: the table shows the ranks' measurements, and a self-test is queued,
 * fails and is interrupted as it should be. The test plays the engines, see fake_agent.h.
 */
#include "fake_agent.h"
#include "group/queue.h"
#include "group/selftest.h"
#include <errno.h>
#include <stdlib.h>

static struct task *
begin(struct group *g, struct fake_req *r)
{
	static char two_mib[] = "2M", four[] = "4";
	static char *sizes[] = {two_mib, four};
	struct err e;
	struct task *w = selftest_new(g, sizes, (int)ARRAY_LEN(sizes), &e);

	CHECK(w != NULL);
	task_submit(w);
	fake_step();
	fake_wait(w, r);
	return w;
}

static void
answers(int rank, const char *lines, unsigned wrong)
{
	fake_answer(
	    fake_take(Tselftest, rank), Rselftest, fake_slice(lines), (uint32_t)wrong, (uint32_t)5);
}

/* The text without its first line, which contains the time. */
static char *
table(const struct group *g)
{
	struct buf b = {0};
	char *line;

	selftest_print(g, &b);
	line = strchr(b.p, '\n');
	line = xstrdup(line ? line + 1 : "");
	buf_free(&b);
	return line;
}

static void
check_has(const char *text, const char *what)
{
	if (!strstr(text, what)) {
		fprintf(stderr, "no '%s' in '%s'\n", what, text);
		check_failures++;
	}
}

/* The slowest rank counts, errors add up, the slowest pair is named; the bandwidths are computed as
 * in nccl-tests. */
static void
test_table(void)
{
	struct group *g = fake_begin(3);
	struct fake_req r;
	struct fake_msg *m;
	struct slice sizes;
	uint32_t number;
	char *text;

	begin(g, &r);
	m = fake_take(Tselftest, 0);
	CHECK(m && wire_unpack(&m->m, Tselftest, NULL, &number, &sizes) == 0);
	CHECK(number >= SELFTEST_FIRST && slice_eq(sizes, "2097152 4"));
	fake_answer(m, Rselftest,
	    fake_slice("about gloo\nall_reduce 3000000 750000 float32 1000.0 0\n"
		       "all_gather 3000000 250000 float32 500.0 0\nsendrecv 4 1 float32 10.0 0\n"
		       "pair 1 3000 10.0 0\npair 2 3000 20.0 0\n"),
	    0u, 5u);
	answers(1,
	    "about gloo\nall_reduce 3000000 750000 float32 1500.0 2\n"
	    "all_gather 3000000 250000 float32 100.0 0\nsendrecv 4 1 float32 10.0 0\n"
	    "pair 0 3000 11.0 0\npair 2 3000 30.0 1\n",
	    3);
	CHECK(!r.done);
	answers(2,
	    "about gloo\nall_reduce 3000000 750000 float32 1.0 1\n"
	    "all_gather 3000000 250000 float32 600.0 0\nsendrecv 4 1 float32 10.0 0\n"
	    "pair 0 3000 20.0 0\npair 1 3000 29.0 0\n",
	    1);
	CHECK(r.done && r.result == -EREMOTEIO);
	text = table(g);
	check_has(text, "all_reduce        3000000       750000   float32       1500.0     2.00 "
			"    2.67        3\n");
	check_has(text, "all_gather        3000000       250000   float32        600.0     5.00 "
			"    3.33        0\n");
	check_has(text, "\nerrors 4\nwrong rank=1 all_reduce size=3000000 elements=2\n"
			"wrong rank=1 from=2 size=3000 elements=1\n"
			"wrong rank=2 all_reduce size=3000000 elements=1\n");
	check_has(
	    text, "slowest_pair ranks=1-2 size=3000 time_us=30.0 algbw=0.10 median_algbw=0.15\n");
	free(text);
	fake_end();
}

/* Whatever a rank reports, the table is well formed. */
static void
test_nonsense(void)
{
	struct group *g = fake_begin(2);
	struct fake_req r;
	char *text;

	begin(g, &r);
	answers(0, "pair 0 1 1.0 1\npair 9 1 1.0 1\npair -1 1 1.0 1\nnonsense\n\npair\n", 0);
	answers(1, "all_reduce_with_a_very_long_name 1 1 float32 1.0 0\n", 0);
	CHECK(r.done && r.result == 0);
	text = table(g);
	check_has(text, "errors 0\nslowest_pair -\n");
	free(text);
	fake_end();
}

/* A self-test begins when all ranks are free, on all at once; a rank that fails ends the others'
 * waiting after grace; then the process group is rebuilt. */
static void
test_failure(void)
{
	static const int zero[] = {0};
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "a", 1, zero);
	struct fake_req r;
	struct task *w = begin(g, &r);
	uint32_t number;
	struct fake_msg *m;

	CHECK(fake_count(Tselftest, 1) == 0);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	CHECK_STR(task_state(c->w), "ok");
	CHECK(fake_count(Tselftest, 0) == 1 && fake_count(Tselftest, 1) == 1);
	fake_refuses(fake_take(Tselftest, 1), EREMOTEIO, "no link");
	CHECK(!r.done && fake_count(Nintr, 0) == 0);
	fake_pass(g->set.grace + 0.1);
	m = fake_take(Nintr, 0);
	CHECK(m && wire_unpack(&m->m, Nintr, NULL, &number, NULL) == 0 && number == w->number);
	fake_refuses(fake_take(Tselftest, 0), EINTR, "interrupted");
	CHECK(r.done && r.result == -EREMOTEIO);
	CHECK(g->recovery.generation == 2);
	fake_end();
}

/* An interrupt is for this self-test, and for no later one. */
static void
test_interrupt(void)
{
	struct group *g = fake_begin(1);
	struct fake_req r, again;
	struct task *w = begin(g, &r);
	uint32_t number = w->number;
	struct buf b = {0};

	task_interrupt(w);
	fake_step();
	CHECK(fake_count(Nintr, 0) == 1);
	fake_refuses(fake_take(Tselftest, 0), EINTR, "rank 0: interrupted");
	CHECK(r.done && r.result == -EINTR);
	selftest_print(g, &b);
	check_has(b.p, ": EINTR: rank 0: interrupted\n");
	buf_free(&b);
	w = begin(g, &again);
	CHECK(w->number != number);
	answers(0, "all_reduce 4 1 float32 1.0 0\n", 0);
	CHECK(again.done && again.result == 0);
	fake_end();
}

/* A self-test has a deadline like a cell; one that never began leaves the previous table. */
static void
test_deadline(void)
{
	static const int zero[] = {0};
	struct group *g = fake_begin(1);
	struct fake_req r, dropped;
	struct err gone = {0};
	struct buf b = {0};

	g->set.timeout = 3;
	begin(g, &r);
	fake_pass(2.9);
	CHECK(fake_count(Nintr, 0) == 0);
	fake_pass(0.2);
	CHECK(fake_count(Nintr, 0) == 1);
	fake_refuses(fake_take(Tselftest, 0), EINTR, "rank 0: interrupted");
	CHECK(r.done && r.result == -ETIMEDOUT);
	fake_cell(g, "a", 1, zero);
	begin(g, &dropped);
	fail(&gone, ECANCELED, "dropped");
	queue_drop_all_queued(g, &gone);
	CHECK(dropped.done && dropped.result == -ECANCELED);
	selftest_print(g, &b);
	check_has(b.p, ": ETIMEDOUT: the selftest took longer than timeout 3\n");
	buf_free(&b);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_end();
}

int
main(void)
{
	test_table();
	test_nonsense();
	test_failure();
	test_interrupt();
	test_deadline();
	return CHECK_DONE();
}
