/*
 * What a rank leaves behind: the processes that descend from it, which end with it. A daemon that
 * one of them became is in a session of its own and, as the agent is a subreaper, a child of the
 * agent; its lineage still says which rank it comes from.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "lineage.h"
#include "proc.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PASSES = 16, ENDS_MS = 2000 };

/* One pass over the processes of an engine. */
struct pass {
	pid_t leader; /* of the engine's session; 0: the lineage alone counts */
	uint64_t lineage;
	unsigned found, alive; /* besides the engine; those that did not have the signal yet */
	bool missed;	       /* some may not have been found */
	const char *group;     /* where the name of what has not ended is told; NULL: nowhere */
	const char *name;      /* of the engine */
};

static void
tell(const struct pass *p, pid_t pid, int no)
{
	struct proc_status s;
	char *text;

	if (proc_status(pid, &s) < 0 || s.state == 'Z' || s.state == 'X')
		return;
	text = xasprintf("%s pid=%d %s: %s", p->name, (int)pid, s.name,
	    no ? strerror(no) : "SIGKILL has not ended it");
	note("left by %s", text);
	conn_send(agent.up, Nleft, 0, SLOT_AGENT, 0, -1, agent_text(p->group), agent_text(text));
	free(text);
}

static bool
is_of(pid_t pid, const struct pass *p)
{
	return (p->leader && getsid(pid) == p->leader) ||
	       (p->lineage && lineage_of(pid) == p->lineage);
}

static void
end_one(pid_t pid, void *arg)
{
	struct pass *p = arg;
	int no;

	if (!is_of(pid, p))
		return;
	if (pid != p->leader) {
		p->found++;
		p->alive += !proc_is_ending(pid);
	}
	no = kill(pid, SIGKILL) < 0 ? errno : 0;
	if (p->group)
		tell(p, pid, no);
}

static bool end_below(pid_t parent, struct pass *p);

static void
end_child(pid_t child, void *arg)
{
	struct pass *p = arg;

	if (!is_of(child, p))
		return;
	p->missed |= !end_below(child, p);
	end_one(child, p);
}

/* Ends the processes below parent. Returns false if it may not have found all: this kernel has no
 * lists of children, or no descriptor is free. A process that exits in the meantime has no list
 * either, but its children are then ours. */
static bool
end_below(pid_t parent, struct pass *p)
{
	int r = proc_children(parent, end_child, p);

	return r == 0 || (r == -ENOENT && parent != getpid());
}

static void
end_all(struct pass *p)
{
	p->found = p->alive = 0;
	p->missed = false;
	if (!end_below(getpid(), p) || p->missed)
		reap_each(end_one, p);
}

/* Somebody who was killed, and whose end is due. */
struct due {
	uint64_t lineage;
	char *group, *name;
};

static void
on_due(void *arg)
{
	struct due *d = arg;
	struct pass p = {.lineage = d->lineage, .group = d->group, .name = d->name};

	end_all(&p);
	free(d->group);
	free(d->name);
	free(d);
}

void
left_mark(struct engine *e)
{
	static uint32_t last;

	e->lineage = lineage_branch(agent.lineage, last++, e->pid);
}

void
left_end(const struct engine *e)
{
	struct pass p = {.leader = e->pid, .lineage = e->lineage};
	const char *group = env_get(&e->env, "DDIP_GROUP");
	bool any = false;
	struct due *d;

	kill(-e->pid, SIGKILL);
	/* Again, for those that were forked while we looked. */
	for (int i = 0; i < PASSES && (i == 0 || p.alive); i++) {
		end_all(&p);
		any |= p.found > 0;
	}
	if (!any || !e->lineage || !group)
		return;
	d = xmalloc(sizeof(*d));
	*d = (struct due){e->lineage, xstrdup(group), xstrdup(e->name)};
	loop_timer(agent.loop, ENDS_MS, on_due, d);
}
