/* The program ddipfs: options, the switch to the background, the mount, and shutdown. */
#include "source.h"
#include "base/daemon.h"
#include "base/log.h"
#include "base/stderr_of.h"
#include "front/listing.h"
#include "group/group.h"
#include "group/host.h"
#include "group/host_notice.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/preempt.h"
#include "group/rank.h"
#include "group/registry.h"
#include "group/settings.h"
#include "group/start.h"
#include "host/agent.h"
#include "host/host_gpus.h"
#include "host/state.h"
#include "host/ticks.h"
#include "host/watchdog.h"
#include "ninep/server.h"
#include "options.h"
#include "proc.h"
#include "session/session.h"
#include "tree/cell_file.h"
#include "tree/change_ticks.h"
#include "tree/event_file.h"
#include "tree/gpu_file.h"
#include "tree/live.h"
#include "tree/replacement.h"
#include "tree/stream_file.h"
#include "tree/tell.h"
#include "tree/tree.h"
#include "tree/wait_file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The files of a mount are private to the user. */
enum { PRIVATE_UMASK = 077 };

enum { SPIN_NS = 20000, POLITE_MS = 1500 };

static int ready_pipe = -1; /* to the parent: a byte once the mount works */
static const struct options *options;

static void
on_child(void *arg, int signo)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (!ticks_reaped(pid))
			agent_reaped(pid, status);
	}
}

static void
on_end(void *arg, int signo)
{
	static bool warned;

	if (signo == SIGTERM && !warned && preempt_signal(signo, "-")) {
		warned = true; /* the next one ends the daemon */
		return;
	}
	note("%s: ending", strsignal(signo));
	loop_stop(daemon_.loop);
}

/* Releases the caller's standard input and output: the caller may be waiting for EOF. */
static void
to_background(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		die("/dev/null: %s", strerror(errno));
	dup2(null, 0);
	dup2(null, 1);
	dup2(daemon_.log_fd, STDERR_FILENO);
	close(null);
}

/* The mount, or the socket alone, is ready. */
static void
on_ready(void)
{
	struct err e = {0};
	struct group *g = TAILQ_FIRST(&groups);

	if (ready_pipe >= 0) {
		to_background();
		(void)!write(ready_pipe, "", 1);
		close(ready_pipe);
	}
	if (hosts_warm(g, &e) < 0)
		journal_fail(g, &e, "agent");
}

/* Forks: the parent waits until the mount is ready and exits with 0 or, if that fails, with the
 * child's status. */
static void
go_to_background(void)
{
	int ends[2];
	char ok;
	pid_t pid;

	if (fault("background", EAGAIN) || pipe2(ends, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		die("cannot go to the background: %s", strerror(errno));
	if (pid > 0) {
		int status = 1;

		close(ends[1]);
		if (read(ends[0], &ok, 1) == 1)
			_exit(0);
		_exit(
		    waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	close(ends[0]);
	ready_pipe = ends[1];
	setsid();
	if (chdir("/") < 0)
		die("/: %s", strerror(errno));
}

static void
refuse_option(struct group *g, const struct err *e, const char *line)
{
	group_remove_all(); /* else a leak checker reports what only ranks point to */
	die("-o %s: %s", line, e->text);
}

/* Lets engines exit cleanly if they can do so quickly; the mount is already closed. */
static void
end_groups(void)
{
	uint64_t deadline = now_ns() + POLITE_MS * 1000000ull;
	struct err e;
	struct group *g;
	bool left = true;

	TAILQ_FOREACH (g, &groups, link)
		lifecycle_stop(g, &e);
	while (left && now_ns() < deadline) {
		left = false;
		TAILQ_FOREACH (g, &groups, link)
			left |= g->life.state == G_STOPPING;
		if (left)
			loop_once(daemon_.loop, 20);
	}
}

static void
take_signals(void)
{
	signal(SIGPIPE, SIG_IGN);
	loop_signal(daemon_.loop, SIGTERM, on_end, NULL);
	loop_signal(daemon_.loop, SIGINT, on_end, NULL);
	loop_signal(daemon_.loop, SIGHUP, on_end, NULL);
	loop_signal(daemon_.loop, SIGCHLD, on_child, NULL);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* The socket first: a program that finds the mount finds both. */
static void
open_doors(const struct options *o)
{
	struct session_options fuse = {o->mountpoint, o->fuse_opts};
	struct group *g = TAILQ_FIRST(&groups);
	struct err e = {0};
	int r = o->socket ? server_start(o->socket, &e) : 0;

	session_on_ready(on_ready);
	if (r == 0 && *o->mountpoint)
		r = session_start(&fuse, &e);
	if (r == 0) {
		/* nobody is served before the loop runs, so nobody sees a group without ranks */
		if (!hosts_named(g))
			host_gpus_here_wait();
		start_make_ranks(g);
		if (!*o->mountpoint)
			on_ready();
		return;
	}
	server_shut();
	ticks_stop();
	group_remove_all();
	note("%s", e.text);
	exit(e.no == EPERM ? EXIT_NO_MOUNT : 1);
}

/* Shuts everything down. */
static void
end(const struct options *o)
{
	pid_t watchdog = ticks_watchdog();

	daemon_.ending = true;
	server_shut();
	if (*o->mountpoint)
		session_shut();
	/* the watchdog has nothing left to unmount, and the next mount may get our device number */
	ticks_mounted(0, 0);
	end_groups();
	group_remove_all();
	agent_stop_all();
	copy_stop();
	stderr_of_stop();
	/* those who wait for no group; the front ends would leave them in these lists */
	event_file_answer();
	wait_file_answer();
	gpu_file_stop();
	server_stop();
	session_stop();
	listing_fini();
	tree_fini();
	event_file_stop();
	ticks_stop();
	host_gpus_stop();
	agent_free_all();
	/* not for all children: a launcher may leave processes that live on, as ssh does */
	if (watchdog > 0)
		waitpid(watchdog, NULL, 0);
}

static bool
names_hosts(const struct options *o)
{
	for (size_t i = 0; i < o->settings_count; i++)
		if (strncmp(o->settings[i], "hosts ", strlen("hosts ")) == 0)
			return true;
	return false;
}

static void
serve(const struct options *o)
{
	struct err e = {0};
	int log;

	options = o;
	daemon_.loop = loop_new();
	loop_spin(daemon_.loop, SPIN_NS);
	take_signals();
	if (state_make(*o->mountpoint ? o->mountpoint : o->socket, &daemon_.state_dir, &e) < 0)
		die("%s", e.text);
	preempt_init();
	host_notice_init();
	change_ticks_init();
	replacement_init();
	live_init();
	cell_file_init();
	tell_init();
	wait_file_init();
	tree_init();
	event_file_init();
	gpu_file_start();
	log = log_open();
	daemon_.log_fd = ready_pipe < 0 ? STDERR_FILENO : log;
	if (!names_hosts(o))
		host_gpus_here_begin(); /* it is answered while we mount */
	if (group_make("group", &e) < 0)
		die("%s", e.text);
	settings_set_options(o->settings, o->settings_count);
	settings_take_options(TAILQ_FIRST(&groups), refuse_option);
	errno = -ticks_start();
	if (errno) {
		fail_start(&e, "the watchdog");
		die("%s", e.text);
	}
	if (copy_start(&e) < 0)
		die("%s", e.text);
	open_doors(o);
	loop_run(daemon_.loop);
	end(o);
	loop_free(daemon_.loop);
}

/* The path of ddip-engine: from DDIP_ENGINE, or installed next to this program. */
static char *
find_engine(void)
{
	static const char *const places[] = {"ddip-engine", "../libexec/ddipfs/ddip-engine"};
	char *given = getenv("DDIP_ENGINE"), *self;

	if (given && *given)
		return xstrdup(given);
	self = own_folder();
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		char *path = xasprintf("%s/%s", self, places[i]);

		if (access(path, X_OK) == 0) {
			free(self);
			return path;
		}
		free(path);
	}
	die("ddip-engine is not beside ddipfs in %s: build or install both (make; make install)",
	    self);
}

/* Sets the daemon's own umask and descriptor limit, and saves the caller's for the ranks. */
static void
set_limits(void)
{
	struct rlimit files;
	char text[32];

	snprintf(text, sizeof(text), "%o", (unsigned)umask(PRIVATE_UMASK));
	setenv(ENGINE_ENV_UMASK, text, 1);
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)files.rlim_cur);
	setenv(ENGINE_ENV_FILES, text, 1);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

/* Ranks cannot work in a directory that the mount covers: `cd DIR; ddipfs .` means the directory
 * above. */
static void
leave_mountpoint(char *cwd, const char *mountpoint)
{
	size_t n = strlen(mountpoint);

	if (n && strncmp(cwd, mountpoint, n) == 0 && (!cwd[n] || cwd[n] == '/')) {
		cwd[n] = '\0';
		*(strrchr(cwd, '/') + (strrchr(cwd, '/') == cwd)) = '\0';
	}
}

int
main(int argc, char **argv)
{
	struct options o = {0};
	char cwd[PATH_MAX];

	note_as("ddipfs");
	proc_begin();
	proc_close_from(3); /* the caller's locks and pipes: it may wait for their release */
	if (argc == 3 && strcmp(argv[1], "--watchdog") == 0)
		return watchdog_main(argv[2]);
	options_parse(&o, argc, argv); /* exits for --help and on mistakes */
	set_limits();
	if (!getcwd(cwd, sizeof(cwd)))
		die("the current directory is gone: %s", strerror(errno));
	leave_mountpoint(cwd, o.mountpoint);
	daemon_.cwd = xstrdup(cwd);
	daemon_.mountpoint = o.mountpoint;
	daemon_.mode = o.mode;
	daemon_.python = options_python();
	daemon_.engine = find_engine();
	daemon_.mounted = now_wall();
	if (!o.foreground)
		go_to_background();
	serve(&o);
	options_free(&o);
	free(daemon_.cwd);
	free(daemon_.python);
	free(daemon_.engine);
	free(daemon_.state_dir);
	return 0;
}
