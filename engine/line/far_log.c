/* A pipe in place of descriptor 2, read as the line has room. */
#define _GNU_SOURCE
#include "line/far_log.h"
#include "line/line.h"
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { LOG_PIPE = 1 << 20, LOG_READ = 16 << 10 };

static struct {
	struct loop *loop;
	struct line *line;
	int fd;
	struct watch *watch; /* NULL: there is data, to be sent when there is room */
} far_log;

static void
on_log(void *arg, uint32_t events)
{
	loop_fd_del(far_log.watch);
	far_log.watch = NULL;
	line_more(far_log.line);
}

int
far_log_take(struct loop *loop, struct line *l, struct err *e)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return fail_errno(e, "pipe");
	fcntl(fds[1], F_SETPIPE_SZ, LOG_PIPE);
	dup2(fds[1], 2);
	close(fds[1]);
	far_log.loop = loop;
	far_log.line = l;
	far_log.fd = fds[0];
	far_log.watch = loop_fd(loop, fds[0], EPOLLIN, on_log, NULL);
	return 0;
}

bool
far_log_more(void)
{
	char bytes[LOG_READ];
	ssize_t n;

	if (far_log.watch)
		return false;
	n = read(far_log.fd, bytes, sizeof(bytes));
	far_log.watch = loop_fd(far_log.loop, far_log.fd, EPOLLIN, on_log, NULL);
	if (n > 0)
		line_send(far_log.line, LINE_LOG, true, (struct slice){bytes, (size_t)n},
		    (struct slice){0});
	return n > 0;
}
