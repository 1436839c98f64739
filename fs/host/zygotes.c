/* Counts the groups that use each zygote, by what defines it. */
#include "host/zygotes.h"
#include "base/daemon.h"
#include <stdlib.h>
#include <string.h>

/* How long an unused zygote stays, unless another one becomes unused. */
enum { UNWANTED_MS = 60000 };

struct zygote {
	uint32_t id;
	struct agent *agent;
	char *key, *phases, *failed;
	char *not_preloaded;	/* lines; NULL: it has not tried yet */
	unsigned groups;	/* that use it */
	uint64_t tag;		/* of the pending request to start it */
	struct timer *unwanted; /* while it is unused; then it is released */
	struct zygote *next;
};

static void
free_zygote(struct zygote *z)
{
	loop_timer_del(z->unwanted);
	free(z->key);
	free(z->phases);
	free(z->failed);
	free(z->not_preloaded);
	free(z);
}

/* The agent is gone, and all its zygotes with it. */
static void
forget_all(struct agent *a)
{
	while (a->zygotes) {
		struct zygote *z = a->zygotes;

		a->zygotes = z->next;
		free_zygote(z);
	}
}

static struct zygote *
find(struct agent *a, uint32_t id)
{
	struct zygote *z = a->zygotes;

	while (z && z->id != id)
		z = z->next;
	return z;
}

static void
give_up(struct zygote *z)
{
	struct agent *a = z->agent;
	struct zygote **at = &a->zygotes;

	while (*at != z)
		at = &(*at)->next;
	*at = z->next;
	agent_forget(a, z->tag);
	if (a->conn)
		agent_send(a, Nrelease, 0, SLOT_AGENT, 0, -1, z->id);
	free_zygote(z);
}

static void
on_unwanted(void *arg)
{
	struct zygote *z = arg;

	z->unwanted = NULL;
	give_up(z);
}

/* Only one unused zygote stays. */
static void
give_up_others(struct agent *a, const struct zygote *kept)
{
	struct zygote *z, *next;

	for (z = a->zygotes; z; z = next) {
		next = z->next;
		if (z != kept && z->groups == 0)
			give_up(z);
	}
}

void
zygotes_release(struct agent *a, uint32_t id)
{
	struct zygote *z = id ? find(a, id) : NULL;

	if (!z || --z->groups > 0)
		return;
	if (z->failed) {
		give_up(z);
		return;
	}
	give_up_others(a, z);
	z->unwanted = loop_timer(daemon_.loop, UNWANTED_MS, on_unwanted, z);
}

static void
on_ready(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct zygote *z = arg;
	struct slice phases;

	z->tag = 0;
	if (m && wire_unpack(m, Rzygote, NULL, NULL, &phases) == 0) {
		z->phases = slice_dup(phases);
		return;
	}
	if (!z->agent->conn)
		return; /* it is freed with its agent */
	z->failed = xstrdup(e->text);
	note("zygote: %s", e->text);
}

static struct zygote *
ask_for(struct agent *a, char *key, const struct zygote_spec *spec)
{
	struct zygote *z = xcalloc(1, sizeof(*z));
	struct buf env = {0};

	*z = (struct zygote){.id = ++a->last_zygote, .agent = a, .key = key, .next = a->zygotes};
	a->zygotes = z;
	a->zygotes_gone = forget_all;
	z->tag = agent_tag(a, NO_SLOT, Tzygote, on_ready, z);
	buf_adds(&env, spec->env);
	for (size_t i = 0; i < env.n; i++)
		if (env.p[i] == '\n')
			env.p[i] = '\0';
	agent_send(a, Tzygote, 0, SLOT_AGENT, z->tag, -1, z->id, slice_text(spec->python),
	    ((struct slice){env.p, env.n}), slice_text(spec->cwd), slice_text(spec->preload));
	buf_free(&env);
	return z;
}

uint32_t
zygotes_want(struct agent *a, uint32_t had, const struct zygote_spec *spec)
{
	char *key = xasprintf("%s\n%s\n%s\n%s", spec->python, spec->cwd, spec->preload, spec->env);
	struct zygote *z = a->zygotes;

	while (z && (z->failed || strcmp(z->key, key) != 0))
		z = z->next;
	if (z)
		free(key);
	else
		z = ask_for(a, key, spec);
	loop_timer_del(z->unwanted);
	z->unwanted = NULL;
	z->groups++;
	zygotes_release(a, had);
	return z->id;
}

const char *
zygotes_phases(struct agent *a, uint32_t zygote, const char **failed)
{
	struct zygote *z = find(a, zygote);

	*failed = z ? z->failed : NULL;
	return z && z->phases ? z->phases : "";
}

void
zygotes_set_not_preloaded(struct agent *a, uint32_t zygote, struct slice lines)
{
	struct zygote *z = find(a, zygote);

	if (!z)
		return;
	free(z->not_preloaded);
	z->not_preloaded = slice_dup(lines);
}

const char *
zygotes_not_preloaded(struct agent *a, uint32_t zygote)
{
	struct zygote *z = find(a, zygote);

	return z && z->not_preloaded ? z->not_preloaded : "";
}
