/*
 * Reports where Python is: on a signal, faulthandler writes the stacks of all threads to a memfd
 * without the GIL, and then chains to our handler.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STACK_MS = 1000, STACK_LOOK_MS = 10, STACK_QUIET_MS = 100, FORGET_NS = 2000000000 };

/* Stacks: Python's faulthandler writes them into a memfd on a signal, then chains to our handler.
 */
static struct {
	int fd, done;
	struct loop *loop;
	struct timer *look;
	int ms;		/* since it was asked for */
	int quiet;	/* ms since it grew */
	off_t size;	/* at the last look */
	bool unchained; /* the last dump did not say that it was whole */
	uint32_t tags[64];
	size_t waiting;
	uint64_t asked, begun,
	    ended; /* dumps: now_ns of the last; how many were begun, have ended */
} stack = {.fd = -1, .done = -1};

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
on_written(int signo)
{
	int saved = errno;
	uint64_t one = 1;

	/* Nothing can be done about it here; the time limit answers then. */
	if (write(stack.done, &one, sizeof(one)) < 0)
		errno = saved;
	errno = saved;
}

void
rank_stack_open(void)
{
	struct sigaction act = {.sa_handler = on_written, .sa_flags = SA_RESTART};

	stack.fd = memfd_create("ddip-stack", MFD_CLOEXEC);
	stack.done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stack.fd < 0 || stack.done < 0 || sigaction(rank_stack_signal(), &act, NULL) < 0)
		die("stack signal: %s", strerror(errno));
}

/* Answers all who asked with what is written. */
static void
answer(const char *remark)
{
	const char *in = rank_collective;
	struct buf text = {0}, body = {0};
	struct msg m;
	struct stat st;

	if (fstat(stack.fd, &st) == 0 && st.st_size > 0) {
		char *bytes = buf_reserve(&text, (size_t)st.st_size);
		ssize_t n = pread(stack.fd, bytes, (size_t)st.st_size, 0);

		text.n += (size_t)MAX(n, (ssize_t)0);
	}
	if (remark)
		buf_adds(&text, remark);
	for (size_t i = 0; i < stack.waiting; i++) {
		buf_clear(&body);
		wire_pack(&body, Rstack, 0, 0, stack.tags[i],
		    ((struct slice){in ? in : "", in ? strlen(in) : 0}), rank_collective_us(),
		    rank_collective_count(), ((struct slice){text.p, text.n}));
		if (wire_frame(body.p, body.n, &m, NULL) > 0)
			rank_link_send(&m);
	}
	stack.waiting = 0;
	loop_timer_del(stack.look);
	stack.look = NULL;
	buf_free(&text);
	buf_free(&body);
}

/* Asks the main thread for a dump. */
static void
dump(void)
{
	stack.begun++;
	syscall(SYS_tgkill, getpid(), getpid(), rank_stack_signal());
}

static void
on_done(void *arg, uint32_t events)
{
	struct stat st;
	uint64_t count;

	if (read(stack.done, &count, sizeof(count)) != sizeof(count))
		return;
	stack.ended += count;
	stack.unchained = false;
	/* an earlier dump may end only now, whoever was answered without its end */
	if (!stack.waiting || stack.ended < stack.begun)
		return;
	/* faulthandler takes itself out of the chain while it calls our handler: a signal that came
	 * just then was ours alone, and nothing was written */
	if (fstat(stack.fd, &st) == 0 && st.st_size == 0)
		dump();
	else
		answer(NULL);
}

/* User code may have registered its own handler without a chain to ours: then, from the second dump
 * on, one that does not grow any more is a whole one. */
static void
look(void *arg)
{
	struct stat st;

	stack.look = NULL;
	stack.ms += STACK_LOOK_MS;
	if (fstat(stack.fd, &st) < 0)
		st.st_size = 0;
	stack.quiet = st.st_size == stack.size ? stack.quiet + STACK_LOOK_MS : 0;
	if (st.st_size > 0 && stack.unchained && stack.quiet >= STACK_QUIET_MS) {
		answer(NULL);
	} else if (st.st_size > 0 && stack.ms >= STACK_MS) {
		stack.unchained = true;
		answer(NULL);
	} else if (stack.ms >= STACK_MS) {
		answer("(the main thread takes no signals: it is in an uninterruptible call)\n");
	} else {
		stack.size = st.st_size;
		stack.look = loop_timer(stack.loop, STACK_LOOK_MS, look, NULL);
	}
}

void
rank_stack_init(struct loop *l)
{
	stack.loop = l;
	loop_fd(l, stack.done, EPOLLIN, on_done, NULL);
}

void
rank_stack_ask(uint32_t tag)
{
	if (stack.waiting == ARRAY_LEN(stack.tags))
		answer("(too many ask at once)\n");
	stack.tags[stack.waiting++] = tag;
	if (stack.waiting > 1)
		return; /* the dump that is on its way answers this one too */
	if (now_ns() - stack.asked > FORGET_NS) /* some may never have ended: user code's handler */
		stack.begun = stack.ended = 0;
	stack.asked = now_ns();
	if (ftruncate(stack.fd, 0) < 0 || lseek(stack.fd, 0, SEEK_SET) < 0)
		note("stack: %s", strerror(errno));
	stack.ms = stack.quiet = 0;
	stack.size = 0;
	stack.look = loop_timer(stack.loop, STACK_LOOK_MS, look, NULL);
	dump();
}
