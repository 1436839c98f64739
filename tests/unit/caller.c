/*
 * Tests of fs/tree/caller.c: the rank that a process belongs to is found, and a request that would
 * make its caller wait for itself is refused. The ranks' processes are this one and a child of it.
 */
#include "fake_agent.h"
#include "group/queue.h"
#include "tree/caller.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int zero[] = {0}, one[] = {1};

/* A child that lives until it is killed or this process exits. */
static pid_t
child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	CHECK(pid > 0);
	return pid;
}

static void
end_child(pid_t pid)
{
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

/* Two ranks: rank 0 is this process, rank 1 is `other`. */
static struct group *
begin(pid_t other)
{
	struct group *g = fake_begin(2);

	g->ranks[0].pid = getpid();
	g->ranks[1].pid = other;
	return g;
}

static int
check(struct group *g, pid_t process, const int *ranks, int n)
{
	struct fake_req r = {.process = process};
	struct err e = {0};
	struct rank_set set = fake_set(n, ranks);
	int result = caller_check(g, &r.r, &set, &e);

	if (result == -EDEADLK)
		CHECK(strstr(e.text, "would wait for its own"));
	else
		CHECK_STR(e.text, "");
	return result;
}

static void
test_whose(void)
{
	pid_t mine = child(), other = child();
	struct group *g = begin(other);

	CHECK(caller_rank(getpid()) == &g->ranks[0]);
	CHECK(caller_rank(mine) == &g->ranks[0]);
	CHECK(caller_rank(other) == &g->ranks[1]);
	CHECK(caller_rank(getppid()) == NULL);
	CHECK(caller_rank(0) == NULL && caller_rank(1) == NULL);
	end_child(mine);
	CHECK(caller_rank(mine) == NULL); /* it has exited */
	end_child(other);
	fake_end();
}

/* A rank that is running a cell must not wait for itself; an idle rank may, and so may any other
 * process. */
static void
test_itself(void)
{
	pid_t other = child();
	struct group *g = begin(other);
	struct cell *c;

	CHECK(check(g, getpid(), NULL, 0) == 0);
	c = fake_cell(g, "cat cell", 1, zero);
	CHECK(check(g, getpid(), NULL, 0) == -EDEADLK);
	CHECK(check(g, getpid(), zero, 1) == -EDEADLK);
	CHECK(check(g, getpid(), one, 1) == 0);
	CHECK(check(g, other, NULL, 0) == 0);
	CHECK(check(g, getppid(), NULL, 0) == 0);
	CHECK(check(g, 0, NULL, 0) == 0);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	CHECK_STR(task_state(c->w), "ok");
	CHECK(check(g, getpid(), NULL, 0) == 0);
	end_child(other);
	fake_end();
}

/* Rank 0 waits for a cell of rank 1: from now on rank 1 must not wait for rank 0. */
static void
test_each_other(void)
{
	pid_t other = child();
	struct group *g = begin(other);
	struct fake_req waits = {.process = getpid()};
	struct cell *first = fake_cell(g, "cat rank1/cell", 1, zero),
		    *second = fake_cell(g, "cat rank0/cell", 1, one);

	CHECK(check(g, other, zero, 1) == 0);
	CHECK(task_wait(second->w, &waits.r) == PARKED);
	CHECK(check(g, other, zero, 1) == -EDEADLK);
	CHECK(check(g, other, one, 1) == -EDEADLK);
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	CHECK(waits.done && waits.result == 0);
	CHECK(check(g, other, zero, 1) == 0);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	CHECK_STR(task_state(first->w), "ok");
	end_child(other);
	fake_end();
}

/* A process that has made requests before becomes a rank: what was cached for it must not hide
 * that. */
static void
test_joins(void)
{
	pid_t other = child();
	struct group *g = begin(other);
	struct cell *c = fake_cell(g, "cat rank1/cell", 1, one);

	CHECK(check(g, getppid(), one, 1) == 0);
	CHECK(check(g, getppid(), one, 1) == 0);
	g->ranks[1].pid = getppid();
	CHECK(check(g, getppid(), one, 1) == -EDEADLK);
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	CHECK_STR(task_state(c->w), "ok");
	end_child(other);
	fake_end();
}

/* A cell needs all its ranks, and so does whatever is queued behind it. */
static void
test_queued(void)
{
	pid_t other = child();
	struct group *g = begin(other);
	struct cell *runs = fake_cell(g, "runs", 1, zero),
		    *queued = fake_cell(g, "queued", 0, NULL);
	struct fake_req r = {.process = getpid()};
	struct err e = {0};

	CHECK(caller_check_cell(runs, &r.r, &e) == -EDEADLK);
	CHECK(caller_check_cell(queued, &r.r, &e) == -EDEADLK);
	CHECK(check(g, getpid(), one, 1) == -EDEADLK); /* rank 1 begins `queued` with rank 0 */
	r.process = getppid();
	CHECK(caller_check_cell(queued, &r.r, &e) == 0);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	r.process = getpid();
	CHECK(caller_check_cell(runs, &r.r, &e) == 0); /* that cell has ended */
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	fake_ran(fake_take(Trun, 1), OUT_OK, "");
	end_child(other);
	fake_end();
}

/* No rank may wait for its own group to stop or restart; other processes may. */
static void
test_group(void)
{
	pid_t other = child();
	struct group *g = begin(other);
	struct fake_req r = {.process = other};
	struct err e = {0};

	CHECK(caller_check_group(g, &r.r, &e) == -EDEADLK);
	CHECK(strstr(e.text, "rank 1 belongs to this group"));
	r.process = getppid();
	CHECK(caller_check_group(g, &r.r, &e) == 0);
	end_child(other);
	fake_end();
}

int
main(void)
{
	test_whose();
	test_itself();
	test_each_other();
	test_joins();
	test_queued();
	test_group();
	return CHECK_DONE();
}
