/* Replaces the daemon's directories with directories of this host in messages that name them. */
#include "relay/places.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
	SLIST_ENTRY(place) link;
	char *theirs, *ours; /* a group's run directory */
};

struct places {
	char *dir;
	unsigned last;
	SLIST_HEAD(, place) list;
};

struct places *
places_new(const char *dir)
{
	struct places *ps = xcalloc(1, sizeof(*ps));

	ps->dir = xstrdup(dir);
	return ps;
}

static void
place_free(struct place *p)
{
	free(p->theirs);
	free(p->ours);
	free(p);
}

/* Returns our directory for this one of theirs, and creates it if necessary. Returns NULL with *e
 * set on failure. */
static const char *
place_of(struct places *ps, struct slice theirs, struct err *e)
{
	struct place *p;

	SLIST_FOREACH(p, &ps->list, link)
	if (slice_eq(theirs, p->theirs))
		return p->ours;
	p = xcalloc(1, sizeof(*p));
	p->theirs = slice_dup(theirs);
	p->ours = xasprintf("%s/g%u", ps->dir, ++ps->last);
	if (mkdir(p->ours, 0700) < 0) {
		fail_errno(e, "%s", p->ours);
		place_free(p);
		return NULL;
	}
	SLIST_INSERT_HEAD(&ps->list, p, link);
	return p->ours;
}

/* Appends K=V; if V lies in one of their directories, ours takes its place. DDIP_DAEMON_PID, the
 * process that may read a rank's memory, becomes this one. */
static void
add_variable(const struct places *ps, const char *text, struct buf *out)
{
	static const char daemon_pid[] = "DDIP_DAEMON_PID=";
	const char *value = strchr(text, '=');
	const struct place *p;

	if (!strncmp(text, daemon_pid, sizeof(daemon_pid) - 1)) {
		buf_addf(out, "%s%d", daemon_pid, (int)getpid());
		buf_addc(out, '\0');
		return;
	}
	SLIST_FOREACH(p, &ps->list, link)
	{
		size_t n = strlen(p->theirs);

		if (!value || strncmp(value + 1, p->theirs, n) != 0 || value[1 + n] != '/')
			continue;
		buf_add(out, text, (size_t)(value + 1 - text));
		buf_adds(out, p->ours);
		text = value + 1 + n;
		break;
	}
	buf_add(out, text, strlen(text) + 1);
}

/* Translates an environment of NUL-terminated strings. */
static struct buf
translate_env(const struct places *ps, struct slice env)
{
	struct buf all = {0}, out = {0};

	buf_add(&all, env.p, env.n);
	if (all.n && all.p[all.n - 1])
		buf_addc(&all, '\0');
	for (size_t at = 0; at < all.n; at += strlen(all.p + at) + 1)
		add_variable(ps, all.p + at, &out);
	buf_free(&all);
	return out;
}

/* Each rank's spools are in a directory of their own, so that they begin empty. */
static int
open_spools(struct follows *fs, const struct msg *m, const char *group, struct slice name,
    char **dir, struct err *e)
{
	char *spool = slice_dup(name);

	*dir = xasprintf("%s/s%u", group, m->slot);
	if (mkdir(*dir, 0700) < 0)
		fail_errno(e, "%s", *dir);
	else
		follow_open(fs, m, *dir, spool, e);
	free(spool);
	return -e->no;
}

static int
translate_spawn(
    struct places *ps, struct follows *fs, const struct msg *m, struct buf *out, struct err *e)
{
	struct slice dir, name, env;
	const char *group;
	uint8_t kind, cold;
	uint32_t zygote;
	char *spools = NULL;
	struct buf ours;

	if (wire_unpack(m, Tspawn, e, &kind, &zygote, &dir, &name, &env, &cold) < 0)
		return -e->no;
	group = place_of(ps, dir, e);
	if (!group)
		return -e->no;
	if (kind == ENGINE_RANK && open_spools(fs, m, group, name, &spools, e) < 0) {
		free(spools);
		return -e->no;
	}
	ours = translate_env(ps, env);
	wire_pack(out, Tspawn, m->flags, m->slot, m->tag, (uint32_t)kind, zygote,
	    slice_text(spools ? spools : group), name, ((struct slice){ours.p, ours.n}),
	    (uint32_t)cold);
	buf_free(&ours);
	free(spools);
	return 0;
}

static int
translate_init(struct places *ps, const struct msg *m, struct buf *out, struct err *e)
{
	uint32_t rank, size, local, generation;
	struct slice backend, env;
	struct buf ours;

	if (wire_unpack(m, Tinit, e, &rank, &size, &local, &generation, &backend, &env) < 0)
		return -e->no;
	ours = translate_env(ps, env);
	wire_pack(out, Tinit, m->flags, m->slot, m->tag, rank, size, local, generation, backend,
	    ((struct slice){ours.p, ours.n}));
	buf_free(&ours);
	return 0;
}

int
places_translate(
    struct places *ps, struct follows *fs, const struct msg *m, struct buf *out, struct err *e)
{
	if (m->type == Tspawn)
		return translate_spawn(ps, fs, m, out, e);
	return translate_init(ps, m, out, e);
}
