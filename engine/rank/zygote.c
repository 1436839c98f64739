/*
 * A zygote waits with Python and torch loaded and forks what the agent requests: ranks, stores, its
 * successor. It forks twice, so that the agent becomes the child's parent. A zygote with a second
 * thread or an open GPU must not fork: it refuses, and the agent starts a cold process instead.
 */
#define _GNU_SOURCE
#include "rank/zygote.h"
#include "frame.h"
#include "output_ring.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct {
	int fd;
	pid_t agent;
	struct frame_reader in;
	int given[ENGINE_FDS]; /* from Nfd, for the next Tfork */
	bool cut;	       /* a descriptor could not be received */
	bool spare;	       /* becomes the next engine without a fork */
} self = {.fd = -1};

void
zygote_open(int fd, pid_t agent)
{
	self.fd = fd;
	self.agent = agent;
	frame_reader_free(&self.in);
	for (size_t i = 0; i < ENGINE_FDS; i++)
		self.given[i] = -1;
	fd_cloexec(fd, true);
	rank_link_open(fd, true);
	note_as("ddip-zygote");
	prctl(PR_SET_NAME, "ddip-zygote");
}

/* Reads more from the agent. Exits if the agent has closed the socket. */
static void
pull(void)
{
	int r = frame_receive(&self.in, self.fd, true, true);

	if (r < 0 && r != -ECONNRESET)
		die("the agent's messages: %s", strerror(-r));
	if (r <= 0)
		_exit(0);
}

/* Waits for the next whole message. m points into the returned copy, which the caller frees. */
static struct buf
next_message(struct msg *m)
{
	struct buf frame = {0};
	struct err e;
	long n;
	int fd;

	while ((n = frame_take(&self.in, 0, m, &e)) == 0)
		pull();
	if (n < 0)
		die("%s", e.text);
	fd = m->fd;
	buf_add(&frame, self.in.bytes.p, (size_t)n);
	buf_drop(&self.in.bytes, (size_t)n);
	wire_frame(frame.p, frame.n, m, NULL);
	m->fd = fd;
	return frame;
}

/* The reason why this process must not fork, or NULL. */
static const char *
guard(void)
{
	static char why[128];
	DIR *d = opendir("/proc/self/task");
	int threads = 0;

	if (!d) {
		snprintf(
		    why, sizeof(why), "the zygote can't count its threads: %s", strerror(errno));
		return why;
	}
	for (struct dirent *f; (f = readdir(d));)
		threads += f->d_name[0] != '.';
	closedir(d);
	if (threads != 1) {
		snprintf(why, sizeof(why),
		    "the zygote has %d threads (something that was "
		    "imported started one)",
		    threads);
		return why;
	}
	d = opendir("/proc/self/fd");
	why[0] = '\0';
	for (struct dirent *f; d && (f = readdir(d));) {
		char path[64];
		ssize_t n = readlinkat(dirfd(d), f->d_name, path, sizeof(path) - 1);

		if (n > 0 && !strncmp(path, "/dev/nvidia", MIN((size_t)n, (size_t)11)) && n >= 11)
			snprintf(why, sizeof(why), "the zygote holds %.*s open", (int)n, path);
	}
	if (d)
		closedir(d);
	return why[0] ? why : NULL;
}

static void
refuse(uint64_t tag, int no, const char *text)
{
	struct buf b = {0};
	struct msg m;

	wire_pack(&b, Rerror, 0, SLOT_AGENT, tag, (uint32_t)no, (struct slice){text, strlen(text)},
	    (struct slice){0});
	if (wire_frame(b.p, b.n, &m, NULL) > 0)
		rank_link_send(&m);
	buf_free(&b);
}

static void
refuse_cut(const struct msg *m)
{
	struct err e;

	frame_no_descriptor(&e);
	refuse(m->tag, e.no, e.text);
}

static void
close_fds(void)
{
	for (size_t i = 0; i < ENGINE_FDS; i++) {
		if (self.given[i] >= 0)
			close(self.given[i]);
		self.given[i] = -1;
	}
	self.cut = false;
}

static void
announce(uint64_t tag, pid_t pid)
{
	struct buf b = {0};
	struct msg m;

	if (pid < 0) {
		refuse(tag, errno, "fork failed");
		return;
	}
	wire_pack(&b, Rfork, 0, SLOT_AGENT, tag, (uint32_t)pid);
	if (wire_frame(b.p, b.n, &m, NULL) > 0)
		rank_link_send(&m);
	buf_free(&b);
}

/* In a successor or a spare: switches to its own socket to the agent. */
static void
begin_server(int ctl)
{
	int old = self.fd;

	close_fds();
	zygote_open(ctl, self.agent);
	close(old);
	if (self.spare)
		prctl(PR_SET_NAME, "ddip-spare");
	/* There is no I/O thread that could wait until the intermediate process has exited. Later,
	 * the end of the agent closes the socket. That exit takes milliseconds of another core. */
	while (getppid() != self.agent) {
		if (getppid() == 1 || kill(self.agent, 0) < 0)
			_exit(1);
		usleep(1000);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != self.agent)
		_exit(1);
}

/* In the new rank or store: replaces the zygote's descriptors with its own. */
static void
begin_engine(int ctl, const char *name)
{
	struct rank_fds g = {.ctl = ctl,
	    .display = self.given[ENGINE_FD_DISPLAY],
	    .ring = self.given[ENGINE_FD_RING],
	    .wakeup_fd = self.given[ENGINE_FD_WAKEUP],
	    .agent = self.agent};
	char *title = xasprintf("ddip-%s", name);

	if (dup2(self.given[ENGINE_FD_OUT], 1) < 0 || dup2(self.given[ENGINE_FD_ERR], 2) < 0)
		die("descriptors of %s: %s", name, strerror(errno));
	close(self.given[ENGINE_FD_OUT]);
	close(self.given[ENGINE_FD_ERR]);
	close(self.fd);
	self.fd = -1;
	frame_reader_free(&self.in); /* data already received for the zygote */
	g.name = title;		     /* kept for the life of the process */
	rank_start(&g);
}

/* In the child of a fork, or in a spare. Returns true if zygote_serve must return: this is now an
 * engine or a successor. */
static bool
become(uint32_t kind, struct msg *m, const char *name)
{
	int ctl = m->fd;

	m->fd = -1;
	self.spare = kind == ENGINE_SPARE;
	if (kind == ENGINE_SUCCESSOR || kind == ENGINE_SPARE)
		begin_server(ctl);
	else
		begin_engine(ctl, name);
	return !self.spare;
}

/* Handles Tfork. Returns true if zygote_serve must return. */
static bool
on_fork(const struct zygote_hooks *hooks, struct msg *m, struct zygote_child *child)
{
	struct slice name, env;
	uint8_t kind;
	pid_t pid;
	bool over;

	if (wire_unpack(m, Tfork, NULL, &kind, &name, &env) < 0)
		die("Tfork is damaged");
	*child = (struct zygote_child){.kind = kind, .name = slice_dup(name)};
	buf_add(&child->env, env.p, env.n);
	if (self.spare) {
		announce(m->tag, getpid());
		return become(kind, m, child->name);
	}
	hooks->before();
	pid = fault("rank.fork", EAGAIN) ? -1 : fork();
	if (pid == 0) {
		signal(SIGCHLD, SIG_DFL); /* the agent waits for a child that exits at once */
		pid = fault("rank.refork", EAGAIN) ? -1 : fork();
		if (pid != 0) { /* intermediate: its exit makes the agent the parent */
			announce(m->tag, pid);
			_exit(0);
		}
		setsid();
		hooks->child();
		over = become(kind, m, child->name);
	} else {
		int why = errno;

		hooks->parent();
		if (pid < 0)
			refuse(m->tag, why, "fork failed");
		close_fds();
		over = false;
	}
	if (!over) {
		free(child->name);
		buf_free(&child->env);
	}
	return over;
}

void
zygote_serve(const struct zygote_hooks *hooks, struct zygote_child *child)
{
	if (!self.spare)
		signal(SIGCHLD, SIG_IGN); /* intermediate processes need no wait */
	for (;;) {
		struct msg m;
		struct buf frame = next_message(&m);
		const char *why;
		uint8_t which;
		bool over = false;

		if (m.type == Nquit)
			_exit(0);
		self.cut |= m.fd == FRAME_FD_CUT;
		if (wire_unpack(&m, Nfd, NULL, &which) == 0 && which < ENGINE_FDS) {
			self.given[which] = m.fd;
			m.fd = -1;
		} else if (m.type == Tfork && self.cut) {
			refuse_cut(&m);
			close_fds();
		} else if (m.type == Tfork && (why = guard())) {
			refuse(m.tag, EBUSY, why);
			close_fds();
		} else if (m.type == Tfork) {
			over = on_fork(hooks, &m, child);
		}
		buf_free(&frame);
		if (m.fd >= 0)
			close(m.fd);
		if (over)
			return;
	}
}
