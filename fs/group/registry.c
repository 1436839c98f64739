/* All groups: making, removing, finding; what they tell (events, error, changes). Their life is
 * group.c's. */
#include "group/cell.h"
#include "tree/settings.h"
#include "base/daemon.h"
#include "group/group.h"
#include "tree/output_file.h"
#include "host/ticks.h"
#include "group/queue.h"
#include "group/rank.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_LENGTH = 64 };

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
	struct stream *stream;
	char *dir, *events;
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
	events = xasprintf("%s/events", dir);
	stream = stream_new(events, e);
	free(events);
	if (!stream) {
		rmdir(dir);
		free(dir);
		return -e->no;
	}
	g = xcalloc(1, sizeof(*g));
	g->serial = ++serial;
	g->name = xstrdup(name);
	g->refs = 1;
	g->run_dir = dir;
	g->store.slot = NO_SLOT;
	g->changed = now_wall();
	g->journal.events = stream;
	TAILQ_INIT(&g->history.cells);
	TAILQ_INIT(&g->life.waiters);
	TAILQ_INIT(&g->live);
	settings_default(&g->set);
	group_make_ranks(g);
	TAILQ_INSERT_TAIL(&groups, g, link);
	log_follow(g);
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
	for (int i = 0; i < ERRORS_KEPT; i++) {
		free(g->journal.errors[i].what);
		free(g->journal.errors[i].text);
	}
	settings_free(&g->set);
	if (g->ranks)
		munmap(g->ranks, MAX_RANKS * sizeof(*g->ranks));
	free(g->run_dir);
	free(g->name);
	free(g);
}

/* Takes it out of the tree: readers get ENODEV, open files may stay. */
static void
take_down(struct group *g)
{
	static const struct err gone = {ENODEV, "the group is gone"};
	struct req *r;

	g->gone = true;
	TAILQ_REMOVE(&groups, g, link);
	loop_timer_del(g->life.stop_timer);
	loop_timer_del(g->recovery.timer);
	loop_timer_del(g->life.idle_timer);
	g->life.stop_timer = g->recovery.timer = g->life.idle_timer = NULL;
	for (int i = 0; i < g->size; i++)
		queue_drop(&g->ranks[i], &gone);
	while ((r = TAILQ_FIRST(&g->life.waiters))) {
		TAILQ_REMOVE(&g->life.waiters, r, link);
		req_done(r, -ENODEV);
	}
	log_gone(g);
	stream_free(g->journal.events, ENODEV);
	g->journal.events = NULL;
	cell_drop_all(g);
	for (int i = 0; i < g->size; i++)
		rank_fini(&g->ranks[i]);
	g->size = 0;
	group_unref(g);
}

/* The spools of a removed group go with it: also of ranks that it had when it was larger. */
static void
remove_files(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (de->d_type == DT_REG && unlinkat(dirfd(d), de->d_name, 0) < 0)
			note("%s/%s: %s", dir, de->d_name, strerrordesc_np(errno));
	if (d)
		closedir(d);
	if (rmdir(dir) < 0)
		note("%s: %s", dir, strerrordesc_np(errno));
}

int
group_remove(struct group *g, struct err *e)
{
	if (g->life.state != G_NEW && g->life.state != G_STOPPED)
		return fail(
		    e, EBUSY, "the group %s has engines: echo stop > %s/ctl", g->name, g->name);
	remove_files(g->run_dir);
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

void
group_event(struct group *g, const char *fmt, ...)
{
	struct buf b = {0};
	va_list ap;

	if (!g->journal.events)
		return;
	buf_addf(&b, "%llu %.3f ", (unsigned long long)++g->journal.event_seq, now_wall());
	va_start(ap, fmt);
	buf_vaddf(&b, fmt, ap);
	va_end(ap);
	for (size_t i = 0; i < b.n; i++)
		if (b.p[i] == '\n')
			b.p[i] = ' ';
	buf_addc(&b, '\n');
	stream_add(g->journal.events, b.p, b.n);
	debug("cell", "%s: %s", g->name, b.p);
	buf_free(&b);
}

void
group_changed(struct group *g)
{
	g->changed = now_wall();
	if (!g->gone)
		ticks_path(TICK_MODIFY, "%s/status", g->name);
}

void
group_fail(struct group *g, const struct err *e, const char *what)
{
	struct failure *f = &g->journal.errors[g->journal.error_seq++ % ERRORS_KEPT];
	size_t n = strlen(what);

	free(f->what);
	free(f->text);
	*f = (struct failure){.seq = g->journal.error_seq, .time = now_wall(), .no = e->no};
	while (n && what[n - 1] == '\n')
		n--;
	f->what = xstrndup(what, MIN(n, (size_t)200));
	f->text = xstrdup(e->text);
	note("%s: %s: %s: %s", g->name, err_name(e->no), f->what, f->text);
	if (!g->gone)
		ticks_path(TICK_MODIFY, "%s/error", g->name);
}
