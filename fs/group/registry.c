/* All groups: creates, removes and finds them. */
#include "group/registry.h"
#include "base/daemon.h"
#include "group/arrivals.h"
#include "group/cell.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/output.h"
#include "group/queue.h"
#include "group/rank.h"
#include "group/recovery.h"
#include "group/settings.h"
#include "group/store.h"
#include "host/ticks.h"
#include <ctype.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	NAME_LENGTH = 64,
	DESCRIPTORS = 8 /* that a walk keeps open */
};

struct group_list groups = TAILQ_HEAD_INITIALIZER(groups);

struct group *
group_find(const char *name)
{
	struct group *g;

	TAILQ_FOREACH (g, &groups, link)
		if (strcmp(g->name, name) == 0)
			return g;
	return NULL;
}

static int
check_name(const char *name, struct err *e)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

	if (!isalpha((unsigned char)name[0]) || name[n] || n > NAME_LENGTH)
		return fail(e, EINVAL,
		    "a group is named by a letter and up to %d letters, digits, _ or -, not "
		    "'%.80s'",
		    NAME_LENGTH - 1, name);
	return 0;
}

int
group_make(const char *name, struct err *e)
{
	static uint64_t serial;
	struct group *g;
	char *dir;
	int r = check_name(name, e);

	if (r < 0)
		return r;
	if (group_find(name))
		return fail(e, EEXIST, "there is a group %s already", name);
	dir = xasprintf("%s/%s.%llu", daemon_.state_dir, name, (unsigned long long)serial + 1);
	if (fault("group.mkdir", ENOSPC) || mkdir(dir, 0700) < 0) {
		r = fail_errno(e, "%s", dir);
		free(dir);
		return r;
	}
	g = xcalloc(1, sizeof(*g));
	g->run_dir = dir;
	if (journal_open(g, e) < 0) {
		rmdir(dir);
		free(dir);
		free(g);
		return -e->no;
	}
	g->serial = ++serial;
	g->name = xstrdup(name);
	g->refs = 1;
	g->store.slot = NO_SLOT;
	g->journal.changed = now_wall();
	TAILQ_INIT(&g->history.cells);
	TAILQ_INIT(&g->life.waiters);
	TAILQ_INIT(&g->life.start_waiters);
	TAILQ_INIT(&g->live);
	settings_default(&g->set);
	hosts_init(g);
	TAILQ_INSERT_TAIL(&groups, g, link);
	output_follow(g);
	return 0;
}

struct group *
group_ref(struct group *g)
{
	g->refs++;
	return g;
}

void
group_unref(struct group *g)
{
	if (--g->refs > 0)
		return;
	journal_clear(g);
	settings_free(&g->set);
	if (g->ranks)
		munmap(g->ranks, MAX_RANKS * sizeof(*g->ranks));
	free(g->selftest);
	arrivals_free(g);
	buf_free(&g->life.patches);
	free(g->run_dir);
	free(g->name);
	free(g);
}

/* Takes the group out of the tree. Readers get ENODEV; open files may remain. */
static void
take_down(struct group *g)
{
	static const struct err gone = {ENODEV, "the group is gone"};
	struct req *r;

	g->gone = true;
	TAILQ_REMOVE(&groups, g, link);
	recovery_stop(g);
	queue_drop_all(g, &gone);
	lifecycle_end(g);
	output_gone(g);
	arrivals_free(g); /* the kernel may keep nodes of the group, and they the group, for long */
	ticks_forget("%s", g->name);
	while ((r = TAILQ_FIRST(&g->live))) {
		TAILQ_REMOVE(&g->live, r, link);
		req_done(r, -ENODEV);
	}
	journal_close(g);
	req_wake_pollers();
	cell_drop_all(g);
	for (int i = 0; i < g->size; i++)
		rank_fini(&g->ranks[i]);
	g->size = 0;
	for (int i = 0, n = output_known(g); i < n; i++)
		output_close(&g->ranks[i]); /* of former ranks too */
	store_fini(g);
	hosts_free(g);
	group_unref(g);
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	if (remove(path) < 0)
		note("%s: %s", path, strerror(errno));
	return 0;
}

int
group_remove(struct group *g, struct err *e)
{
	if (g->life.state != G_NEW && g->life.state != G_STOPPED)
		return fail(
		    e, EBUSY, "the group %s has engines: echo stop > %s/ctl", g->name, g->name);
	/* the spools, also of ranks that it had when it was larger, and what lay beside programs */
	if (nftw(g->run_dir, remove_one, DESCRIPTORS, FTW_PHYS | FTW_DEPTH | FTW_MOUNT) < 0)
		note("%s: %s", g->run_dir, strerror(errno));
	take_down(g);
	return 0;
}

void
group_remove_all(void)
{
	struct group *g;

	while ((g = TAILQ_FIRST(&groups)))
		take_down(g);
}
