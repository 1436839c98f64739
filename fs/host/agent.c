/* Agents, and calls to them. */
#include "host/agent.h"
#include "host/outbox.h"
#include "host/ticks.h"
#include "base/daemon.h"
#include "lineage.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct call {
	reply_fn *fn; /* NULL: free */
	void *arg;
	int slot;
	uint8_t type;	  /* of the T */
	bool in_outbox;	  /* it has a descriptor */
	uint32_t serial;  /* of the agent process that was called */
	uint64_t use;	  /* of this entry: the upper bits of the tag, which never comes back */
	size_t next_free; /* index plus 1 of the next free entry; 0: none */
};

/* Pending calls, by tag. */
struct calls {
	size_t room, free; /* free: index plus 1 of the first free entry */
	struct call call[];
};

enum { TAG_PLACE = 24 }; /* bits of the index in calls, plus 1 */

enum { CALLS_FIRST = 64, SLOTS_FIRST = 16 }; /* initial capacities */

enum { USES = 1 << (31 - SLOT_PLACE) }; /* of a place: a slot is not negative */

enum { ENDS_MS = 4000 }; /* from EOF until SIGKILL */

enum { LOOK_US = 1000 };

void (*agent_notice)(struct agent *a, struct msg *m);
void (*agent_way)(struct agent *a, bool direct, const char *why);

static struct agent *agents;

const struct agent_spec agent_spec_here = {"", "", "", 0};

/* Makes room for more calls; the new entries are free. */
static void
grow_calls(struct agent *a)
{
	size_t old = a->calls ? a->calls->room : 0, room = MAX(old * 2, (size_t)CALLS_FIRST);
	struct calls *c = xrealloc(a->calls, sizeof(*c) + room * sizeof(*c->call));

	c->room = room;
	for (size_t i = old; i < room; i++)
		c->call[i] = (struct call){.next_free = i + 1 < room ? i + 2 : 0};
	c->free = old + 1;
	a->calls = c;
}

uint64_t
agent_tag(struct agent *a, int slot, int type, reply_fn *fn, void *arg)
{
	struct call *c;
	size_t place;

	if (!a->calls || !a->calls->free)
		grow_calls(a);
	place = a->calls->free;
	c = &a->calls->call[place - 1];
	a->calls->free = c->next_free;
	*c = (struct call){.fn = fn,
	    .arg = arg,
	    .slot = slot,
	    .type = (uint8_t)type,
	    .serial = a->serial,
	    .use = c->use + 1};
	return c->use << TAG_PLACE | place;
}

/* Removes a call and frees its entry. */
static struct call
take_call(struct agent *a, struct call *c)
{
	struct call taken = *c;
	size_t place = (size_t)(c - a->calls->call) + 1;

	if (c->in_outbox && a->line.outbox)
		outbox_release(a->line.outbox, c->use << TAG_PLACE | place);
	c->fn = NULL;
	c->next_free = a->calls->free;
	a->calls->free = place;
	return taken;
}

/* The call with this tag, or NULL if it is over. */
static struct call *
find_call(struct agent *a, uint64_t tag)
{
	size_t i = tag & ((1u << TAG_PLACE) - 1);
	struct call *c = i && a->calls && i <= a->calls->room ? &a->calls->call[i - 1] : NULL;

	return c && c->fn && c->use == tag >> TAG_PLACE ? c : NULL;
}

void
agent_forget(struct agent *a, uint64_t tag)
{
	struct call *c = a ? find_call(a, tag) : NULL;

	if (c)
		take_call(a, c);
}

void
agent_cancel(struct agent *a, int slot, uint64_t tag)
{
	const struct call *c = find_call(a, tag);

	if (c && c->in_outbox && a->line.outbox)
		outbox_cancel(a->line.outbox, (unsigned)slot, tag);
	else
		agent_send(a, Ncancel, 0, slot, 0, -1, tag);
}

/* A T with a descriptor, which cannot be passed there. */
static void
on_fd(void *arg, struct msg *m)
{
	struct agent *a = arg;
	struct call *c = find_call(a, m->tag);

	if (c)
		c->in_outbox = true;
	outbox_send(a->line.outbox, m);
}

/* Fails the calls of a slot (NO_SLOT: all), except those to another process of this agent, which
 * may have been started in the meantime. */
static void
fail_calls(struct agent *a, int slot, const struct err *e)
{
	uint32_t serial = a->serial;

	for (size_t i = 0; a->calls && i < a->calls->room; i++) {
		struct call *place = &a->calls->call[i], c;

		if (!place->fn || place->serial != serial ||
		    (slot != NO_SLOT && place->slot != slot))
			continue;
		c = take_call(a, place);
		c.fn(c.arg, NULL, e, (struct slice){0});
	}
}

/* The engine at this slot; NULL: it has ended. */
static struct slot *
find_slot(const struct agent *a, int slot)
{
	int place = (int)slot_place((uint32_t)slot);
	struct slot *s = place < a->slot_room ? &a->slots[place] : NULL;

	return s && s->ops && s->use == slot >> SLOT_PLACE ? s : NULL;
}

/* Its slot is gone for good: the next engine here has another one. */
static void
free_place(struct agent *a, int place)
{
	struct slot *s = &a->slots[place];

	*s = (struct slot){.use = s->use + 1, .next_free = a->free_place};
	if (s->use < USES)
		a->free_place = place + 1;
}

static void
forget_zygotes(struct agent *a)
{
	if (a->zygotes_gone)
		a->zygotes_gone(a);
}

/* Nothing more can be sent there, and nothing comes. */
static void
hang_up(struct agent *a)
{
	outbox_free(a->line.outbox);
	a->line.outbox = NULL;
	for (int i = 0; i < LANES; i++) {
		conn_free(a->line.lanes[i]);
		a->line.lanes[i] = NULL;
	}
	if (a->line.words_watch)
		close(a->line.words);
	loop_fd_del(a->line.words_watch);
	a->line.words_watch = NULL;
	conn_free(a->conn);
	a->conn = NULL;
}

/* Everything on this host is gone. First stops all sending there, then calls everyone concerned:
 * their callbacks may start another process of this agent. */
static void
lost(struct agent *a)
{
	uint32_t serial = a->serial;
	struct err why = a->why;

	hang_up(a);
	if (!daemon_.ending)
		note("%s", why.text);
	for (int i = 0; i < a->slot_room; i++)
		if (a->slots[i].ops && a->slots[i].ops->lost)
			a->slots[i].ops->lost(a->slots[i].arg, &why);
	fail_calls(a, NO_SLOT, &why);
	if (a->serial == serial)
		forget_zygotes(a);
	for (int i = 0; i < a->slot_room; i++) {
		struct slot s = a->slots[i];

		if (!s.ops || s.serial != serial)
			continue; /* free, or of the next process */
		free_place(a, i);
		s.ops->ended(s.arg, &why);
	}
}

/* Sets the reason why it is gone. */
__attribute__((format(printf, 3, 4))) static void
set_why(struct agent *a, int no, const char *fmt, ...)
{
	char text[sizeof(a->why.text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (*a->spec.host)
		fail(&a->why, no, "host %s is lost: %.900s", a->spec.host, text);
	else
		fail(&a->why, no, "%.1000s", text);
}

/* It has sent what its program never sends: what it says is worth nothing any more. An engine is
 * killed, alone; the agent itself is dropped, with all that it runs. serial: of its process. */
static void
distrust(struct agent *a, uint32_t serial, unsigned slot, const struct err *e)
{
	if (a->serial != serial || !a->conn)
		return;
	if (slot == SLOT_AGENT) {
		set_why(a, EBADMSG, "the agent of host %s sent a wrong message: %.900s",
		    agent_host(a), e->text);
		lost(a);
		return;
	}
	agent_send(a, Nwrong, 0, slot, 0, -1, slice_text(e->text));
}

/* An error of the agent itself. */
static void
name_host(const struct agent *a, struct err *e)
{
	struct err own = *e;

	fail(e, own.no, "host %s: %.900s", a->spec.host, own.text);
}

static void
answered(struct agent *a, struct msg *m)
{
	int slot = (int)m->slot;
	struct call *place = find_call(a, m->tag), c;
	struct slice trace = {0};
	struct err e; /* not cleared whole: there are thousands of replies */
	bool lies;

	e.no = 0;
	e.text[0] = '\0';
	if (!place || place->slot != slot) {
		debug("wire", "%s with tag %llu: no call is pending", wire_name(m->type),
		    (unsigned long long)m->tag);
		return;
	}
	c = take_call(a, place);
	lies = wire_check(m, &e) < 0;
	if (!lies && m->type == Rerror)
		wire_read_error(m, &e, &trace);
	else if (!lies && m->type != wire_reply(c.type))
		lies = fail(&e, EBADMSG, "wire: %s in reply to %s", wire_name(m->type),
			   wire_name(c.type)) < 0;
	if (e.no && slot == NO_SLOT && !a->here)
		name_host(a, &e);
	if (lies && slot != NO_SLOT)
		distrust(a, c.serial, m->slot, &e); /* first: fn may free the slot */
	c.fn(c.arg, e.no ? NULL : m, &e, trace);
	if (lies && slot == NO_SLOT)
		distrust(a, c.serial, SLOT_AGENT, &e);
}

static void
on_message(void *arg, struct msg *m)
{
	struct agent *a = arg;
	const struct slot *s = find_slot(a, (int)m->slot);
	struct err e;

	if (wire_kind(m->type) != 'N') {
		answered(a, m);
		return;
	}
	if (wire_check(m, &e) < 0)
		distrust(a, a->serial, m->slot, &e);
	else if (m->slot == SLOT_AGENT && agent_notice)
		agent_notice(a, m);
	else if (s)
		s->ops->notice(s->arg, m);
	else if (m->type != Nexit)
		debug("wire", "%s for slot %u, which is gone", wire_name(m->type), m->slot);
}

/* One of the relay's words. */
static void
take_word(struct agent *a, const char *word)
{
	char *text;
	long no;

	if (!strcmp(word, "direct")) {
		a->line.direct = true;
		agent_way(a, true, "");
	} else if (!strncmp(word, "indirect ", strlen("indirect "))) {
		a->line.direct = false;
		agent_way(a, false, word + strlen("indirect "));
	} else if (!strncmp(word, "error ", strlen("error "))) {
		no = strtol(word + strlen("error "), &text, 10);
		fail(&a->why, (int)no, "%s", *text ? text + 1 : text);
	}
}

static void
take_words(struct agent *a)
{
	char word[sizeof(a->why.text) + 32];
	ssize_t n;

	while (a->line.words_watch &&
	       (n = recv(a->line.words, word, sizeof(word) - 1, MSG_DONTWAIT)) > 0) {
		word[n] = '\0';
		take_word(a, word);
	}
}

static void
on_words(void *arg, uint32_t events)
{
	struct agent *a = arg;

	take_words(a);
	if (events & (EPOLLHUP | EPOLLERR)) { /* its lanes end, too */
		loop_fd_del(a->line.words_watch);
		a->line.words_watch = NULL;
		close(a->line.words);
	}
}

static void
on_close(void *arg, const struct err *why)
{
	struct agent *a = arg;
	uint32_t serial = a->serial;

	for (int i = LANE_CONTROL + 1; i < LANES; i++)
		if (a->line.lanes[i])
			conn_take_all(a->line.lanes[i]);
	take_words(a);
	if (a->serial != serial || !a->conn)
		return; /* lost by what has come */
	if (!a->why.no)
		set_why(a, EHOSTDOWN, "the agent of host %s is gone%s%s", agent_host(a),
		    why->no ? ": " : "", why->no ? why->text : " (its log is ddipfs.log)");
	lost(a);
}

/* That of control counts, but for what is no message. */
static void
on_lane_close(void *arg, const struct err *why)
{
	if (why->no)
		on_close(arg, why);
}

static void
on_hello(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct agent *a = arg;
	uint32_t version, pid;
	struct slice host;
	uint8_t away;

	if (!m && !a->conn)
		return; /* it exited before it said anything */
	if (!m) {
		if (a->here)
			set_why(a, e->no, "%s: %.900s", daemon_.engine, e->text);
		else
			a->why = *e; /* it names the host */
		lost(a);
		return;
	}
	if (wire_unpack(m, Rhello, &a->why, &version, &pid, &host, &away) < 0) {
		lost(a);
		return;
	}
	if (version != WIRE_VERSION) {
		set_why(a, EPROTO, "%s: protocol mismatch (%u, expected %d): reinstall both",
		    daemon_.engine, version, WIRE_VERSION);
		lost(a);
		return;
	}
	a->hello = away ? HELLO_AWAY : HELLO_HERE;
	free(a->host);
	a->host = slice_dup(host);
	agent_ping(a); /* the round trip of the first Thello includes start-up */
}

static void
on_pong(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct agent *a = arg;

	a->round_trip = now_ns() - a->asked;
	a->asked = 0;
}

static void
say_hello(struct agent *a, reply_fn *fn)
{
	agent_send(a, Thello, 0, SLOT_AGENT, agent_tag(a, NO_SLOT, Thello, fn, a), -1,
	    (uint32_t)WIRE_VERSION, slice_text(daemon_.state_dir));
}

void
agent_ping(struct agent *a)
{
	if (!a->conn || a->asked)
		return;
	a->asked = now_ns();
	say_hello(a, on_pong);
}

const char *
agent_host(const struct agent *a)
{
	if (!a)
		return "-";
	if (*a->spec.host)
		return a->spec.host;
	return a->host ? a->host : "-";
}

static struct agent *
find_agent(const struct agent_spec *s)
{
	struct agent *a = agents;

	while (a &&
	       (strcmp(a->spec.host, s->host) != 0 || strcmp(a->spec.launcher, s->launcher) != 0 ||
		   strcmp(a->spec.engine, s->engine) != 0 || a->spec.linger != s->linger))
		a = a->next;
	return a;
}

struct agent *
agent_here(void)
{
	return find_agent(&agent_spec_here);
}

static struct agent *
add_agent(const struct agent_spec *s)
{
	struct agent *a = xcalloc(1, sizeof(*a)), **last = &agents;

	*a = (struct agent){
	    .spec = {xstrdup(s->host), xstrdup(s->launcher), xstrdup(s->engine), s->linger},
	    .here = agent_process_is_here(s)};
	while (*last)
		last = &(*last)->next;
	*last = a;
	return a;
}

/* Those besides that of control, and what the relay says. */
static void
open_lanes(struct agent *a, const struct agent_sockets *s, int out)
{
	for (int i = LANE_CONTROL + 1; i < LANES; i++) {
		a->line.lanes[i] =
		    conn_new(daemon_.loop, s->lanes[i], s->lanes[i], on_message, on_lane_close, a);
		conn_beside(a->line.lanes[i], a->conn);
	}
	a->line.outbox = outbox_new(daemon_.loop, a->conn, out);
	conn_on_fd(a->conn, on_fd);
	a->line.words = s->words;
	a->line.words_watch = loop_fd(daemon_.loop, a->line.words, EPOLLIN, on_words, a);
}

struct agent *
agent_of(const struct agent_spec *spec, struct err *e)
{
	struct agent *a = find_agent(spec);
	struct agent_sockets s;
	int out = -1;

	if (daemon_.ending) {
		fail(e, ENODEV, "ddipfs is ending");
		return NULL;
	}
	if (a && a->conn)
		return a;
	if (!a)
		a = add_agent(spec);
	a->why = (struct err){0};
	a->hello = HELLO_NONE;
	a->line.direct = false;
	a->asked = a->round_trip = 0;
	a->serial++;
	if (agent_process_start(&a->spec, &a->process, &s, e) < 0)
		return NULL;
	ticks_agent(a->process.pid);
	if (!a->here && (out = fcntl(s.lanes[LANE_OBJECTS], F_DUPFD_CLOEXEC, 0)) < 0) {
		fail_errno(e, "agent: a socket");
		agent_sockets_close(&s); /* which ends it */
		return NULL;
	}
	a->conn = conn_new(
	    daemon_.loop, s.lanes[LANE_CONTROL], s.lanes[LANE_CONTROL], on_message, on_close, a);
	if (!a->here)
		open_lanes(a, &s, out);
	conn_gather(a->conn);
	say_hello(a, on_hello);
	return a;
}

void
agent_hold(struct agent *a)
{
	a->users++;
}

void
agent_release(struct agent *a)
{
	struct err why = {0};

	if (!a || --a->users > 0 || !*a->spec.host || !a->conn)
		return;
	fail(&why, ECANCELED, "host %s is not used any more", a->spec.host);
	agent_drop(a, &why);
}

void
agent_drop(struct agent *a, const struct err *why)
{
	if (!a->conn)
		return;
	a->why = *why;
	lost(a);
}

bool
agent_reaped(pid_t pid, int status)
{
	struct agent *a = agents;

	ticks_agent_gone(pid); /* even if it has been replaced */
	while (a && a->process.pid != pid)
		a = a->next;
	if (!a)
		return false;
	a->process.pid = 0;
	lineage_end(
	    a->process.lineage); /* an agent that was killed has left what its ranks had started */
	if (!daemon_.ending && a->conn && !a->why.no)
		set_why(a, EHOSTDOWN, "the %s ended with %s %d: everything it ran is gone",
		    a->here ? "agent" : "relay to it",
		    WIFSIGNALED(status) ? "signal" : "exit status",
		    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return true;
}

/* On EOF it kills what it runs and exits; else it is killed, and then what it runs. */
static void
await_end(struct agent *a, uint64_t deadline)
{
	while (a->process.pid && waitpid(a->process.pid, NULL, WNOHANG) != a->process.pid) {
		if (now_ns() > deadline) {
			kill(a->process.pid, SIGKILL);
			waitpid(a->process.pid, NULL, 0);
			break;
		}
		usleep(LOOK_US);
	}
	a->process.pid = 0;
	lineage_end(a->process.lineage);
}

void
agent_stop_all(void)
{
	uint64_t deadline = now_ns() + (uint64_t)ENDS_MS * NS_PER_MS;

	for (struct agent *a = agents; a; a = a->next)
		hang_up(a);
	for (struct agent *a = agents; a; a = a->next) {
		await_end(a, deadline);
		forget_zygotes(a);
	}
}

void
agent_free_all(void)
{
	struct agent *a;

	while ((a = agents)) {
		agents = a->next;
		free((char *)(uintptr_t)a->spec.host);
		free((char *)(uintptr_t)a->spec.launcher);
		free((char *)(uintptr_t)a->spec.engine);
		free(a->calls);
		free(a->slots);
		free(a->host);
		free(a);
	}
}

static bool
grow_slots(struct agent *a)
{
	int old = a->slot_room, room = MIN(MAX(old * 2, SLOTS_FIRST), SLOT_AGENT);

	a->slots = xrealloc(a->slots, (size_t)room * sizeof(*a->slots));
	a->slot_room = room;
	for (int i = room; i-- > old; a->free_place = i + 1)
		a->slots[i] = (struct slot){.next_free = a->free_place};
	return room > old;
}

int
agent_slot(struct agent *a, const struct slot_ops *ops, void *arg)
{
	struct slot *s;
	int place;

	if (!a->free_place && !grow_slots(a))
		return NO_SLOT;
	place = a->free_place - 1;
	s = &a->slots[place];
	a->free_place = s->next_free;
	*s = (struct slot){.ops = ops, .arg = arg, .serial = a->serial, .use = s->use};
	return s->use << SLOT_PLACE | place;
}

bool
agent_slot_lives(const struct agent *a, int slot)
{
	return a && a->conn && find_slot(a, slot);
}

void
agent_slot_free(struct agent *a, int slot, const struct err *why)
{
	if (!a || slot == NO_SLOT)
		return;
	if (find_slot(a, slot))
		free_place(a, (int)slot_place((uint32_t)slot));
	fail_calls(a, slot, why);
}
