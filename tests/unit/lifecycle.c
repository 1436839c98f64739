/*
 * Tests of fs/group/lifecycle.c and recovery.c: start, stop and restart lead to the right states
 * and answer the requests that wait for them, and the process group is rebuilt when it must be. The
 * test plays the engines, see fake_agent.h.
 */
#include "fake_agent.h"
#include "group/host.h"
#include "group/hosts.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/recovery.h"
#include "group/registry.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void
wait_as(struct group *g, struct fake_req *r, bool for_start)
{
	int now;

	*r = (struct fake_req){0};
	now = lifecycle_wait(g, &r->r, for_start);
	if (now != PARKED)
		req_done(&r->r, now);
}

/* Waits as a client does for what it asked of the group. */
static void
wait_for(struct group *g, struct fake_req *r)
{
	wait_as(g, r, false);
}

static void
all_die(struct group *g)
{
	for (int i = 0; i < g->size; i++)
		fake_dies(i, 0);
}

/* Stop first asks the ranks to quit, kills those that do not, and is done when the last one has
 * ended. */
static void
test_stop(void)
{
	struct group *g = fake_begin(2);
	struct fake_req r;
	struct err e = {0};

	CHECK(lifecycle_stop(g, &e) == 0);
	wait_for(g, &r);
	fake_step();
	CHECK_STR(lifecycle_state_name(g), "stopping");
	CHECK(fake_count(Nquit, 0) == 1 && fake_count(Nquit, 1) == 1);
	fake_dies(0, 0);
	CHECK(!r.done);
	fake_pass(2.1);
	CHECK(fake_count(Nsignal, 0) == 0 && fake_count(Nsignal, 1) == 1);
	fake_dies(1, SIGKILL);
	CHECK(r.done && r.result == 0);
	CHECK_STR(lifecycle_state_name(g), "stopped");
	CHECK(lifecycle_accepts(g, &e) == -ESRCH);
	fake_end();
}

/* A client that asked for a start gets an error when another's stop overtakes it; the one that
 * stops does not. */
static void
test_start_called_off(void)
{
	struct group *g = fake_begin(1);
	struct fake_req start, stop, late;
	struct err e = {0};

	CHECK(lifecycle_restart(g, &e) == 0);
	wait_as(g, &start, true);
	CHECK(lifecycle_stop(g, &e) == 0);
	wait_for(g, &stop);
	fake_step();
	CHECK(!start.done && !stop.done);
	fake_dies(0, 0);
	CHECK(start.done && start.result == -ECANCELED);
	CHECK(stop.done && stop.result == 0);
	wait_as(g, &late, true);
	CHECK(late.done && late.result == -ECANCELED);
	fake_end();
}

static int
set_hosts(struct group *g, const char *words)
{
	struct hostlist list;
	struct err e = {0};
	int r = hostlist_words(words, &list, &e);

	CHECK(r == 0);
	r = hosts_set(g, &list, &e);
	hostlist_free(&list);
	return r;
}

/* Stops the running group and asks for its start on hosts. */
static void
on_host(struct group *g, const char *words, const char *backend)
{
	struct err e = {0};

	lifecycle_stop(g, &e);
	all_die(g);
	free(g->set.hosts.launcher);
	g->set.hosts.launcher = xstrdup("here");
	free(g->set.backend);
	g->set.backend = xstrdup(backend);
	CHECK(set_hosts(g, words) == 0);
	CHECK(lifecycle_start(g, &e) == 0);
}

/* A host that reports no ends of ranks is given up, and the stop is done. */
static void
test_stop_of_a_silent_host(void)
{
	struct group *g = fake_begin(2);
	struct fake_req r;
	struct err e = {0};

	on_host(g, "a:2", "none");
	fake_step();
	lifecycle_stop(g, &e);
	wait_for(g, &r);
	fake_pass(2.1);
	CHECK(fake_count(Nsignal, 0) == 1 && fake_count(Nsignal, 1) == 1);
	fake_pass(9);
	CHECK(!r.done);
	fake_pass(2);
	CHECK(r.done && r.result == 0);
	CHECK_STR(lifecycle_state_name(g), "stopped");
	fake_end();
}

/* So is a host that has reported the ends of all ranks but not the store's; until then it cannot be
 * left out of the hosts. */
static void
test_stop_of_a_silent_store(void)
{
	struct group *g = fake_begin(2);
	struct fake_req r;
	struct err e = {0};

	on_host(g, "a:2", "gloo");
	fake_step();
	lifecycle_stop(g, &e);
	wait_for(g, &r);
	all_die(g);
	CHECK_STR(lifecycle_state_name(g), "stopping");
	CHECK(set_hosts(g, "b:2") == -EINVAL);
	CHECK(set_hosts(g, "b:2 a:1") == 0);
	fake_pass(13);
	CHECK(r.done && r.result == 0);
	CHECK_STR(lifecycle_state_name(g), "stopped");
	CHECK(set_hosts(g, "b:2") == 0);
	fake_end();
}

/* The ranks meet at the host of the store, also when rank 0 has moved to another one. */
static void
test_store_stays(void)
{
	struct group *g = fake_begin(2);
	struct buf master = {0};

	on_host(g, "a:2", "gloo");
	fake_step();
	CHECK(set_hosts(g, "a:2 b:1") == 0);
	strcpy(g->set.hosts.launcher, "ssh"); /* so that hosts have names of their own */
	g->ranks[0].host = g->hosts.list[1];
	host_env_master(g, &master);
	CHECK_STR(master.p, "a");
	buf_free(&master);
	g->ranks[0].host = g->hosts.list[0];
	fake_end();
}

static void
ignore_notice(void *arg, struct msg *m)
{
}

static void
count_end(void *arg, const struct err *why)
{
	++*(int *)arg;
}

/* A host on which another group has ranks is not given up for the stop of this one, connected or
 * not: while it lingers it may reconnect. */
static void
test_stop_of_a_shared_host(void)
{
	static const struct slot_ops other = {ignore_notice, NULL, count_end};

	for (int connected = 0; connected < 2; connected++) {
		struct group *g = fake_begin(2);
		struct fake_req r;
		struct err e = {0};
		struct agent *a;
		int ended = 0;

		on_host(g, "a:2", "none");
		fake_step();
		a = g->hosts.list[0]->agent;
		a->hello = a->here = connected;
		CHECK(agent_slot(a, &other, &ended) >= 0);
		lifecycle_stop(g, &e);
		wait_for(g, &r);
		fake_pass(100);
		CHECK(!r.done && ended == 0);
		all_die(g);
		CHECK(r.done && r.result == 0 && ended == 0);
		fake_end();
	}
}

/* A group is removed together with its agents while they do not respond: no part of it is created
 * again. */
static void
test_end_of_silent_hosts(void)
{
	for (int answers = 0; answers < 2; answers++) {
		struct group *g = fake_begin(2);
		struct err e = {0};

		on_host(g, "a:2", "gloo");
		if (answers)
			fake_step();
		lifecycle_stop(g, &e);
		CHECK_STR(lifecycle_state_name(g), "stopping");
		group_ref(g);
		fake_end();
		CHECK(g->size == 0);
		CHECK_STR(lifecycle_state_name(g), "stopping");
		group_unref(g);
	}
}

/* A restart that gives a host up starts each of its ranks once, and the group works. */
static void
test_restart_of_a_silent_host(void)
{
	struct group *g = fake_begin(3);
	struct fake_req r;
	struct err e = {0};

	on_host(g, "a:3", "gloo");
	fake_step();
	CHECK(lifecycle_restart(g, &e) == 0);
	wait_for(g, &r);
	fake_pass(2.1);
	CHECK_STR(lifecycle_state_name(g), "restarting");
	fake_pass(11);
	CHECK(r.done && r.result == 0);
	CHECK_STR(lifecycle_state_name(g), "idle");
	fake_cell(g, "a", 0, NULL);
	for (int i = 0; i < g->size; i++)
		CHECK(fake_count(Trun, i) == 1);
	fake_end();
}

/* Restart is a stop followed by a start; cells submitted in the meantime run after it. */
static void
test_restart(void)
{
	struct group *g = fake_begin(2);
	struct fake_req r;
	struct err e = {0};
	struct cell *c;

	CHECK(lifecycle_restart(g, &e) == 0);
	wait_for(g, &r);
	CHECK_STR(lifecycle_state_name(g), "restarting");
	c = fake_cell(g, "a", 0, NULL);
	CHECK_STR(task_state(c->w), "queued");
	all_die(g);
	CHECK(r.done && r.result == 0);
	CHECK(fake_count(Trun, 0) == 1 && fake_count(Trun, 1) == 1);
	CHECK(g->recovery.generation == 2);
	fake_end();
}

/* A start waits for the replacement of a dead rank and for the rebuild, but not for a cell that has
 * lost nothing, which may run for ever. */
static void
test_start_beside_a_cell(void)
{
	struct group *g = fake_begin(2);
	int zero = 0;
	struct cell *c = fake_cell(g, "input()", 1, &zero);
	struct fake_msg *run = fake_take(Trun, 0);
	struct fake_req r;

	fake_dies(1, SIGKILL);
	CHECK_STR(lifecycle_state_name(g), "recovering");
	wait_for(g, &r);
	fake_step();
	CHECK(r.done && r.result == 0);
	CHECK_STR(task_state(c->w), "running");
	CHECK_STR(lifecycle_state_name(g), "recovering");
	fake_ran(run, 0, "");
	fake_step();
	CHECK_STR(lifecycle_state_name(g), "idle");
	fake_end();
}

/* Of stop and start the last request counts; a stop drops what waited for the start. */
static void
test_last_word(void)
{
	struct group *g = fake_begin(1);
	struct err e = {0};
	struct cell *c;

	lifecycle_stop(g, &e);
	lifecycle_start(g, &e);
	CHECK_STR(lifecycle_state_name(g), "restarting");
	c = fake_cell(g, "a", 0, NULL);
	lifecycle_stop(g, &e);
	CHECK_STR(lifecycle_state_name(g), "stopping");
	CHECK_STR(task_state(c->w), "cancelled");
	all_die(g);
	CHECK_STR(lifecycle_state_name(g), "stopped");
	CHECK(lifecycle_start(g, &e) == 0);
	fake_step();
	CHECK_STR(lifecycle_state_name(g), "idle");
	fake_end();
}

/* What waits for a start with another size cannot run: it gets an error, and nothing of it is
 * left. */
static void
test_other_size(void)
{
	for (int size = 1; size <= 3; size += 2) {
		struct group *g = fake_begin(2);
		struct fake_req r = {0};
		struct err e = {0};
		struct cell *c;

		lifecycle_stop(g, &e);
		g->set.size = size;
		lifecycle_start(g, &e);
		c = fake_cell(g, "a", 0, NULL);
		fake_wait(c->w, &r);
		all_die(g);
		CHECK(r.done && r.result == -ECANCELED);
		CHECK_STR(task_state(c->w), "cancelled");
		CHECK(g->size == size && g->queued == 0 && !group_busy(g));
		c = fake_cell(g, "b", 0, NULL);
		CHECK_STR(task_state(c->w), "running");
		CHECK(fake_count(Trun, size - 1) == 1);
		fake_end();
	}
}

/* Requests that wait for a start that fails get its errno; a later stop does not. */
static void
test_refused(void)
{
	struct group *g = fake_begin(1);
	struct fake_req r;
	struct err e = {0};

	lifecycle_stop(g, &e);
	all_die(g);
	CHECK(rmdir(g->run_dir) < 0); /* it holds spools */
	free(g->run_dir);
	g->run_dir = xstrdup("/nowhere");
	CHECK(lifecycle_start(g, &e) == -ENOENT);
	CHECK_STR(lifecycle_state_name(g), "stopped");
	wait_for(g, &r);
	CHECK(r.done && r.result == -ENOENT);
	CHECK(lifecycle_stop(g, &e) == 0);
	wait_for(g, &r);
	CHECK(r.done && r.result == 0);
	fake_end();
}

/* A rank that dies between cells is replaced, and all ranks rejoin before the next cell. */
static void
test_replace(void)
{
	struct group *g = fake_begin(2);
	struct cell *c;

	fake_dies(1, SIGKILL);
	CHECK_STR(lifecycle_state_name(g), "idle"); /* the fake's ranks rejoin at once */
	CHECK(g->recovery.generation == 2 && !recovery_pending(g));
	c = fake_cell(g, "a", 0, NULL);
	CHECK_STR(task_state(c->w), "running");
	fake_end();
}

/* A requested rebuild waits for the running cells, and the cells behind it wait for the rebuild. */
static void
test_recover(void)
{
	static const int zero[] = {0}, one[] = {1};
	struct group *g = fake_begin(2);
	struct cell *running = fake_cell(g, "a", 1, zero), *next;

	recovery_request(g, "test");
	CHECK(!recovery_begin(g));
	CHECK(recovery_pending(g) && !recovery_running(g));
	next = fake_cell(g, "b", 1, one);
	CHECK_STR(task_state(next->w), "queued");
	CHECK_STR(lifecycle_state_name(g), "recovering");
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	CHECK(g->recovery.generation == 2);
	CHECK_STR(task_state(running->w), "ok");
	CHECK_STR(task_state(next->w), "running");
	fake_end();
}

/* The table names every state, and each of its rows names an event and its consequence. */
static void
test_table(void)
{
	struct buf b = {0};

	lifecycle_print(&b);
	for (const char *s = "new\0starting\0idle\0stopping\0restarting\0stopped\0"; *s;
	     s += strlen(s) + 1)
		CHECK(strstr(b.p, s) != NULL);
	CHECK(strncmp(b.p, "new        start     starting   ", 32) == 0);
	buf_clear(&b);
	recovery_print(&b);
	for (const char *s = "whole\0wanted\0rejoining\0retry\0spoiled\0"; *s; s += strlen(s) + 1)
		CHECK(strstr(b.p, s) != NULL);
	CHECK(strncmp(b.p, "whole      requested wanted     ", 32) == 0);
	buf_free(&b);
}

int
main(void)
{
	test_stop();
	test_start_called_off();
	test_stop_of_a_silent_host();
	test_stop_of_a_silent_store();
	test_store_stays();
	test_stop_of_a_shared_host();
	test_end_of_silent_hosts();
	test_restart_of_a_silent_host();
	test_restart();
	test_start_beside_a_cell();
	test_last_word();
	test_other_size();
	test_refused();
	test_replace();
	test_recover();
	test_table();
	return CHECK_DONE();
}
