/* Sends replies with bytes of objects to the relay, on a socket of their own. */
#include "agent/objects.h"
#include "frame.h"
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static struct {
	int fd; /* -1: there is none, or its reader is gone */
	struct watch *watch;
	struct buf frame; /* that is being sent */
	size_t sent;
	bool sending;
} bulk = {.fd = -1};

static void
next_frame(void)
{
	buf_free(&bulk.frame);
	bulk.sent = 0;
	if (reads_next(&bulk.frame))
		frame_show_all(bulk.frame.p, bulk.frame.n);
}

/* Sends until it would block. */
static void
send_some(void)
{
	ssize_t n = 0;

	bulk.sending = true;
	while (n >= 0) {
		if (bulk.sent == bulk.frame.n)
			next_frame();
		if (!bulk.frame.n)
			break;
		n = send(bulk.fd, bulk.frame.p + bulk.sent, bulk.frame.n - bulk.sent,
		    MSG_DONTWAIT | MSG_NOSIGNAL);
		bulk.sent += n > 0 ? (size_t)n : 0;
	}
	bulk.sending = false;
	loop_fd_events(bulk.watch, bulk.frame.n ? EPOLLOUT : 0);
}

static void
on_event(void *arg, uint32_t events)
{
	if (events & EPOLLOUT && !(events & (EPOLLHUP | EPOLLERR))) {
		send_some();
		return;
	}
	/* the relay is gone: so is the connection to the daemon, which ends the agent */
	loop_fd_del(bulk.watch);
	bulk.fd = -1;
}

void
bulk_open(int fd)
{
	bulk.fd = fd;
	bulk.watch = loop_fd(agent.loop, fd, 0, on_event, NULL);
}

void
bulk_ready(void)
{
	if (bulk.fd >= 0 && !bulk.sending && !bulk.frame.n)
		send_some();
}
