/*
 * Remembers views that a process has removed and may write again. There is one entry per removal in
 * progress: few.
 */
#include "tree/replacement.h"
#include "base/daemon.h"
#include "group/external.h"
#include "group/hooks.h"
#include "object/varname.h"
#include "proc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	LOOK_MS = 20,  /* between two checks of the processes */
	LOOKS_MAX = 50 /* checks per process */
};

struct removed {
	struct place at; /* the directory's; referenced */
	char name[VAR_NAME_SIZE];
	pid_t process;
	int looks;
	replacement_remove_fn *remove;
	TAILQ_ENTRY(removed) link;
};

static TAILQ_HEAD(, removed) all = TAILQ_HEAD_INITIALIZER(all);
static struct timer *look_timer;

static void
forget(struct removed *d)
{
	TAILQ_REMOVE(&all, d, link);
	place_free(&d->at);
	free(d);
}

/* The entry is deleted first: submitting the removal calls settle() again. */
static void
remove_now(struct removed *d)
{
	struct removed it = *d;

	place_ref(&it.at);
	forget(d);
	it.remove(&it.at, it.name);
	place_free(&it.at);
}

static void
look(void *arg)
{
	struct removed *d;

	look_timer = NULL;
	TAILQ_FOREACH (d, &all, link)
		d->looks = proc_has_ended(d->process) ? LOOKS_MAX : d->looks + 1;
	do {
		TAILQ_FOREACH (d, &all, link)
			if (d->looks >= LOOKS_MAX)
				break;
		if (d)
			remove_now(d);
	} while (d);
	if (!TAILQ_EMPTY(&all) && !look_timer)
		look_timer = loop_timer(daemon_.loop, LOOK_MS, look, NULL);
}

/* Carries out the group's pending removals now. */
static void
settle(struct group *g)
{
	struct removed *d;

	do {
		TAILQ_FOREACH (d, &all, link)
			if (d->at.g == g)
				break;
		if (d)
			remove_now(d);
	} while (d);
}

void
replacement_expect(
    const struct place *at, const char *name, pid_t process, replacement_remove_fn *remove)
{
	struct removed *d = xcalloc(1, sizeof(*d));

	*d = (struct removed){.at = *at, .process = process, .remove = remove};
	d->at.name = NULL;
	place_ref(&d->at);
	snprintf(d->name, sizeof(d->name), "%s", name);
	TAILQ_INSERT_TAIL(&all, d, link);
	if (!look_timer)
		look_timer = loop_timer(daemon_.loop, LOOK_MS, look, NULL);
}

void
replacement_claim(const struct place *at, const char *name, pid_t process)
{
	struct removed *d;

	TAILQ_FOREACH (d, &all, link)
		if (d->at.g == at->g && d->at.rank == at->rank && d->process == process &&
		    strcmp(d->name, name) == 0)
			break;
	if (d)
		forget(d);
	settle(at->g);
}

void
replacement_init(void)
{
	group_news.before_task = settle;
}

/* Is the name removed from the rank whose names this directory shows? */
static bool
concerns(const struct removed *d, const struct place *at)
{
	return d->at.g == at->g &&
	       (d->at.rank < 0 || d->at.rank == (at->rank < 0 ? external_first(at->g) : at->rank));
}

bool
replacement_hides(const struct place *at, const char *name)
{
	const struct removed *d;

	TAILQ_FOREACH (d, &all, link)
		if (concerns(d, at) && strcmp(d->name, name) == 0)
			return true;
	return false;
}

void
replacement_each(const struct place *at, void (*fn)(void *arg, const char *name), void *arg)
{
	const struct removed *d;

	TAILQ_FOREACH (d, &all, link)
		if (concerns(d, at))
			fn(arg, d->name);
}
