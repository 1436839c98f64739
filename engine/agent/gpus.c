/*
 * Queries NVML on this host, for a daemon on another one. A separate process does it, because a
 * driver may be slow or never respond.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "nvml_frame.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <unistd.h>

enum { ANSWER_MS = 10000, READ_SIZE = 64 << 10 };

struct question {
	uint32_t tag;
	pid_t pid; /* 0: it has been reaped */
	int fd;	   /* -1: the question has been answered */
	struct watch *watch;
	struct timer *timer;
	struct buf answer;
	LIST_ENTRY(question) link;
};

static LIST_HEAD(, question) questions = LIST_HEAD_INITIALIZER(questions);

/* Frees a question that has been answered and whose process has been reaped. */
static void
free_done(struct question *q)
{
	if (q->pid || q->fd >= 0)
		return;
	LIST_REMOVE(q, link);
	free(q);
}

/* Until the process is reaped its pid is not reused. */
static void
end(struct question *q)
{
	if (q->pid)
		kill(q->pid, SIGKILL);
	loop_fd_del(q->watch);
	loop_timer_del(q->timer);
	close(q->fd);
	q->fd = -1;
	buf_free(&q->answer);
	free_done(q);
}

bool
gpus_reaped(pid_t pid)
{
	struct question *q;

	LIST_FOREACH (q, &questions, link)
		if (q->pid == pid) {
			q->pid = 0;
			free_done(q);
			return true;
		}
	return false;
}

static void
on_late(void *arg)
{
	struct question *q = arg;
	struct err e;

	q->timer = NULL;
	fail(&e, ETIMEDOUT, "NVML has not answered within %d s", ANSWER_MS / 1000);
	agent_refuse(SLOT_AGENT, q->tag, &e);
	end(q);
}

static void
on_answer(void *arg, uint32_t events)
{
	struct question *q = arg;
	ssize_t n = read(q->fd, buf_reserve(&q->answer, READ_SIZE), READ_SIZE);

	if (n > 0)
		q->answer.n += (size_t)n;
	if (n > 0 || (n < 0 && errno == EINTR))
		return;
	conn_send(
	    agent.up, Rgpus, 0, SLOT_AGENT, q->tag, -1, (struct slice){q->answer.p, q->answer.n});
	end(q);
}

void
gpus_ask(struct msg *m)
{
	char self[] = "/proc/self/exe", program[] = "ddip-engine", option[] = "--gpus";
	char *argv[] = {program, option, NULL};
	struct question *q;
	pid_t us = getpid(), pid;
	sigset_t none;
	struct err e;
	int fds[2] = {-1, -1};

	pid = pipe2(fds, O_CLOEXEC) < 0 || fault("gpus.fork", EAGAIN) ? -1 : fork();
	if (pid < 0) {
		fail_errno(&e, "a process that asks NVML");
		close(fds[0]);
		close(fds[1]);
		agent_refuse(SLOT_AGENT, m->tag, &e);
		return;
	}
	if (pid == 0) {
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != us || dup2(fds[1], 1) < 0)
			_exit(1);
		execv(self, argv);
		die("%s: %s", self, strerror(errno));
	}
	close(fds[1]);
	q = xcalloc(1, sizeof(*q));
	*q = (struct question){.tag = m->tag, .pid = pid, .fd = fds[0]};
	LIST_INSERT_HEAD(&questions, q, link);
	q->watch = loop_fd(agent.loop, q->fd, EPOLLIN, on_answer, q);
	q->timer = loop_timer(agent.loop, ANSWER_MS, on_late, q);
}

int
gpus_main(void)
{
	struct buf out = {0};
	size_t done = 0;
	ssize_t n = 0;

	prctl(PR_SET_NAME, "ddip-gpus");
	nvml_frame_make(&out);
	for (; done < out.n && n >= 0; done += (size_t)MAX(n, (ssize_t)0))
		n = write(1, out.p + done, out.n - done);
	buf_free(&out);
	return n < 0;
}
