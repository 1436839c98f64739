/* Agents, and calls to them. `launchers` has a row for each way of starting an agent. */
#include "host/agent.h"
#include "host/ticks.h"
#include "base/daemon.h"
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct call {
	reply_fn *fn; /* NULL: free */
	void *arg;
	int slot;
	uint32_t use; /* counts who had this place: the upper bits of the tag */
};

enum { TAG_PLACE = 20, TAG_USES = 1 << (32 - TAG_PLACE) }; /* bits of the place in calls, plus 1 */

static struct agent *local;

/* Starts ddip-engine --agent with both ends of its control connection on one socket. */
static int
start_local(struct agent *a, struct err *e)
{
	char *argv[] = {daemon_.engine, (char[]){"--agent"}, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int pair[2], r;

	if (fault("agent.socketpair", EMFILE) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_errno(e, "agent: socketpair");
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, pair[1], 0);
	posix_spawn_file_actions_adddup2(&files, pair[1], 1);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(
	    &attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	r = fault("agent.spawn", EAGAIN)
		? EAGAIN
		: posix_spawn(&a->pid, daemon_.engine, &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	close(pair[1]);
	if (r != 0) {
		close(pair[0]);
		return fail(
		    e, r, "%s: %s (is ddipfs installed completely?)", daemon_.engine, strerror(r));
	}
	a->conn = NULL;
	return pair[0];
}

const struct launcher launchers[] = {
    {"local", start_local},
};
const size_t launcher_count = ARRAY_LEN(launchers);

uint32_t
agent_tag(struct agent *a, int slot, reply_fn *fn, void *arg)
{
	size_t i = 0;

	while (i < a->call_room && a->calls[i].fn)
		i++;
	if (i == a->call_room) {
		a->call_room = MAX(a->call_room * 2, (size_t)64);
		a->calls = xrealloc(a->calls, a->call_room * sizeof(*a->calls));
		memset(a->calls + i, 0, (a->call_room - i) * sizeof(*a->calls));
	}
	a->calls[i] = (struct call){
	    .fn = fn, .arg = arg, .slot = slot, .use = (a->calls[i].use + 1) % TAG_USES};
	return a->calls[i].use << TAG_PLACE | (uint32_t)(i + 1);
}

/* The call that this tag was given to, NULL: it is over. What an agent says late of an engine that
 * has ended must not meet the call that has the place now. */
static struct call *
find_call(struct agent *a, uint32_t tag)
{
	size_t i = tag & ((1u << TAG_PLACE) - 1);
	struct call *c = i && i <= a->call_room ? &a->calls[i - 1] : NULL;

	return c && c->fn && c->use == tag >> TAG_PLACE ? c : NULL;
}

static void
ignore_reply(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
}

/* The tag stays taken until it is answered: a late answer must not meet another question. */
void
agent_forget(struct agent *a, uint32_t tag)
{
	struct call *c = a ? find_call(a, tag) : NULL;

	if (c)
		c->fn = ignore_reply;
}

/* Ends the calls of a slot (or all: NO_SLOT) with an error. */
static void
fail_calls(struct agent *a, int slot, const struct err *e)
{
	for (size_t i = 0; i < a->call_room; i++) {
		struct call c = a->calls[i];

		if (!c.fn || (slot != NO_SLOT && c.slot != slot))
			continue;
		a->calls[i].fn = NULL;
		c.fn(c.arg, NULL, e, (struct slice){0});
	}
}

static void
answered(struct agent *a, struct msg *m)
{
	struct slice text, trace = {0};
	struct err e = {0};
	struct call *place = find_call(a, m->tag), c;
	uint32_t no;

	if (!place) {
		debug("wire", "%s with tag %u that nobody waits for", wire_name(m->type), m->tag);
		return;
	}
	c = *place;
	place->fn = NULL;
	if (m->type != Rerror) {
		c.fn(c.arg, m, &e, trace);
		return;
	}
	if (wire_unpack(m, &e, &no, &text, &trace) == 0)
		fail(&e, (int)no, "%.*s", (int)MIN(text.n, sizeof(e.text) - 1), text.p);
	c.fn(c.arg, NULL, &e, trace);
}

static bool
is_notice(int type)
{
	return wire_name(type)[0] == 'N';
}

static void
on_message(void *arg, struct msg *m)
{
	struct agent *a = arg;
	struct slot *s = NULL;

	if (!is_notice(m->type)) {
		answered(a, m);
		return;
	}
	if (m->slot < a->slot_room)
		s = &a->slots[m->slot];
	if (s && s->ops)
		s->ops->notice(s->arg, m);
	else if (m->type != Nexit)
		debug("wire", "%s for slot %u, which is gone", wire_name(m->type), m->slot);
}

/* Everything on this host is gone. First nothing may be sent there any more, then who waits is
 * told: what follows from that may start another agent in the place of this one. */
static void
lost(struct agent *a)
{
	int n = a->next_slot;
	struct err why = a->why;

	conn_free(a->conn);
	a->conn = NULL;
	if (!daemon_.ending)
		note("%s", why.text);
	for (int i = 0; i < n; i++)
		if (a->slots[i].ops && a->slots[i].ops->lost)
			a->slots[i].ops->lost(a->slots[i].arg, &why);
	fail_calls(a, NO_SLOT, &why);
	for (int i = 0; i < n; i++) {
		struct slot s = a->slots[i];

		a->slots[i] = (struct slot){0};
		if (s.ops)
			s.ops->ended(s.arg, &why);
	}
}

static void
on_close(void *arg, const struct err *why)
{
	struct agent *a = arg;

	if (!a->why.no)
		fail(&a->why, EHOSTDOWN, "the agent of host %s is gone%s%s",
		    a->host ? a->host : "?", why->no ? ": " : "",
		    why->no ? why->text : " (its log is ddipfs.log)");
	lost(a);
}

static void
on_hello(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct agent *a = arg;
	uint32_t version, pid;
	struct slice host;

	if (!m && !a->conn)
		return; /* it ended before it said anything */
	if (!m) {
		fail(&a->why, e->no, "%s: %.900s", daemon_.engine, e->text);
		lost(a);
		return;
	}
	if (wire_unpack(m, &a->why, &version, &pid, &host) < 0) {
		lost(a);
		return;
	}
	if (version != WIRE_VERSION) {
		fail(&a->why, EPROTO, "%s: protocol mismatch (%u, expected %d): reinstall both",
		    daemon_.engine, version, WIRE_VERSION);
		lost(a);
		return;
	}
	a->said_hello = true;
	a->host_pid = (pid_t)pid;
	free(a->host);
	a->host = slice_dup(host);
}

static void
forget_zygotes(struct agent *a)
{
	if (a->zygotes_gone)
		a->zygotes_gone(a);
}

struct agent *
agent_local(struct err *e)
{
	int fd;

	if (daemon_.ending) {
		fail(e, ENODEV, "ddipfs is ending");
		return NULL;
	}
	if (local && local->conn)
		return local;
	if (!local)
		local = xcalloc(1, sizeof(*local));
	forget_zygotes(local);
	local->launcher = &launchers[0];
	local->why = (struct err){0};
	local->said_hello = false;
	local->serial++;
	fd = local->launcher->start(local, e);
	if (fd < 0)
		return NULL;
	ticks_agent(local->pid);
	local->conn = conn_new(daemon_.loop, fd, fd, on_message, on_close, local);
	agent_send(local, Thello, 0, SLOT_AGENT, agent_tag(local, NO_SLOT, on_hello, local), -1,
	    (uint32_t)WIRE_VERSION, ((struct slice){"", 0}));
	return local;
}

bool
agent_reaped(pid_t pid, int status)
{
	if (!local || local->pid != pid)
		return false;
	local->pid = 0;
	if (!daemon_.ending && local->conn) {
		fail(&local->why, EHOSTDOWN,
		    "the agent ended with %s %d: everything it ran is gone",
		    WIFSIGNALED(status) ? "signal" : "exit status",
		    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	return true;
}

void
agent_stop_all(void)
{
	uint64_t deadline = now_ns() + 4000000000u;

	if (!local)
		return;
	conn_free(local->conn);
	local->conn = NULL;
	/* EOF makes it kill what it runs and end. One that does not is killed, its engines by
	 * PDEATHSIG. */
	while (local->pid && waitpid(local->pid, NULL, WNOHANG) != local->pid) {
		if (now_ns() > deadline) {
			kill(local->pid, SIGKILL);
			waitpid(local->pid, NULL, 0);
			break;
		}
		usleep(1000);
	}
	forget_zygotes(local);
	free(local->calls);
	free(local->slots);
	free(local->host);
	free(local);
	local = NULL;
}

int
agent_slot(struct agent *a, const struct slot_ops *ops, void *arg)
{
	int slot = a->next_slot++;

	if (slot >= SLOT_AGENT)
		return NO_SLOT;
	if ((size_t)slot >= a->slot_room) {
		size_t old = a->slot_room;

		a->slot_room = MAX(old * 2, (size_t)16);
		a->slots = xrealloc(a->slots, a->slot_room * sizeof(*a->slots));
		memset(a->slots + old, 0, (a->slot_room - old) * sizeof(*a->slots));
	}
	a->slots[slot] = (struct slot){.ops = ops, .arg = arg};
	return slot;
}

bool
agent_slot_lives(const struct agent *a, int slot)
{
	return a && a == local && a->conn && slot >= 0 && slot < a->next_slot && a->slots[slot].ops;
}

void
agent_slot_free(struct agent *a, int slot, const struct err *why)
{
	if (slot == NO_SLOT)
		return;
	a->slots[slot] = (struct slot){0};
	fail_calls(a, slot, why);
}
