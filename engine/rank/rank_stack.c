/*
 * Reports where Python is: on a signal, faulthandler writes the stacks of all threads to a memfd
 * without the GIL. Another thread holds the GIL meanwhile, because faulthandler crashes if Python
 * code in other threads changes the stacks that it walks. If the GIL can't be had, C code holds it:
 * nothing changes if that is C code of the main thread, which takes the signal. Otherwise, as if
 * the machine has stood still and Python runs in another thread, nothing is dumped, and it is tried
 * again. Our handler calls faulthandler's, to know when the dump is done. faulthandler's own
 * chaining raises the signal again, which may arrive late, or without a dump.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STACK_MS = 1000, FORGET_NS = 2000000000 };

static struct {
	int fd, done;
	void (*python)(int); /* faulthandler's handler; NULL: Python is not running yet */
	int (*has_gil)(void);
	struct loop *loop;
	struct timer *limit;
	uint64_t tags[64];
	size_t waiting;
	/* Dumps: now_ns() of the last request; the number of signals sent, and handled. */
	uint64_t asked, sent, ended;
	bool complete; /* there is a dump, but not all that goes with it */
	/* What Python says beside the stacks; a thread that waited for the GIL writes it. */
	pthread_mutex_t lock;
	struct buf described; /* guarded by lock */
	/* The signal may arrive late, when the GIL is no longer held; then there is no dump. */
	_Atomic bool wanted, dumping;
	_Atomic bool held;    /* the GIL, so that nothing changes */
	_Atomic bool refused; /* no dump: another thread might have changed its stack meanwhile */
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

	stack.dumping = true;
	if (stack.python && stack.wanted) {
		if (stack.held || (stack.has_gil && stack.has_gil()))
			stack.python(signo);
		else
			stack.refused = true;
	}
	stack.dumping = false;
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
	handle();
}

void
rank_stack_begin(int (*take_gil)(void), void (*drop_gil)(int state), int (*has_gil)(void))
{
	struct sigaction theirs;

	if (sigaction(rank_stack_signal(), NULL, &theirs) < 0)
		die("stack signal: %s", strerror(errno));
	stack.python = theirs.sa_handler;
	stack.has_gil = has_gil;
	handle();
	rank_gil_begin(take_gil, drop_gil);
}

void
rank_stack_describe(struct slice text)
{
	pthread_mutex_lock(&stack.lock);
	buf_clear(&stack.described);
	buf_add(&stack.described, text.p, text.n);
	pthread_mutex_unlock(&stack.lock);
}

/* Takes what Python has said since the request; empty if it has not. */
static struct buf
take_description(void)
{
	struct buf taken;

	pthread_mutex_lock(&stack.lock);
	taken = stack.described;
	stack.described = (struct buf){0};
	pthread_mutex_unlock(&stack.lock);
	return taken;
}

/* Removes the thread that holds the GIL: "Thread 0x… (most recent call first):", its frames. */
static void
leave_out_holder(struct buf *text)
{
	char name[64], *at, *next;

	snprintf(name, sizeof(name), "Thread 0x%0*lx ", (int)sizeof(long) * 2, rank_gil_thread());
	buf_add(text, "", 1);
	text->n--;
	at = strstr(text->p, name);
	if (!at)
		return;
	next = strstr(at, "\n\n");
	next = next ? next + 2 : text->p + text->n;
	memmove(at, next, (size_t)(text->p + text->n - next));
	text->n -= (size_t)(next - at);
}

/* Replies to all waiting requests with what has been written. */
static void
answer(const char *remark)
{
	const char *in = rank_collective;
	struct buf text = {0}, body = {0}, described = take_description();
	struct msg m;
	struct stat st;

	if (fstat(stack.fd, &st) == 0 && st.st_size > 0) {
		char *bytes = buf_reserve(&text, (size_t)st.st_size);
		ssize_t n = pread(stack.fd, bytes, (size_t)st.st_size, 0);

		text.n += (size_t)MAX(n, (ssize_t)0);
		leave_out_holder(&text);
	}
	if (remark)
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
	stack.wanted = stack.complete = false;
	if (!stack.dumping) /* else when that has ended */
		rank_gil_release();
	loop_timer_del(stack.limit);
	stack.limit = NULL;
	buf_free(&text);
	buf_free(&described);
	buf_free(&body);
}

/* A program may have set the signal's handler anew: by default it would end the process. */
static bool
is_handled(void)
{
	struct sigaction now;

	return sigaction(rank_stack_signal(), NULL, &now) == 0 && now.sa_handler != SIG_DFL;
}

static void
send_signal(bool held)
{
	stack.held = held;
	stack.refused = false;
	stack.wanted = true;
	stack.sent++;
	if (is_handled())
		syscall(SYS_tgkill, getpid(), getpid(), rank_stack_signal());
}

static void
on_done(void *arg, uint32_t events)
{
	uint64_t count;

	if (read(stack.done, &count, sizeof(count)) != sizeof(count))
		return;
	stack.ended += count;
	/* an earlier dump may end only now, after the reply was sent without its end */
	if (stack.waiting && (!stack.wanted || stack.ended < stack.sent))
		return;
	rank_gil_release();
	if (stack.waiting && stack.refused) {
		stack.wanted = false;
		rank_gil_hold(send_signal);
		return;
	}
	stack.complete = stack.waiting;
	if (stack.complete && !rank_flight_waits())
		answer(NULL);
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
	struct stat st;

	stack.limit = NULL;
	answer(fstat(stack.fd, &st) == 0 && st.st_size > 0 ? NULL
	       : stack.refused ? "(no stack: another thread keeps the interpreter's lock)\n"
	       : !stack.wanted
		   ? "(no stack: Python has not come to it)\n"
		   : "(the main thread takes no signals: it is in an uninterruptible call)\n");
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
	rank_stack_describe((struct slice){0});
	if (ftruncate(stack.fd, 0) < 0)
		note("stack: %s", strerror(errno));
	stack.limit = loop_timer(stack.loop, STACK_MS, on_limit, NULL);
	rank_flight_ask();
	rank_gil_hold(send_signal);
}
