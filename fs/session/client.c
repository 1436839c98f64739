/*
 * The process behind a request. It is waiting for us, so only its /proc `status` may be read, and
 * its `stat` once it is past the locks that a system call may hold.
 */
#include "session/client.h"
#include "proc.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

static const uint64_t stop_signals = PROC_SIGNAL(SIGINT) | PROC_SIGNAL(SIGTERM) |
				     PROC_SIGNAL(SIGHUP) | PROC_SIGNAL(SIGQUIT) |
				     PROC_SIGNAL(SIGKILL);
static const uint64_t pause_signals =
    PROC_SIGNAL(SIGTSTP) | PROC_SIGNAL(SIGSTOP) | PROC_SIGNAL(SIGTTIN) | PROC_SIGNAL(SIGTTOU);
/* Signals that do nothing if they have no handler. */
static const uint64_t harmless_signals =
    PROC_SIGNAL(SIGCHLD) | PROC_SIGNAL(SIGCONT) | PROC_SIGNAL(SIGURG) | PROC_SIGNAL(SIGWINCH);

pid_t
client_process(pid_t tid)
{
	struct proc_status s;

	if (tid == 0 || proc_is_process(tid))
		return tid;
	return proc_status(tid, &s) == 0 ? s.process : tid;
}

bool
client_is_sftp(pid_t tid)
{
	/* the last two implement it themselves (internal-sftp) */
	static const char *const servers[] = {"sftp-server", "sshd", "sshd-session"};
	char name[PROC_NAME];
	bool is = false;

	if (tid == 0 || proc_name(tid, name) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(servers); i++)
		is |= strcmp(name, servers[i]) == 0;
	return is;
}

/* Pending signals that will kill the process: not handled, ignored or blocked. */
static uint64_t
fatal_signals(const struct proc_status *s)
{
	return s->pending &
	       ~(s->ignored | s->caught | s->blocked | pause_signals | harmless_signals);
}

enum client_wish
client_wish(pid_t tid)
{
	struct proc_status s;
	uint64_t fatal;
	int r = tid ? proc_status(tid, &s) : -EPERM;

	if (r == -ENOENT || r == -ESRCH)
		return CLIENT_GONE;
	/* no descriptor is left to look at it: later looks tell whether it is dying */
	if (r == -EMFILE || r == -ENFILE)
		return CLIENT_STOP;
	/* signals in a foreign pid namespace cannot be seen: assume the worst */
	if (r < 0)
		return CLIENT_DYING;
	fatal = fatal_signals(&s);
	if (fatal == PROC_SIGNAL(SIGKILL))
		return CLIENT_GONE;
	if (fatal)
		return CLIENT_DYING;
	if (s.pending & stop_signals)
		return CLIENT_STOP;
	return s.pending & pause_signals ? CLIENT_PAUSE : CLIENT_NONE;
}

struct req_client
client_now(pid_t tid)
{
	struct req_client c = {.process = tid};
	struct proc_status s;

	/* most do not exit, and this is much faster to know than the rest */
	if (tid && proc_is_process(tid) && proc_has_descriptors(tid))
		return c;
	if (tid == 0 || proc_status(tid, &s) < 0)
		return c;
	c.process = s.process;
	c.exits = s.exiting;
	/* the pending signals are for another user's client, whose exit code we may not see */
	c.killed = s.exiting && (proc_exit_signal(tid) != 0 || fatal_signals(&s) != 0);
	return c;
}
