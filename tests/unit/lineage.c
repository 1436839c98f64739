/* Tests of include/lineage.c: children have their parent's number, whatever they do, and end by it;
 * those of other lineages do not. */
#include "lineage.h"
#include "check.h"
#include "proc.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Starts a process that has daemonized itself, with a child of its own; it and the child wait.
 * Returns its pid, or -1. */
static pid_t
start_daemon(const int pipe[2])
{
	pid_t pid;

	if (fork() == 0) {
		setsid();
		if (fork() != 0)
			_exit(0);
		pid = getpid();
		if (fork() == 0)
			pause();
		if (write(pipe[1], &pid, sizeof(pid)) == sizeof(pid))
			pause();
		_exit(1);
	}
	return read(pipe[0], &pid, sizeof(pid)) == sizeof(pid) ? pid : -1;
}

/* A child that begins a lineage; two daemons, one in a branch of its own. */
static void
begin(int out)
{
	uint64_t lineage = lineage_begin(getpid()), branch;
	pid_t pids[3] = {getpid()};
	int ends[2];

	CHECK(lineage && lineage_of(getpid()) == lineage && pipe(ends) == 0);
	pids[1] = start_daemon(ends);
	branch = lineage_branch(lineage, 7, getpid());
	pids[2] = start_daemon(ends);
	CHECK(branch && branch != lineage);
	CHECK(lineage_of(pids[1]) == lineage && lineage_of(pids[2]) == branch);
	if (write(out, &lineage, sizeof(lineage)) < 0 || write(out, pids, sizeof(pids)) < 0 ||
	    check_failures)
		_exit(1);
	pause();
	_exit(1);
}

static void
test_end(void)
{
	uint64_t lineage = 0, other = 0;
	pid_t pids[3] = {0}, bystander;
	int out[2];

	CHECK(pipe(out) == 0 && lineage_of(getpid()) == 0);
	bystander = fork();
	if (bystander == 0)
		pause();
	other = lineage_begin(bystander);
	if (fork() == 0)
		begin(out[1]);
	close(out[1]);
	CHECK(read(out[0], &lineage, sizeof(lineage)) == sizeof(lineage));
	CHECK(read(out[0], pids, sizeof(pids)) == sizeof(pids));
	CHECK(other && lineage && other != lineage);
	lineage_end(0);
	for (int i = 0; i < 3; i++)
		CHECK(pids[i] > 0 && !proc_is_ending(pids[i]));
	lineage_end(lineage);
	for (int i = 0; i < 3; i++)
		CHECK(proc_is_ending(pids[i]));
	CHECK(!proc_is_ending(bystander));
	lineage_end(other);
	CHECK(waitpid(bystander, NULL, 0) == bystander);
	while (wait(NULL) > 0)
		;
	close(out[0]);
}

/* A lineage within another, until there is no room for one; and what a user has limited. */
static void
test_limits(void)
{
	struct rlimit low = {1000000, 1000000};
	uint64_t last = UINT64_MAX, next;
	int status = 1;

	if (fork() == 0) {
		for (int i = 0; (next = lineage_begin(getpid())); i++) {
			CHECK(next < last && i < 60);
			last = next;
		}
		CHECK(last != UINT64_MAX && lineage_of(getpid()) == last);
		CHECK(setrlimit(RLIMIT_RTTIME, &low) == 0);
		CHECK(lineage_begin(getpid()) == 0 && lineage_of(getpid()) == 0);
		_exit(CHECK_DONE());
	}
	CHECK(wait(&status) > 0 && status == 0);
	CHECK(lineage_branch(0, 1, getpid()) == 0 && lineage_of(getpid()) == 0);
}

int
main(void)
{
	test_end();
	test_limits();
	return CHECK_DONE();
}
