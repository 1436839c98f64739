/*
 * Reports where Python is. The stacks of all threads are found with the GIL (rank_gil.c), so that
 * they stand still. If it can't be had because C code of the main thread keeps it, nothing changes
 * either: on a signal, faulthandler writes the stacks to a memfd. It must not do so while Python
 * code runs, also in the thread that takes the signal: for a moment within each call the
 * interpreter's list of frames can't be walked (CPython 3.11 to 3.13 crash). Our handler calls
 * faulthandler's, to know when the dump is done. faulthandler's own chaining raises the signal
 * again, which may arrive late, or without a dump.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* After so many ticks, each of which may last longer while the machine stands still, C code must
 * be holding the GIL, if the main thread has run no handler of Python's, and sleeps or has run for
 * so long. */
enum { TICK_MS = 10, TICKS = 30, RUN_NS = 20000000 };

enum { STACK_MS = 1000, FORGET_NS = 2000000000 };

static struct {
	int fd, done;
	void (*python)(int); /* faulthandler's handler; NULL: Python is not running yet */
	int (*has_gil)(void);
	struct loop *loop;
	struct timer *limit, *tick;
	clockid_t clock; /* the CPU time of the main thread */
	uint64_t ran;	 /* at the first tick */
	int ticks;
	uint64_t tags[64];
	size_t waiting;
	/* Dumps: now_ns() of the last request; the number of signals sent, and handled. */
	uint64_t asked, sent, ended;
	bool complete; /* there are the stacks, but not all that goes with them */
	/* What a thread with the GIL has found, and what Python says beside it. */
	pthread_mutex_t lock;
	struct buf text, described; /* guarded by lock, */
	uint64_t request;	    /* and the number of the request */
	_Atomic bool passed;	/* the main thread ran a handler of Python's: it is not in C code */
	_Atomic bool asks_main; /* its next one is to find the stacks */
	/* The signal may arrive late, when the GIL is no longer held; then there is no dump. */
	_Atomic bool wanted;
	_Atomic bool refused; /* no dump: the main thread has not got the GIL */
} stack = {.fd = -1, .done = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

int
rank_stack_signal(void)
{
	return SIGRTMAX - 3;
}

int
rank_stack_fd(void)
{
	return stack.fd;
}

static void
on_signal(int signo)
{
	int saved = errno;
	uint64_t one = 1;

	if (stack.python && stack.wanted) {
		if (!stack.passed && stack.has_gil && stack.has_gil())
			stack.python(signo);
		else
			stack.refused = true;
	}
	/* Nothing can be done about a failure here; the timeout then sends the reply. */
	if (write(stack.done, &one, sizeof(one)) < 0)
		errno = saved;
	errno = saved;
}

static void
handle(void)
{
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};

	if (sigaction(rank_stack_signal(), &act, NULL) < 0)
		die("stack signal: %s", strerror(errno));
}

void
rank_stack_open(void)
{
	stack.fd = memfd_create("ddip-stack", MFD_CLOEXEC);
	stack.done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	/* appending: a late dump must not write at its old offset in the truncated file */
	if (stack.fd < 0 || stack.done < 0 || fcntl(stack.fd, F_SETFL, O_APPEND) < 0)
		die("stacks: %s", strerror(errno));
	if (pthread_getcpuclockid(pthread_self(), &stack.clock) != 0)
		die("the main thread's clock");
	handle();
}

void
rank_stack_begin(void (*run)(void), int (*has_gil)(void))
{
	struct sigaction theirs;

	if (sigaction(rank_stack_signal(), NULL, &theirs) < 0)
		die("stack signal: %s", strerror(errno));
	stack.python = theirs.sa_handler;
	stack.has_gil = has_gil;
	handle();
	rank_gil_begin(run);
}

uint64_t
rank_stack_request(void)
{
	uint64_t request;

	pthread_mutex_lock(&stack.lock);
	request = stack.request;
	pthread_mutex_unlock(&stack.lock);
	return request;
}

void
rank_stack_describe(uint64_t request, struct slice text, struct slice described)
{
	pthread_mutex_lock(&stack.lock);
	if (request == stack.request && (described.n || !stack.text.n)) {
		buf_clear(&stack.text);
		buf_add(&stack.text, text.p, text.n);
		buf_clear(&stack.described);
		buf_add(&stack.described, described.p, described.n);
	}
	pthread_mutex_unlock(&stack.lock);
}

bool
rank_stack_passed(void)
{
	stack.passed = true;
	return atomic_exchange(&stack.asks_main, false);
}

static void
begin_request(void)
{
	pthread_mutex_lock(&stack.lock);
	stack.request++;
	buf_free(&stack.text);
	buf_free(&stack.described);
	pthread_mutex_unlock(&stack.lock);
}

/* Takes what a thread with the GIL has found since the request; empty if none has. */
static void
take(struct buf *text, struct buf *described)
{
	pthread_mutex_lock(&stack.lock);
	*text = stack.text;
	*described = stack.described;
	stack.text = stack.described = (struct buf){0};
	pthread_mutex_unlock(&stack.lock);
}

/* Appends what faulthandler has written. */
static void
take_dump(struct buf *text)
{
	struct stat st;
	ssize_t n;

	if (fstat(stack.fd, &st) < 0 || st.st_size == 0)
		return;
	n = pread(stack.fd, buf_reserve(text, (size_t)st.st_size), (size_t)st.st_size, 0);
	text->n += (size_t)MAX(n, (ssize_t)0);
}

/* Replies to all waiting requests with what has been written. */
static void
answer(const char *remark)
{
	const char *in = rank_collective;
	struct buf text, described, body = {0};
	struct msg m;

	take(&text, &described);
	if (!text.n)
		take_dump(&text);
	if (!text.n && remark)
		buf_adds(&text, remark);
	rank_flight_print(&described);
	for (size_t i = 0; i < stack.waiting; i++) {
		buf_clear(&body);
		wire_pack(&body, Rstack, 0, 0, stack.tags[i],
		    ((struct slice){in ? in : "", in ? strlen(in) : 0}), rank_collective_us(),
		    rank_collective_count(), rank_collective_ticks(CLOCK_OPTIMIZER),
		    ((struct slice){text.p, text.n}), ((struct slice){described.p, described.n}));
		if (wire_frame(body.p, body.n, &m, NULL) > 0)
			rank_link_send(&m);
	}
	stack.waiting = 0;
	stack.complete = false;
	stack.wanted = stack.asks_main = false;
	rank_gil_forget(GIL_STACK);
	loop_timer_del(stack.tick);
	loop_timer_del(stack.limit);
	stack.tick = stack.limit = NULL;
	buf_free(&text);
	buf_free(&described);
	buf_free(&body);
}

static void
send_signal(void)
{
	stack.refused = false;
	stack.wanted = true;
	stack.sent++;
	if (rank_handlers_has(rank_stack_signal()))
		syscall(SYS_tgkill, getpid(), getpid(), rank_stack_signal());
}

static uint64_t
main_ran_ns(void)
{
	struct timespec t = {0};

	clock_gettime(stack.clock, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* If it is not, but is in Python code that does not let go of the GIL, it is to look itself. A
 * thread that waits to run, or is stopped, is anywhere. */
static bool
is_in_c(void)
{
	char state = rank_flight_state();

	rank_look_call(state);
	if (++stack.ticks < TICKS)
		return false;
	if (stack.passed)
		stack.asks_main = true;
	return !stack.passed && (state == 'S' || main_ran_ns() - stack.ran > RUN_NS);
}

static void
on_tick(void *arg)
{
	bool in_c = is_in_c() && rank_gil_forget(GIL_STACK);

	stack.tick = in_c ? NULL : loop_timer(stack.loop, TICK_MS, on_tick, NULL);
	if (in_c)
		send_signal();
}

static void
find(void)
{
	stack.ticks = 0;
	stack.ran = main_ran_ns();
	stack.wanted = false;
	if (!stack.python) {
		send_signal();
		return;
	}
	stack.tick = loop_timer(stack.loop, TICK_MS, on_tick, NULL);
	stack.passed = stack.asks_main = false;
	rank_gil_want(GIL_STACK);
}

static void
on_complete(void)
{
	loop_timer_del(stack.tick);
	stack.tick = NULL;
	stack.complete = true;
	if (!rank_flight_waits())
		answer(NULL);
}

void
rank_stack_found(void)
{
	bool found;

	pthread_mutex_lock(&stack.lock);
	found = stack.text.n;
	pthread_mutex_unlock(&stack.lock);
	if (stack.waiting && found && !stack.complete)
		on_complete();
}

static void
on_done(void *arg, uint32_t events)
{
	uint64_t count;

	if (read(stack.done, &count, sizeof(count)) != sizeof(count))
		return;
	stack.ended += count;
	/* an earlier dump may end only now, after the reply was sent without its end */
	if (!stack.waiting || !stack.wanted || stack.ended < stack.sent)
		return;
	if (stack.refused)
		find();
	else
		on_complete();
}

static void
on_flight(void)
{
	if (stack.complete)
		answer(NULL);
}

static void
on_limit(void *arg)
{
	stack.limit = NULL;
	answer(stack.refused   ? "(no stack: another thread keeps the interpreter's lock)\n"
	       : !stack.wanted ? "(no stack: Python has not come to it)\n"
			       : "(the main thread takes no signals: it is in an uninterruptible "
				 "call)\n");
}

void
rank_stack_init(struct loop *l)
{
	stack.loop = l;
	loop_fd(l, stack.done, EPOLLIN, on_done, NULL);
	rank_gil_init(l);
	rank_flight_init(l, on_flight);
}

void
rank_stack_ask(uint64_t tag)
{
	if (stack.waiting == ARRAY_LEN(stack.tags))
		answer("(too many ask at once)\n");
	stack.tags[stack.waiting++] = tag;
	if (stack.waiting > 1)
		return; /* the dump that is already in progress answers this one, too */
	if (now_ns() - stack.asked > FORGET_NS) /* some may never have ended: user code's handler */
		stack.sent = stack.ended = 0;
	stack.asked = now_ns();
	stack.refused = false;
	begin_request();
	if (ftruncate(stack.fd, 0) < 0)
		note("stack: %s", strerror(errno));
	stack.limit = loop_timer(stack.loop, STACK_MS, on_limit, NULL);
	rank_flight_ask();
	find();
}
