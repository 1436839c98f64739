/* Standard input: a pipe that the I/O thread fills. */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* What the pipe holds: less than the daemon lets wait for a rank, so that there is always an event
 * by which the daemon learns that there is room again. */
enum { CAPACITY = 64 << 10, PEEK = 4 << 10 };

/* Between two looks at who waits for input. The time doubles while nothing comes. */
enum { LOOK_MIN_MS = 10, LOOK_MAX_MS = 2000 };

static struct {
	pthread_mutex_t lock;
	struct loop *loop;
	struct watch *room; /* of the write end, while bytes wait; the I/O thread's */
	int read, write;    /* nonblocking; write is -1 at the end of input */
	int peek[2];	    /* a pipe for copies of what is in the other one */
	struct buf bytes;   /* not in the pipe yet */
	size_t unread;	    /* as the daemon knows it */
	unsigned ends;	    /* behind the bytes, not yet taken */
	bool ended, program, hung_up;
	struct timer *look; /* the I/O thread's, as the next three */
	uint64_t look_ms;
	bool told; /* that somebody waits */
	char name[32];
} in = {.lock = PTHREAD_MUTEX_INITIALIZER, .read = -1, .write = -1, .peek = {-1, -1}};

void
rank_stdin_lock(void)
{
	pthread_mutex_lock(&in.lock);
}

void
rank_stdin_unlock(void)
{
	pthread_mutex_unlock(&in.lock);
}

/* A descriptor of the pipe that shares no flags with descriptor 0, which user code may make
 * nonblocking. Returns -1 if there is none. */
static int
reopen(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_NONBLOCK | O_CLOEXEC);
}

void
rank_stdin_open(struct loop *l)
{
	int pair[2];
	ssize_t n;

	in.loop = l;
	if (pipe2(pair, O_CLOEXEC) < 0 || pipe2(in.peek, O_CLOEXEC | O_NONBLOCK) < 0 ||
	    (in.read = reopen(pair[0], O_RDONLY)) < 0 || dup2(pair[0], 0) < 0)
		die("standard input: %s", strerror(errno));
	close(pair[0]);
	in.write = pair[1];
	n = readlink("/proc/self/fd/0", in.name, sizeof(in.name) - 1);
	in.name[MAX(n, 0)] = '\0';
	fcntl(in.write, F_SETFL, O_NONBLOCK);
	fcntl(in.write, F_SETPIPE_SZ, CAPACITY);
}

static size_t
in_pipe(void)
{
	int n = 0;

	return ioctl(in.read, FIONREAD, &n) < 0 || n < 0 ? 0 : (size_t)n;
}

/* Sends a notification with one number, or passes it to a service thread. */
static void
say(uint8_t type, uint32_t n, bool here)
{
	struct buf b = {0};
	struct msg m;

	wire_pack(&b, type, 0, 0, 0, n);
	if (wire_frame(b.p, b.n, &m, NULL) > 0) {
		if (here)
			rank_queue_put(&rank_service, &m);
		else
			rank_link_send(&m);
	}
	buf_free(&b);
}

void
rank_stdin_tell(uint32_t waits)
{
	say(Ninput, waits, false);
}

/* Tells the daemon what has been read, by whomever; less than `least` bytes only if all was. */
static void
report(size_t least)
{
	size_t left = in.bytes.n + in_pipe();

	if (left >= in.unread || (left > 0 && in.unread - left < least))
		return;
	say(Ntaken, (uint32_t)(in.unread - left), false);
	in.unread = left;
}

static bool
is_at_end(void)
{
	return in.ended || in.hung_up || in.ends > 0;
}

/* Makes the pipe wait for input again, if that is not at its end. Returns 0 or -errno. */
static int
wait_again(void)
{
	if (in.write < 0 && (in.bytes.n || !is_at_end()))
		in.write = reopen(in.read, O_WRONLY);
	return in.write < 0 && !is_at_end() ? -errno : 0;
}

/* Closes the write end once all is in the pipe, at the end of input. */
static void
close_at_end(void)
{
	if (in.room || in.write < 0 || in.bytes.n || !is_at_end())
		return;
	close(in.write);
	in.write = -1;
}

static void fill(void);

static void
on_room(void *arg, uint32_t events)
{
	rank_stdin_lock();
	fill();
	rank_stdin_unlock();
}

/* On the I/O thread: writes what fits. */
static void
fill(void)
{
	ssize_t n;

	wait_again();
	while (in.write >= 0 && in.bytes.n) {
		n = write(in.write, in.bytes.p, in.bytes.n);
		if (n < 0)
			break;
		buf_drop(&in.bytes, (size_t)n);
	}
	if (in.write >= 0 && in.bytes.n && !in.room)
		in.room = loop_fd(in.loop, in.write, EPOLLOUT, on_room, NULL);
	if (in.room && !in.bytes.n) {
		loop_fd_del(in.room);
		in.room = NULL;
	}
	close_at_end();
	report(0);
}

/* Reads of sys.stdin wait in poll(2), and tell of it themselves. */
static bool
is_waited_for(void)
{
	bool empty;

	rank_stdin_lock();
	empty = in.write >= 0 && !in.bytes.n && !in_pipe();
	rank_stdin_unlock();
	return empty && rank_reader_waits(in.name);
}

static void
on_look(void *arg)
{
	bool waits, busy = rank_queue_main_busy();

	in.look = NULL;
	waits = busy && is_waited_for();
	if (waits != in.told)
		rank_stdin_tell(waits);
	if (waits && !in.told)
		say(Ninput, 1, true); /* for the front ends */
	in.told = waits;
	in.look_ms = MIN(in.look_ms * 2, (uint64_t)LOOK_MAX_MS);
	if (busy)
		in.look = loop_timer(in.loop, in.look_ms, on_look, NULL);
}

void
rank_stdin_settle(void)
{
	if (in.told)
		rank_stdin_tell(0);
	in.told = false;
}

void
rank_stdin_watch(void)
{
	loop_timer_del(in.look);
	in.look_ms = LOOK_MIN_MS;
	in.look = loop_timer(in.loop, in.look_ms, on_look, NULL);
}

void
rank_stdin_put(struct slice data)
{
	rank_stdin_lock();
	in.unread += data.n;
	if (data.n == 0)
		in.ends++;
	else if (!in.program || !is_at_end())
		buf_add(&in.bytes, data.p, data.n);
	fill();
	rank_stdin_unlock();
	rank_stdin_settle();
	if (in.look)
		rank_stdin_watch(); /* who has read this may wait for more soon */
}

void
rank_stdin_end(void)
{
	rank_stdin_lock();
	in.ended = true;
	fill();
	rank_stdin_unlock();
}

/* How many bytes to read so that none is behind the first newline: the pipe has to keep those, as
 * poll(2) says that they wait. 0: none is there. */
static size_t
line_size(size_t max)
{
	char bytes[PEEK];
	const char *newline;
	ssize_t n = tee(in.read, in.peek[1], MIN(max, sizeof(bytes)), SPLICE_F_NONBLOCK);

	if (n < 0 && errno != EAGAIN)
		return 1; /* this kernel does not copy pipes */
	if (n <= 0)
		return n < 0 ? 0 : 1;
	n = read(in.peek[0], bytes, sizeof(bytes));
	newline = n > 0 ? memchr(bytes, '\n', (size_t)n) : NULL;
	return newline ? (size_t)(newline - bytes) + 1 : n > 0 ? (size_t)n : 1;
}

/* Returns 1, 0 at the end of input, -EAGAIN if there is nothing yet, or another -errno. */
static int
take(struct buf *to, size_t max, bool line)
{
	size_t most = line ? line_size(max) : MIN(max, (size_t)CAPACITY);
	ssize_t n;

	if (most == 0)
		return -EAGAIN;
	n = read(in.read, buf_reserve(to, most), most);
	if (n < 0)
		return -errno;
	to->n += (size_t)n;
	if (n > 0) {
		report(CAPACITY / 2);
		return 1;
	}
	if (in.write >= 0)
		return -EAGAIN; /* it has been opened again in the meantime */
	if (!is_at_end()) {
		int r = wait_again();

		return r < 0 ? r : -EAGAIN;
	}
	if (in.ends && !in.program && --in.ends == 0)
		wait_again();
	return 0;
}

bool
rank_stdin_ready(void)
{
	struct pollfd p = {.fd = in.read, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

int
rank_stdin_take(struct buf *to, size_t max, bool line)
{
	for (;;) {
		struct pollfd p = {.fd = in.read, .events = POLLIN};
		int r;

		rank_stdin_lock();
		r = take(to, max, line);
		rank_stdin_unlock();
		if (r != -EAGAIN)
			return r;
		if (poll(&p, 1, -1) < 0 && errno == EINTR)
			return -EINTR;
	}
}

void
rank_stdin_begin_program(bool ended)
{
	rank_stdin_lock();
	in.program = true;
	in.ends += ended;
	close_at_end();
	rank_stdin_unlock();
}

void
rank_stdin_hang_up(bool on)
{
	rank_stdin_lock();
	if (on != in.hung_up) {
		in.hung_up = on;
		close_at_end();
		wait_again();
	}
	rank_stdin_unlock();
}

void
rank_stdin_end_program(void)
{
	char bytes[PEEK];

	rank_stdin_lock();
	in.program = false;
	in.ends = 0;
	buf_clear(&in.bytes);
	while (read(in.read, bytes, sizeof(bytes)) > 0)
		continue;
	wait_again();
	report(0);
	rank_stdin_unlock();
}

void
rank_stdin_cell_ended(void)
{
	rank_stdin_lock();
	if (in.ends && !in.program && !in.bytes.n && !in_pipe()) {
		in.ends = 0;
		wait_again();
	}
	rank_stdin_unlock();
}

void
rank_stdin_leave(void)
{
	int *fds[] = {&in.write, &in.peek[0], &in.peek[1]};

	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
	buf_clear(&in.bytes);
	in.ended = true;
}
