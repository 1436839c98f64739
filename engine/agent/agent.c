/* The agent: its control connection to the daemon, and the function that handles each message. */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "lineage.h"
#include "proc.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OCTAL = 8, DECIMAL = 10 };

struct agent agent;

struct slice
agent_text(const char *s)
{
	return (struct slice){s, strlen(s)};
}

void
agent_refuse(unsigned slot, uint64_t tag, const struct err *e)
{
	conn_send(agent.up, Rerror, 0, slot, tag, -1, (uint32_t)e->no, agent_text(e->text),
	    (struct slice){0});
}

static void
on_hello(struct msg *m)
{
	char host[256] = "localhost";
	struct slice base;
	uint32_t version;
	struct err e = {0};

	if (wire_unpack(m, Thello, &e, &version, &base) == 0 && version != WIRE_VERSION)
		fail(&e, EPROTO, "ddip-engine: protocol mismatch (%u, expected %d): reinstall both",
		    version, WIRE_VERSION);
	if (e.no) {
		agent_refuse(SLOT_AGENT, m->tag, &e);
		conn_flush(agent.up);
		reap_all(1);
	}
	if (!agent.base)
		agent.base = slice_dup(base);
	agent.greeted = true;
	/* that which our parent has begun, and will end if we are killed */
	agent.lineage = lineage_of(getpid());
	if (!agent.lineage)
		agent.lineage = lineage_begin(getpid());
	gethostname(host, sizeof(host) - 1);
	conn_send(agent.up, Rhello, 0, SLOT_AGENT, m->tag, -1, (uint32_t)WIRE_VERSION,
	    (uint32_t)getpid(), agent_text(host), (uint32_t)agent.away);
}

static void
to_engine(struct msg *m)
{
	struct engine *e = spawn_find(m->slot);
	struct err err;

	if (e) {
		if (!agent.away || !objects_asked(e, m))
			spawn_pass(e, m);
	} else if (m->tag) {
		fail(&err, ESRCH, "%s: slot %u has no engine", wire_name(m->type), m->slot);
		agent_refuse(m->slot, m->tag, &err);
	}
}

static void
on_cancel(struct msg *m)
{
	uint64_t tag;

	if (wire_unpack(m, Ncancel, NULL, &tag) < 0 || !combine_cancel(m->slot, tag))
		to_engine(m);
}

static void
on_quit(struct msg *m)
{
	away_quit(m->slot);
	to_engine(m);
}

/* Messages for the agent itself; all others are for the engine at their slot. */
static const struct {
	int type;
	void (*fn)(struct msg *m);
} rows[] = {
    {Thello, on_hello},
    {Tzygote, zygote_pool_ask},
    {Nrelease, zygote_pool_release},
    {Tspawn, spawn_ask},
    {Nsignal, spawn_signal},
    {Nwrong, spawn_wrong},
    {Tgpus, gpus_ask},
    {Treduce, combine_ask},
    {Ncancel, on_cancel},
    {Nquit, on_quit},
};

static void
on_message(void *arg, struct msg *m)
{
	if (!agent.greeted && m->type != Thello) {
		note("%s came before Thello", wire_name(m->type));
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (rows[i].type == m->type) {
			rows[i].fn(m);
			return;
		}
	}
	to_engine(m);
}

static void
on_close(void *arg, const struct err *e)
{
	if (e->no)
		note("%s", e->text);
	reap_all(e->no ? 1 : 0);
}

/* Moves the connection away from 0 and 1, where children would inherit it or write to it. Closes
 * all other inherited descriptors: a rank would keep their other ends open, and the daemon's
 * libraries open what they like. A zygote that held a GPU's device could not fork. */
static void
take_descriptors(int *in, int *out)
{
	int type, null;
	socklen_t len = sizeof(type);
	bool is_socket = getsockopt(0, SOL_SOCKET, SO_TYPE, &type, &len) == 0;

	proc_close_from(LANE_FD + (agent.away ? LANES : 1));
	for (int lane = LANE_CONTROL + 1; agent.away && lane < LANES; lane++)
		if (fcntl(LANE_FD + lane, F_SETFD, FD_CLOEXEC) < 0)
			die("want a socket on descriptor %d", LANE_FD + lane);
	*in = fcntl(0, F_DUPFD_CLOEXEC, 10);
	*out = is_socket ? *in : fcntl(1, F_DUPFD_CLOEXEC, 10);
	null = fault("agent.null", EMFILE) ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC);
	if (*in < 0 || *out < 0 || null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
		die("want the daemon on descriptors 0 and 1, and a log on 2: %s", strerror(errno));
	close(null);
}

/* Tells ranks which process may read their memory: the one that created the socket, if it is on
 * this host. */
static void
name_daemon(int fd)
{
	struct ucred c;
	socklen_t len = sizeof(c);
	char pid[16];

	unsetenv("DDIP_DAEMON_PID"); /* of a daemon whose rank mounts this one */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0 || c.pid <= 0)
		return;
	snprintf(pid, sizeof(pid), "%d", (int)c.pid);
	setenv("DDIP_DAEMON_PID", pid, 1);
}

/* A number that the daemon passed in the environment, where ranks need not see it; -1: none. */
static long long
take_number(const char *name, int base)
{
	const char *text = getenv(name);
	long long v = text && *text ? strtoll(text, NULL, base) : -1;

	unsetenv(name);
	return v;
}

/* The lanes besides that of control. */
static void
open_lanes(void)
{
	int in = fcntl(LANE_FD + LANE_OBJECTS, F_DUPFD_CLOEXEC, 10);

	if (in < 0)
		die("a lane: %s", strerror(errno));
	agent.objects = conn_new(agent.loop, in, in, on_message, on_close, NULL);
	conn_beside(agent.objects, agent.up);
	agent.bulk[LANE_OBJECTS] =
	    bulk_new(agent.loop, LANE_FD + LANE_OBJECTS, agent.up, 0, reads_next, NULL);
	agent.bulk[LANE_OUTPUT] =
	    bulk_new(agent.loop, LANE_FD + LANE_OUTPUT, agent.up, BULK_PIECE, away_next, NULL);
}

int
agent_main(const char *away)
{
	int in, out;

	note_as("ddip-agent");
	prctl(PR_SET_NAME, "ddip-agent");
	agent.away = away;
	agent.base = away ? xstrdup(away) : NULL;
	take_descriptors(&in, &out);
	name_daemon(in);
	agent.user_umask = (int)take_number(ENGINE_ENV_UMASK, OCTAL);
	agent.user_files = take_number(ENGINE_ENV_FILES, DECIMAL);
	setsid();		  /* fails if we already lead a session */
	signal(SIGPIPE, SIG_IGN); /* the log may be a pipe, whose reader dies first */
	if (fault("agent.reaper", EINVAL) || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		die("subreaper: %s", strerror(errno));
	TAILQ_INIT(&agent.engines);
	TAILQ_INIT(&agent.pools);
	TAILQ_INIT(&agent.zygotes);
	agent.loop = loop_new();
	reap_start();
	agent.up = conn_new(agent.loop, in, out, on_message, on_close, NULL);
	conn_gather(agent.up);
	if (away)
		open_lanes();
	loop_run(agent.loop);
	return 0;
}
