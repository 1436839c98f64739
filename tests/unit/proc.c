/* Tests of include/proc.c: it reads the right facts about this process, a child and mounts from
 * /proc, and closes descriptors with and without the kernel's help. */
#include "proc.h"
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void
test_ourselves(void)
{
	struct proc_status s;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMAX);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGUSR2, SIG_IGN);
	CHECK(proc_status(getpid(), &s) == 0);
	CHECK(s.process == getpid() && s.parent == getppid() && s.state == 'R');
	CHECK(!s.exiting && !s.dumping);
	CHECK(s.blocked & PROC_SIGNAL(SIGUSR1) && s.blocked & PROC_SIGNAL(SIGRTMAX));
	CHECK(!(s.pending & PROC_SIGNAL(SIGUSR1)));
	CHECK(s.ignored & PROC_SIGNAL(SIGUSR2) && !(s.caught & PROC_SIGNAL(SIGUSR2)));
	/* one for the process, one for the thread alone */
	kill(getpid(), SIGUSR1);
	syscall(SYS_tgkill, getpid(), gettid(), SIGRTMAX);
	CHECK(proc_status(gettid(), &s) == 0);
	CHECK(s.pending == (PROC_SIGNAL(SIGUSR1) | PROC_SIGNAL(SIGRTMAX)));
}

static void
test_children(void)
{
	struct proc_status s;
	siginfo_t si;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	CHECK(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT) == 0);
	CHECK(proc_status(pid, &s) == 0);
	CHECK(s.state == 'Z' && s.exiting && s.parent == getpid());
	CHECK(proc_parent(pid) == getpid());
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(proc_status(pid, &s) == -ENOENT);
	CHECK(proc_parent(pid) == 0);
	CHECK(proc_has_ended(pid));
}

static void
count_child(pid_t child, void *arg)
{
	int *found = arg;
	siginfo_t si;

	CHECK(waitid(P_PID, (id_t)child, &si, WEXITED | WNOWAIT) == 0);
	++*found;
}

static void *
fork_in_thread(void *arg)
{
	pid_t *pid = arg;

	*pid = fork();
	if (*pid == 0)
		_exit(0);
	return NULL;
}

/* The children of all threads, whether a thread still runs or has left them to another. */
static void
test_lists_of_children(void)
{
	pthread_t thread;
	pid_t pids[2];
	int found = 0;

	CHECK(proc_children(getpid(), count_child, &found) == 0 && found == 0);
	fork_in_thread(&pids[0]);
	CHECK(pthread_create(&thread, NULL, fork_in_thread, &pids[1]) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(proc_children(getpid(), count_child, &found) == 0 && found == 2);
	found = 0;
	CHECK(proc_children(pids[0], count_child, &found) == 0 && found == 0);
	for (int i = 0; i < 2; i++)
		CHECK(waitpid(pids[i], NULL, 0) == pids[i]);
	CHECK(proc_children(pids[0], count_child, &found) == -ENOENT && found == 0);
}

/* A process that cannot be looked at has not ended. */
static void
test_no_descriptors(void)
{
	struct rlimit before, none;

	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	none.rlim_cur = 0;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	CHECK(!proc_has_ended(getpid()));
	CHECK(proc_children(getpid(), count_child, NULL) == -EMFILE);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK(!proc_has_ended(getpid()));
}

/* A child that a signal ended, and one that exited, before they are reaped. */
static void
test_exit_signal(void)
{
	static const int signals[] = {0, SIGKILL, SIGHUP, SIGUSR1, SIGSEGV, SIGABRT, SIGXCPU};

	for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
		siginfo_t si;
		pid_t pid = fork();

		if (pid == 0) {
			struct rlimit none = {0, 0};
			sigset_t all;

			sigfillset(&all);
			sigprocmask(SIG_UNBLOCK, &all, NULL);
			setrlimit(RLIMIT_CORE, &none);
			signal(signals[i], SIG_DFL);
			if (signals[i])
				kill(getpid(), signals[i]);
			_exit(7);
		}
		CHECK(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT) == 0);
		CHECK(proc_exit_signal(pid) == signals[i]);
		CHECK(waitpid(pid, NULL, 0) == pid);
		CHECK(proc_exit_signal(pid) == 0);
	}
}

static void
test_writes(void)
{
	enum { MANY = 1000, FEW = 2 };

	char path[] = "/tmp/ddip-proc.XXXXXX";
	int fd = mkstemp(path), reads, dup_fd;
	struct stat st;

	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	CHECK(proc_writes(getpid(), st.st_ino, MANY) == 1);
	reads = open(path, O_RDONLY);
	CHECK(proc_writes(getpid(), st.st_ino, MANY) == 1);
	dup_fd = dup(fd);
	CHECK(proc_writes(getpid(), st.st_ino, MANY) == 1);
	close(fd);
	CHECK(proc_writes(getpid(), st.st_ino, MANY) == 1);
	close(dup_fd);
	CHECK(proc_writes(getpid(), st.st_ino, MANY) == 0);
	CHECK(proc_writes(getpid(), st.st_ino, FEW) == -E2BIG);
	close(reads);
	unlink(path);
}

static void *
test_in_thread(void *arg)
{
	pid_t tid = (pid_t)syscall(SYS_gettid);

	CHECK(!proc_is_process(tid) && proc_is_process(getpid()));
	CHECK(!proc_has_one_thread(getpid()));
	return NULL;
}

/* What is known of a process without reading its status. */
static void
test_looks(void)
{
	struct stat st;
	siginfo_t si;
	pthread_t thread;
	/* Linux before 6.2 does not say it */
	bool tells = stat("/proc/self/fd", &st) == 0 && st.st_size > 0;
	pid_t child;
	int status;
	char name[PROC_NAME];

	CHECK(proc_name(getpid(), name) == 0 && strcmp(name, "proc") == 0);
	child = fork(); /* a thread that has been joined, and one of a sanitizer's, are not in it */
	if (child == 0)
		_exit(!proc_has_one_thread(getpid()));
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(pthread_create(&thread, NULL, test_in_thread, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(proc_has_descriptors(getpid()) == tells);
	child = fork();
	if (child == 0)
		_exit(0);
	CHECK(waitid(P_PID, (id_t)child, &si, WEXITED | WNOWAIT) == 0);
	CHECK(proc_is_process(child) && !proc_has_descriptors(child));
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(!proc_is_process(child) && !proc_has_one_thread(child));
	CHECK(proc_name(child, name) == -ENOENT);
}

static void
test_identity(void)
{
	uint64_t own = proc_identity(getpid()), other;
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	other = proc_identity(child);
	CHECK(own && own == proc_identity(getpid()));
	CHECK(other && other == proc_identity(child));
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(proc_identity(child) == 0);
}

static bool
is_proc(const struct proc_mount *m, void *arg)
{
	int *seen = arg;

	++*seen;
	CHECK(m->device && strchr(m->device, ':') && *m->where == '/');
	return strcmp(m->where, "/proc") == 0 && strcmp(m->type, "proc") == 0;
}

static bool
never(const struct proc_mount *m, void *arg)
{
	++*(int *)arg;
	return false;
}

static void
test_mounts(void)
{
	int seen = 0, all = 0;

	CHECK(proc_mounts(is_proc, &seen) == 1);
	CHECK(proc_mounts(never, &all) == 0);
	CHECK(seen > 0 && all >= seen);
}

static void
test_mount_path(void)
{
	char path[] = "/a\\040b\\134040/\\011\303\274\\043";

	proc_mount_path(path);
	CHECK_STR(path, "/a b\\040/\t\303\274#");
}

/* From now on close_range fails with ENOSYS in this process. */
static void
forbid_close_range(void)
{
	struct sock_filter rules[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {ARRAY_LEN(rules), rules};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	CHECK(syscall(SYS_close_range, 1 << 20, ~0U, 0) < 0 && errno == ENOSYS);
}

static bool
is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* In a child, where closing does no harm: all descriptors from the first on, with and without
 * close_range. */
static void
close_from(bool old_kernel)
{
	int first = dup(0), last, status = 0;
	pid_t pid;

	last = fcntl(first, F_DUPFD, first + 50);
	pid = fork();
	if (pid == 0) {
		if (old_kernel)
			forbid_close_range();
		proc_close_from(first + 1);
		_exit(is_open(0) && is_open(first) && !is_open(last) ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(first);
	close(last);
}

static void
test_close_from(void)
{
	close_from(false);
	close_from(true);
}

int
main(void)
{
	test_close_from();
	test_ourselves();
	test_children();
	test_lists_of_children();
	test_no_descriptors();
	test_exit_signal();
	test_looks();
	test_writes();
	test_identity();
	test_mounts();
	test_mount_path();
	return CHECK_DONE();
}
