/*
 * Fuzzes what a rank receives from its agent, on its I/O thread: messages of any type with any
 * body, damaged, with descriptors of any kind. There is no Python: what is for its threads is
 * dropped, as they would take it. Whatever comes, the I/O thread goes on, and answers at the end.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include "frame.h"
#include "frames.h"
#include "output_ring.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The I/O thread never ends, so what it holds is not lost; and LeakSanitizer cannot stop it. */
const char *__asan_default_options(void);

const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}

enum { STEPS = 64, LAST_TAG = 0x7fffffff, HANG_MS = 60000 };

static int agent_fd = -1;
static struct frame_reader answers;

/* In place of libc's: nothing leaves this process. */
int
kill(pid_t pid, int signo)
{
	if (signo == SIGKILL)
		abort(); /* rank_die() */
	return 0;
}

static void
ignore(int signo)
{
}

static void
begin(void)
{
	struct rank_fds given = {
	    .display = -1, .ring = -1, .wakeup_fd = -1, .agent = getppid(), .name = "rank0"};
	int pair[2];

	if (agent_fd >= 0)
		return;
	signal(SIGINT, ignore);
	signal(SIGPIPE, SIG_IGN);
	signal(rank_cell_probe_signal(), ignore);
	signal(rank_stack_signal(), ignore);
	signal(rank_look_signal(), ignore);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		die("socketpair: %s", strerror(errno));
	agent_fd = pair[1];
	given.ctl = pair[0];
	rank_start(&given);
}

/* Sends a frame whole; reads answers while there is no room. */
static void
put(const struct buf *frame, int with)
{
	for (size_t sent = 0; sent < frame->n;) {
		ssize_t n = frame_send(
		    agent_fd, true, frame->p + sent, frame->n - sent, sent ? -1 : with, false);

		if (n >= 0)
			sent += (size_t)n;
		else if (n == -EAGAIN)
			frame_receive(&answers, agent_fd, true, true);
		else
			die("the rank: %s", strerror((int)-n));
	}
}

/* A descriptor as it may come with a message: memory, of any size, or something else. */
static int
any_descriptor(uint8_t how)
{
	int fd =
	    how & 1 ? memfd_create("fuzz", MFD_CLOEXEC) : open("/dev/null", O_RDWR | O_CLOEXEC);

	if (how & 1 && ftruncate(fd, how & 2 ? 1 << 20 : take()) < 0)
		abort();
	return fd;
}

static void
say(void)
{
	uint8_t how = take(), type = take();
	struct buf body = {0}, frame = {0};
	struct msg m = {.slot = take() & 3, .tag = take(), .fd = -1};

	while (!wire_name(type) || type == Nquit)
		type++;
	m.type = type;
	if (how >= 224)
		m.fd = any_descriptor(how);
	m.flags = (uint8_t)((m.fd >= 0 ? FLAG_FD : 0) | (how & 64 ? FLAG_MARK : 0));
	fill(&body, type);
	if (type != Nmany) /* an agent that sends a damaged one has gone mad: the rank ends */
		damage(&body, how);
	m.body = body.p;
	m.len = (uint32_t)body.n;
	wire_pack_raw(&frame, &m);
	if (type != Nmany)
		put(&frame, m.fd);
	if (m.fd >= 0)
		close(m.fd);
	buf_free(&body);
	buf_free(&frame);
}

/* Python's threads take and drop what is for them. */
static void
take_all(struct rank_queue *q)
{
	struct item *it;

	while (rank_queue_try(q, &it)) {
		rank_queue_answered(it->m.tag);
		rank_request_forget(it->m.tag);
		if (it->m.fd >= 0)
			close(it->m.fd);
		free(it);
	}
}

/* Waits until the I/O thread has answered a last request. */
static void
finish(void)
{
	struct buf frame = {0};
	bool answered = false;

	wire_pack(&frame, Tread, 0, 0, LAST_TAG, 0u, (uint64_t)0, 1u);
	put(&frame, -1);
	buf_free(&frame);
	while (!answered) {
		struct pollfd p = {.fd = agent_fd, .events = POLLIN};
		struct msg m;
		struct err e;
		size_t at = 0;
		long n;
		int r;

		while ((n = frame_take(&answers, at, &m, &e)) > 0) {
			if (m.fd >= 0)
				close(m.fd);
			answered |= m.tag == LAST_TAG;
			at += (size_t)n;
		}
		buf_drop(&answers.bytes, at);
		if (n < 0)
			die("an answer: %s", e.text);
		do
			r = answered ? 1 : poll(&p, 1, HANG_MS);
		while (r < 0 && errno == EINTR);
		if (r <= 0 || (!answered && frame_receive(&answers, agent_fd, true, false) <= 0))
			abort(); /* the I/O thread hangs, or has ended */
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	input = (struct slice){(const char *)data, size};
	for (int i = 0; i < STEPS; i++) {
		say();
		if (take() < 32) {
			rank_cell_enter(take());
			rank_cell_leave();
		}
	}
	take_all(&rank_main);
	take_all(&rank_service);
	take_all(&rank_rescue);
	finish();
	return 0;
}
