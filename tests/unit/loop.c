/* Tests of include/loop.c: descriptors, timers and signals call back at the right time, also when
 * they are deleted from within callbacks. Its thread has a short time slice, which no thread and no
 * child inherits. */
#include "loop.h"
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct loop *l;
static char order[64];
static struct watch *first, *second;
static const struct timespec *stands; /* the time at which the clock is stopped; NULL: it runs */

/* Replaces libc's: no time passes between two calls when the test says so. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	if (!stands)
		return (int)syscall(SYS_clock_gettime, clock, t);
	*t = *stands;
	return 0;
}

static void
note_order(void *arg)
{
	strcat(order, arg);
}

static void
stop(void *arg)
{
	loop_stop(l);
}

static void
test_timers(void)
{
	struct timer *never;
	struct timespec now;
	uint64_t begin;

	l = loop_new();
	clock_gettime(CLOCK_MONOTONIC, &now);
	stands = &now;
	begin = now_ns();
	loop_timer(l, 30, stop, NULL);
	loop_timer(l, 20, note_order, (void *)(intptr_t) "c");
	never = loop_timer(l, 15, note_order, (void *)(intptr_t) "x");
	loop_timer(l, 10, note_order, (void *)(intptr_t) "a");
	loop_timer(
	    l, 10, note_order, (void *)(intptr_t) "b"); /* due at the same moment: in order */
	loop_timer_del(never);
	loop_timer_del(NULL);
	stands = NULL;
	loop_run(l);
	CHECK_STR(order, "abc");
	CHECK(now_ns() - begin >= 30000000u);
	loop_timer(l, 1000, stop, NULL); /* freed with its loop */
	loop_free(l);
	loop_free(NULL);
}

static void
on_pipe(void *arg, uint32_t events)
{
	char c;
	int fd = *(int *)arg;

	CHECK(read(fd, &c, 1) == 1);
	strncat(order, &c, 1);
	/* whichever fires first removes both: the other must not be called */
	loop_fd_del(first);
	loop_fd_del(second);
	loop_fd_del(second);
	loop_stop(l);
}

static void
test_delete_inside(void)
{
	int a[2], b[2];

	order[0] = '\0';
	l = loop_new();
	CHECK(pipe(a) == 0 && pipe(b) == 0);
	CHECK(write(a[1], "1", 1) == 1 && write(b[1], "2", 1) == 1);
	first = loop_fd(l, a[0], EPOLLIN, on_pipe, &a[0]);
	second = loop_fd(l, b[0], EPOLLIN, on_pipe, &b[0]);
	loop_run(l);
	loop_once(l, 0);
	CHECK(strlen(order) == 1);
	loop_free(l);
	close(a[0]), close(a[1]), close(b[0]), close(b[1]);
}

static int ends;

static void
on_end(void *arg)
{
	ends++;
	if (arg)
		loop_round_end(l, on_end, NULL); /* it still belongs to this round */
}

static void
ends_round(void *arg)
{
	loop_round_end(l, on_end, l);
}

/* The end of a round comes before the loop sleeps, also if a timer asks for it just then. */
static void
test_round_end(void)
{
	struct timer *t;

	l = loop_new();
	loop_round_end(l, on_end, NULL);
	t = loop_round_end(l, on_end, NULL);
	loop_timer_del(t);
	loop_once(l, 0);
	CHECK(ends == 1);
	loop_timer(l, 0, ends_round, NULL);
	loop_once(l, -1);
	CHECK(ends == 3);
	loop_free(l);
}

static void
on_signal(void *arg, int signo)
{
	CHECK(signo == SIGUSR1);
	++*(int *)arg;
	loop_stop(l);
}

static void
test_signal(void)
{
	int count = 0;

	l = loop_new();
	loop_spin(l, 20000);
	loop_signal(l, SIGUSR1, on_signal, &count);
	kill(getpid(), SIGUSR1);
	CHECK(count == 0); /* blocked until the loop runs */
	loop_run(l);
	CHECK(count == 1);
	loop_free(l);
}

static struct loop_call calls[2];

static void *
post_two(void *arg)
{
	for (int i = 0; i < 2; i++)
		loop_post(l, &calls[i]);
	return NULL;
}

/* Calls that another thread posts wake the loop, and are made once, in order, unless they are made
 * earlier. */
static void
test_posted(void)
{
	pthread_t thread;

	l = loop_new();
	*order = '\0';
	calls[0] = (struct loop_call){.fn = note_order, .arg = (void *)(intptr_t) "a"};
	calls[1] = (struct loop_call){.fn = stop};
	pthread_create(&thread, NULL, post_two, NULL);
	loop_run(l);
	pthread_join(thread, NULL);
	CHECK_STR(order, "a");
	post_two(NULL);
	loop_make_posted(l, note_order);
	CHECK_STR(order, "aa");
	loop_run(l);
	loop_once(l, 0);
	CHECK_STR(order, "aa");
	loop_free(l);
}

/* The time slice of the calling thread in nanoseconds; 0: the kernel does not tell. */
static uint64_t
slice(void)
{
	char attributes[48] = {0}; /* struct sched_attr; sched_runtime is at 24 */
	uint64_t ns;

	if (syscall(SYS_sched_getattr, 0, attributes, sizeof(attributes), 0) < 0)
		return 0;
	memcpy(&ns, attributes + 24, sizeof(ns));
	return ns;
}

static void *
slice_of_thread(void *ns)
{
	*(uint64_t *)ns = slice();
	return NULL;
}

static void
look_at_slices(void *outside)
{
	uint64_t own = slice(), of_thread;
	pthread_t thread;
	int status;
	pid_t pid;

	pthread_create(&thread, NULL, slice_of_thread, &of_thread);
	pthread_join(thread, NULL);
	CHECK(of_thread == *(uint64_t *)outside);
	if ((pid = fork()) == 0)
		_exit(slice() != *(uint64_t *)outside);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(own == 100000);
	loop_stop(l);
}

static void *
run_a_loop(void *arg)
{
	uint64_t outside = slice();

	(void)arg;
	if (outside == 0) /* before Linux 6.12 */
		return NULL;
	l = loop_new();
	loop_timer(l, 0, look_at_slices, &outside);
	loop_run(l);
	loop_free(l);
	return NULL;
}

static void
test_slice(void)
{
	pthread_t thread; /* one that no loop has run in */

	pthread_create(&thread, NULL, run_a_loop, NULL);
	pthread_join(thread, NULL);
}

int
main(void)
{
	test_slice();
	test_timers();
	test_delete_inside();
	test_round_end();
	test_signal();
	test_posted();
	return CHECK_DONE();
}
