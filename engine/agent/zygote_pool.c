/*
 * Zygotes: processes with Python and torch loaded, which fork ranks in some ten milliseconds. One
 * serves for each Twarm. In quiet time it forks a successor that imports more and then takes over;
 * after that, spares: children that wait to become the ranks of the next start, which then costs
 * no fork at all. One whose packages changed on disk is replaced.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUIET_MS = 300, SPARE_MS = 60, TAIL_MAX = 4096, SPARES_MAX = 16, FORK_TAGS = 0x10000 };

struct warm *
warm_find(uint32_t id)
{
	struct warm *w;

	TAILQ_FOREACH (w, &agent.warms, link) {
		if (w->id == id)
			return w;
	}
	return NULL;
}

/* The user's own umask and limit in place of the daemon's. */
static void
take_users_limits(void)
{
	struct rlimit files;

	if (agent.user_umask >= 0)
		umask((mode_t)agent.user_umask);
	if (agent.user_files < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	files.rlim_cur = MIN((rlim_t)agent.user_files, files.rlim_max);
	setrlimit(RLIMIT_NOFILE, &files);
}

/* Between fork and exec: only calls that need no lock. */
static void
become(const struct warm *w, const char *role, int out, int err, char **env, pid_t parent)
{
	char self[] = "/proc/self/exe", program[] = "ddip-engine", option[16] = "--";
	char *argv[] = {program, option, w->python, NULL};
	int null = fault("zygote.null", EMFILE) ? -1 : open("/dev/null", O_RDONLY);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	dup2(err, 2);
	if (dup2(null, 0) < 0 || dup2(out, 1) < 0)
		die("descriptors of a %s: %s", role, strerrordesc_np(errno));
	if (fault("zygote.cwd", EACCES) || chdir(w->cwd) < 0)
		die("cwd %s: %s", w->cwd, strerrordesc_np(errno));
	take_users_limits();
	strncat(option, role, sizeof(option) - 3);
	if (!fault("zygote.exec", ENOMEM))
		execve(self, argv, env);
	die("%s: %s", self, strerrordesc_np(errno));
}

pid_t
warm_exec(
    const struct warm *w, const char *role, int out, int err, const struct buf *env, struct err *e)
{
	pid_t us = getpid(), pid;
	char **all = env_overlay(env);

	pid = fault("zygote.fork", EAGAIN) ? -1 : fork();
	if (pid == 0) {
		become(w, role, out, err, all, us);
		_exit(127);
	}
	free(all);
	return pid < 0 ? fail_errno(e, "fork of a %s", role) : pid;
}

static void
free_zygote(struct zygote *z)
{
	struct warm *w = z->warm;

	if (z->pid)
		kill(z->pid, SIGKILL);
	if (w && w->now == z)
		w->now = NULL;
	if (w && w->next == z)
		w->next = NULL;
	TAILQ_REMOVE(&agent.zygotes, z, link);
	conn_free(z->conn);
	free(z->paths);
	free(z->ages);
	free(z);
}

static struct zygote *
find_spare(struct warm *w, bool ready)
{
	struct zygote *z;

	TAILQ_FOREACH (z, &agent.zygotes, link) {
		if (z->warm == w && z->spare && !z->retired && !z->taken && (z->ready || !ready))
			return z;
	}
	return NULL;
}

/* Lets it end by itself: what it forks now is still served. Its spares are of no use any more. */
static void
retire(struct zygote *z)
{
	struct zygote *spare;

	if (!z)
		return;
	if (z->warm->now == z) {
		z->warm->now = NULL;
		while ((spare = find_spare(z->warm, false)))
			free_zygote(spare);
	}
	if (z->warm->next == z)
		z->warm->next = NULL;
	z->retired = true;
	conn_send(z->conn, Nquit, 0, SLOT_AGENT, 0, -1);
}

static void
read_tail(struct warm *w)
{
	char *room;
	ssize_t n;

	for (;;) {
		room = buf_room(&w->tail, TAIL_MAX);
		n = read(w->err_in, room, TAIL_MAX);
		if (n <= 0)
			return;
		/* the daemon's log has all of it; a log that is full must not stop us */
		if (write(2, room, (size_t)n) < 0)
			debug("agent", "log: %s", strerrordesc_np(errno));
		w->tail.n += (size_t)n;
		if (w->tail.n > TAIL_MAX)
			buf_drop(&w->tail, w->tail.n - TAIL_MAX);
	}
}

static void
on_tail(void *arg, uint32_t events)
{
	read_tail(arg);
}

/* w has no zygote: says so to all who wait. */
static void
give_up(struct warm *w)
{
	struct err e;
	size_t from;

	read_tail(w);
	while (w->tail.n && strchr("\n ", w->tail.p[w->tail.n - 1]))
		w->tail.n--;
	/* the end is what matters, if not all fits */
	from = w->tail.n > 700 ? w->tail.n - 700 : 0;
	fail(&e, EHOSTDOWN, "Python %s ended before it was ready%s%.*s", w->python,
	    w->tail.n ? ":\n" : "", (int)(w->tail.n - from), w->tail.n ? w->tail.p + from : "");
	if (w->tag)
		agent_refuse(SLOT_AGENT, w->tag, &e);
	w->tag = 0;
	spawn_failed(w, &e);
}

static void
on_zygote_close(void *arg, const struct err *why)
{
	struct zygote *z = arg;
	struct warm *w = z->warm;
	bool needed = w && w->now == z && !z->ready;

	if (why->no)
		note("zygote %d: %s", (int)z->pid, why->text);
	else if (w && !z->retired && !z->spare)
		note("zygote %d of %s ended", (int)z->pid, w->python);
	spawn_orphaned(z);
	free_zygote(z);
	if (needed)
		give_up(w);
}

/* Remembers when the directories that its modules came from were changed last. */
static void
remember_ages(struct zygote *z, struct slice paths)
{
	z->paths = xmalloc(paths.n + 2);
	memcpy(z->paths, paths.p, paths.n);
	memset(z->paths + paths.n, 0, 2);
	for (const char *p = z->paths; *p; p += strlen(p) + 1)
		z->n_paths++;
	z->ages = xcalloc(z->n_paths + 1, sizeof(*z->ages));
	z->n_paths = 0;
	for (const char *p = z->paths; *p; p += strlen(p) + 1) {
		struct stat st = {0};

		if (stat(p, &st) < 0)
			debug("agent", "%s: %s", p, strerrordesc_np(errno));
		z->ages[z->n_paths++] = st.st_mtim;
	}
}

static bool
is_stale(const struct zygote *z)
{
	size_t i = 0;

	for (const char *p = z->paths; p && *p; p += strlen(p) + 1, i++) {
		struct stat st = {0};

		if (stat(p, &st) < 0)
			debug("agent", "%s: %s", p, strerrordesc_np(errno));
		if (st.st_mtim.tv_sec != z->ages[i].tv_sec ||
		    st.st_mtim.tv_nsec != z->ages[i].tv_nsec)
			return true;
	}
	return false;
}

static void
on_nready(struct zygote *z, struct msg *m)
{
	struct warm *w = z->warm;
	struct slice phases, python, paths;
	struct err e;

	if (wire_unpack(m, &e, &phases, &python, &paths) < 0 || z->ready || z->retired) {
		note("zygote %d: Nready was not expected", (int)z->pid);
		return;
	}
	z->ready = true;
	remember_ages(z, paths);
	if (w->next == z) {
		retire(w->now);
		w->next = NULL;
		w->now = z;
	}
	debug("agent", "zygote %d is ready%s", (int)z->pid, z->successor ? " (successor)" : "");
	if (!z->successor || w->phases.n == 0) {
		buf_clear(&w->phases);
		buf_add(&w->phases, phases.p, phases.n);
	}
	if (w->tag)
		conn_send(agent.up, Rwarm, 0, SLOT_AGENT, w->tag, -1, w->id,
		    (struct slice){w->phases.p, w->phases.n});
	w->tag = 0;
	spawn_ready(w);
	warm_busy(w);
}

/* The zygote that a Tfork with this tag was to make. */
static struct zygote *
made_by(uint32_t tag)
{
	struct zygote *z;

	TAILQ_FOREACH (z, &agent.zygotes, link) {
		if (z->tag == tag)
			return z;
	}
	return NULL;
}

static void
on_rfork(struct zygote *z, struct msg *m)
{
	struct zygote *made;
	uint32_t pid;
	int status;

	if (m->tag < FORK_TAGS) {
		spawn_forked(z, m);
		return;
	}
	made = made_by(m->tag);
	if (!made || wire_unpack(m, NULL, &pid) < 0 || reap_stray((pid_t)pid, &status))
		return; /* its socket tells that it is gone */
	made->pid = (pid_t)pid;
	made->ready = made->spare;
}

static void
on_refused(struct zygote *z, struct msg *m)
{
	struct zygote *made;

	if (m->tag < FORK_TAGS)
		spawn_refused(z, m);
	else if ((made = made_by(m->tag)))
		free_zygote(made);
}

static void
on_zygote_message(void *arg, struct msg *m)
{
	static const struct {
		int type;
		void (*fn)(struct zygote *z, struct msg *m);
	} rows[] = {{Nready, on_nready}, {Rfork, on_rfork}, {Rerror, on_refused}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].type == m->type)
			rows[i].fn(arg, m);
}

/* A zygote's struct and our end of its socket; the other end is put into *theirs. */
static struct zygote *
new_zygote(struct warm *w, int *theirs, struct err *e)
{
	struct zygote *z;
	int pair[2];

	if (fault("zygote.socket", EMFILE) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		fail_errno(e, "zygote: socketpair");
		return NULL;
	}
	z = xcalloc(1, sizeof(*z));
	*z = (struct zygote){.warm = w};
	z->conn = conn_new(agent.loop, pair[0], pair[0], on_zygote_message, on_zygote_close, z);
	TAILQ_INSERT_TAIL(&agent.zygotes, z, link);
	*theirs = pair[1];
	return z;
}

static struct zygote *
start(struct warm *w, struct err *e)
{
	struct buf env = {0};
	struct zygote *z;
	int theirs, fd;

	z = new_zygote(w, &theirs, e);
	if (!z)
		return NULL;
	fd = fcntl(theirs, F_DUPFD, 10);
	close(theirs);
	buf_add(&env, w->env.p, w->env.n);
	env_add_threads(&env, w, true);
	if (!getenv("PYTORCH_NVML_BASED_CUDA_CHECK"))
		env_add(&env, "PYTORCH_NVML_BASED_CUDA_CHECK=1");
	env_add(&env, "DDIP_PRELOAD=%s", w->preload);
	env_add(&env, "%s=%d", ENGINE_ENV_CTL, fd);
	env_add(&env, "%s=%d", ENGINE_ENV_AGENT, (int)getpid());
	buf_clear(&w->tail);
	w->succeeded = false;
	z->pid = warm_exec(w, "zygote", w->err_out, w->err_out, &env, e);
	buf_free(&env);
	close(fd);
	if (z->pid > 0)
		return z;
	z->pid = 0;
	free_zygote(z);
	return NULL;
}

struct zygote *
warm_zygote(struct warm *w)
{
	struct err e;

	if (w->now && w->now->ready && is_stale(w->now)) {
		debug("agent", "the packages of %s changed: a new zygote", w->python);
		if (w->next)
			free_zygote(w->next);
		retire(w->now);
	}
	if (w->now && w->now->ready) {
		struct zygote *spare = find_spare(w, true);

		return spare ? spare : w->now;
	}
	if (!w->now) {
		w->now = start(w, &e);
		if (!w->now) {
			note("%s", e.text);
			buf_clear(&w->tail);
			buf_adds(&w->tail, e.text);
			give_up(w);
		}
	}
	return NULL;
}

static bool
is_starting(struct warm *w)
{
	struct engine *e;

	TAILQ_FOREACH (e, &agent.engines, link) {
		if (e->warm == w && (e->state == ENGINE_WAITS || e->state == ENGINE_FORKS))
			return true;
	}
	return false;
}

/* Lets w's zygote fork a successor or a spare. */
static void
breed(struct warm *w, uint32_t kind)
{
	static uint32_t last_tag = FORK_TAGS;
	struct zygote *z;
	struct err e;
	int theirs;

	z = new_zygote(w, &theirs, &e);
	if (!z) {
		note("%s", e.text);
		return;
	}
	z->tag = ++last_tag;
	z->spare = kind == ENGINE_SPARE;
	z->successor = kind == ENGINE_SUCCESSOR || w->now->successor;
	if (kind == ENGINE_SUCCESSOR)
		w->next = z;
	conn_send(w->now->conn, Tfork, 0, SLOT_AGENT, z->tag, theirs, kind, agent_text("zygote"),
	    (struct slice){0});
	close(theirs);
}

/* Engines that it made and that live: a restart will want as many. */
static unsigned
engines_of(const struct warm *w)
{
	const struct engine *e;
	unsigned n = 0;

	TAILQ_FOREACH (e, &agent.engines, link)
		n += e->warm == w;
	return n;
}

/* Quiet time: the zygote prepares for the next start. */
static void
on_quiet(void *arg)
{
	struct warm *w = arg;
	struct zygote *z;
	unsigned spares = 0;

	w->idle = NULL;
	if (!w->now || !w->now->ready || w->next || is_starting(w))
		return;
	if (engines_of(w))
		w->spares = MIN(engines_of(w), (unsigned)SPARES_MAX);
	if (!w->succeeded) {
		w->succeeded = true;
		breed(w, ENGINE_SUCCESSOR);
		return;
	}
	TAILQ_FOREACH (z, &agent.zygotes, link) {
		spares += z->warm == w && z->spare && !z->retired;
	}
	for (; spares < w->spares; spares++)
		breed(w, ENGINE_SPARE);
}

void
warm_busy(struct warm *w)
{
	bool settled = w->succeeded && !w->next;

	loop_timer_del(w->idle);
	/* Imports take a core for a second, spares for some milliseconds. */
	w->idle = loop_timer(agent.loop, settled ? SPARE_MS : QUIET_MS, on_quiet, w);
}

void
warm_spent(struct zygote *z)
{
	z->pid = 0;
	z->warm = NULL;
	z->retired = true;
}

bool
warm_reaped(pid_t pid, int status)
{
	struct zygote *z;

	TAILQ_FOREACH (z, &agent.zygotes, link) {
		if (z->pid != pid)
			continue;
		z->pid = 0;
		if (WIFSIGNALED(status) && !z->retired)
			note("zygote %d was ended by signal %d", (int)pid, WTERMSIG(status));
		/* A process that it left behind may hold the socket: the end is now. But one that
		 * was told to quit may have forked just before: its last Rfork comes, and then the
		 * end. */
		if (!z->retired || WIFSIGNALED(status))
			on_zygote_close(z, &(struct err){0});
		return true;
	}
	return false;
}

void
warm_ask(struct msg *m)
{
	struct slice python, env, cwd, preload;
	struct warm *w;
	struct err e;
	uint32_t id;
	int fds[2];

	if (wire_unpack(m, &e, &id, &python, &env, &cwd, &preload) < 0) {
		agent_refuse(SLOT_AGENT, m->tag, &e);
		return;
	}
	w = warm_find(id);
	if (w || fault("zygote.pipe", EMFILE) || pipe2(fds, O_CLOEXEC) < 0) {
		fail(&e, w ? EEXIST : errno,
		    w ? "zygote %u was asked for already" : "zygote %u: pipe", id);
		agent_refuse(SLOT_AGENT, m->tag, &e);
		return;
	}
	w = xcalloc(1, sizeof(*w));
	*w = (struct warm){.id = id, .tag = m->tag, .err_in = fds[0], .err_out = fds[1]};
	w->python = slice_dup(python);
	w->cwd = slice_dup(cwd);
	w->preload = slice_dup(preload);
	buf_add(&w->env, env.p, env.n);
	if (w->env.n && w->env.p[w->env.n - 1])
		buf_addc(&w->env, '\0');
	fd_nonblock(w->err_in, true);
	w->err_watch = loop_fd(agent.loop, w->err_in, EPOLLIN, on_tail, w);
	TAILQ_INSERT_TAIL(&agent.warms, w, link);
	warm_zygote(w);
}

void
warm_release(struct msg *m)
{
	static const struct err gone = {ESRCH, "the zygote was given up"};
	struct warm *w;
	struct zygote *z;
	uint32_t id;

	if (wire_unpack(m, NULL, &id) < 0 || !(w = warm_find(id)))
		return;
	spawn_failed(w, &gone);
	if (w->tag)
		agent_refuse(SLOT_AGENT, w->tag, &gone);
	loop_timer_del(w->idle);
	TAILQ_FOREACH (z, &agent.zygotes, link) {
		if (z->warm != w)
			continue;
		retire(z);
		z->warm = NULL;
	}
	spawn_forget(w);
	loop_fd_del(w->err_watch);
	close(w->err_in);
	close(w->err_out);
	TAILQ_REMOVE(&agent.warms, w, link);
	free(w->python);
	free(w->cwd);
	free(w->preload);
	buf_free(&w->env);
	buf_free(&w->tail);
	buf_free(&w->phases);
	free(w);
}
