/* Compares what the hosts of a group have, and chooses the backend. */
#include "group/facts.h"
#include "group/external.h"
#include "group/host.h"
#include "group/journal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	FACTS_MAX = 16 << 10, /* bytes; no honest rank reports more */
	ROWS_MAX = 6,	      /* of the table in an error */
	NAMES_MAX = 3,	      /* hosts or ranks that a row names */
	DECIMAL = 10
};

/* The last ones are not shown. */
enum fact {
	PYTHON,
	EXECUTABLE,
	TORCH,
	CUDA,
	NCCL,
	GPUS,
	ENGINE,
	CWD,
	SHOWN,
	ADDRESSES = SHOWN,
	FACTS
};

static const struct {
	const char *name;
	bool compared; /* by people, if hosts do not fit: a column of the table */
	bool reported; /* in an event, if it differs and the group starts all the same */
} table[FACTS] = {
    [PYTHON] = {"python", true, true},
    [EXECUTABLE] = {"executable", false, false},
    [TORCH] = {"torch", true, true},
    [CUDA] = {"cuda", true, true},
    [NCCL] = {"nccl", true, true},
    [GPUS] = {"gpus", true, false},
    [ENGINE] = {"engine", true, true},
    [CWD] = {"cwd", false, false},
    [ADDRESSES] = {"addresses", false, false},
};

/* Ranks that report the same share one. */
struct facts {
	SLIST_ENTRY(facts) link;
	unsigned ranks;
	char *lines;
	char *value[FACTS]; /* printable, without blanks; NULL: not reported */
};

/* The facts of a rank of this group's own; NULL: not known. */
static const struct facts *
facts_of(const struct rank *k)
{
	return external_is(k) ? NULL : k->facts;
}

/* ---- what ranks report ---- */

/* A value as a word: what separates words, or cannot be printed, becomes \ooo. */
static char *
as_word(const char *p, size_t n)
{
	struct buf b = {0};

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] <= ' ' || p[i] == '\\' || p[i] == 0x7f)
			buf_addf(&b, "\\%03o", (unsigned char)p[i]);
		else
			buf_addc(&b, p[i]);
	return buf_take(&b);
}

static void
parse(struct facts *f)
{
	for (const char *line = f->lines; *line;
	     line += strcspn(line, "\n"), line += *line == '\n') {
		size_t n = strcspn(line, " \n");

		for (int i = 0; i < FACTS; i++)
			if (!f->value[i] && line[n] == ' ' && strlen(table[i].name) == n &&
			    memcmp(line, table[i].name, n) == 0)
				f->value[i] = as_word(line + n + 1, strcspn(line + n + 1, "\n"));
	}
}

void
facts_drop(struct rank *k)
{
	struct facts *f = k->facts;

	k->facts = NULL;
	if (!f || --f->ranks)
		return;
	SLIST_REMOVE(&k->g->facts, f, facts, link);
	for (int i = 0; i < FACTS; i++)
		free(f->value[i]);
	free(f->lines);
	free(f);
}

void
facts_set(struct rank *k, struct slice lines)
{
	struct facts *f;

	facts_drop(k);
	if (!lines.n || lines.n > FACTS_MAX)
		return;
	SLIST_FOREACH(f, &k->g->facts, link)
	if (slice_eq(lines, f->lines))
		break;
	if (!f) {
		f = xcalloc(1, sizeof(*f));
		f->lines = slice_dup(lines);
		parse(f);
		SLIST_INSERT_HEAD(&k->g->facts, f, link);
	}
	f->ranks++;
	k->facts = f;
}

static const char *
value_of(const struct facts *f, enum fact i)
{
	return f && f->value[i] ? f->value[i] : "-";
}

void
facts_print(const struct facts *facts, struct record *out)
{
	for (int i = 0; i < SHOWN; i++)
		record_text(out, table[i].name, facts ? facts->value[i] : NULL);
}

void
facts_addresses(const struct group *g, struct buf *out)
{
	const struct facts *f;
	size_t start = out->n;
	bool all = hosts_private(g);

	for (int i = 0; i < g->size; i++)
		all |= external_is(&g->ranks[i]);
	SLIST_FOREACH(f, &g->facts, link)
	all |= !f->value[ADDRESSES];
	if (all)
		buf_adds(out, "*");
	SLIST_FOREACH(f, &g->facts, link)
	if (!all)
		buf_addf(out, "%s%s", out->n > start ? "," : "", f->value[ADDRESSES]);
}

/* ---- the table in an error ---- */

static bool
same_row(const struct facts *a, const struct facts *b)
{
	for (int i = 0; i < FACTS; i++)
		if (table[i].compared && strcmp(value_of(a, i), value_of(b, i)) != 0)
			return false;
	return true;
}

/* Appends the names of the hosts, or else the numbers of the ranks, that have what f says. */
static void
add_names(const struct group *g, const struct facts *f, struct buf *out)
{
	const struct host *last = NULL;
	int n = 0;

	for (int i = 0; i < g->size; i++) {
		const struct rank *k = &g->ranks[i];
		const struct facts *own = facts_of(k);

		if (!own || !same_row(own, f) || (hosts_named(g) && k->host == last))
			continue;
		last = k->host;
		if (n++ >= NAMES_MAX)
			continue;
		if (hosts_named(g))
			buf_addf(out, "%s%.60s", n > 1 ? ", " : "", last->name);
		else
			buf_addf(out, "%s%d", n > 1 ? ", " : "rank ", i);
	}
	if (n > NAMES_MAX)
		buf_addf(out, " and %d more", n - NAMES_MAX);
}

/* Appends who has what, one line for those that have the same. */
static void
add_table(const struct group *g, struct buf *out)
{
	const struct facts *row[ROWS_MAX];
	int n = 0;

	for (int i = 0; i < g->size; i++) {
		const struct facts *f = facts_of(&g->ranks[i]);
		int r = 0;

		while (r < n && f && !same_row(row[r], f))
			r++;
		if (!f || r < n || n == ROWS_MAX)
			continue;
		row[n++] = f;
		buf_adds(out, "\n  ");
		add_names(g, f, out);
		buf_adds(out, ":");
		for (int c = 0; c < FACTS; c++)
			if (table[c].compared)
				buf_addf(out, " %s=%.40s", table[c].name, value_of(f, c));
	}
}

/* ---- the comparison ---- */

/* The part of a version of torch within which ranks understand each other: MAJOR.MINOR. */
static size_t
minor(const char *version)
{
	size_t n = strcspn(version, ".");

	return n + (version[n] == '.') + strcspn(version + n + (version[n] == '.'), ".+");
}

static bool
same_minor(const char *a, const char *b)
{
	size_t n = minor(a);

	return n == minor(b) && memcmp(a, b, n) == 0;
}

/* Can NCCL serve this rank: does torch have it, and is there a GPU for each rank of the host? */
static bool
can_nccl(const struct rank *k)
{
	const struct facts *f = facts_of(k);

	return f->value[NCCL] && strtol(value_of(f, GPUS), NULL, DECIMAL) >= host_env_local_size(k);
}

/* How the ranks that have reported differ from the first of them. */
struct differences {
	bool fact[FACTS], torch_missing, torch_minor, some_nccl, some_not_nccl, engine;
	const struct facts *first; /* NULL: nothing is known */
};

static struct differences
compare(const struct group *g)
{
	struct differences d = {0};

	for (int i = 0; i < g->size; i++) {
		const struct rank *k = &g->ranks[i];
		const struct facts *f = facts_of(k);

		if (!f)
			continue;
		if (!d.first)
			d.first = f;
		for (int n = 0; n < FACTS; n++)
			d.fact[n] |= strcmp(value_of(f, n), value_of(d.first, n)) != 0;
		d.torch_missing |= !f->value[TORCH] != !d.first->value[TORCH];
		d.torch_minor |= !same_minor(value_of(f, TORCH), value_of(d.first, TORCH));
		d.engine |= strcmp(value_of(f, ENGINE), DDIP_VERSION) != 0;
		if (can_nccl(k))
			d.some_nccl = true;
		else
			d.some_not_nccl = true;
	}
	return d;
}

/* The backend of the group; NULL: the ranks would choose different ones. */
static const char *
choose(const struct group *g, const struct differences *d)
{
	if (g->life.backend)
		return g->life.backend;
	if (strcmp(g->set.backend, "auto") != 0 || !d->first)
		return g->set.backend;
	if (!d->first->value[TORCH] && !d->torch_missing)
		return "none";
	if (d->some_nccl && d->some_not_nccl)
		return NULL;
	return d->some_nccl ? "nccl" : "gloo";
}

/* Appends the different values of a fact, separated by commas. */
static void
add_values(const struct group *g, enum fact i, struct buf *out)
{
	const struct facts *f, *before;
	const char *sep = "";

	SLIST_FOREACH(f, &g->facts, link)
	{
		before = SLIST_FIRST(&g->facts);
		while (before != f && strcmp(value_of(before, i), value_of(f, i)) != 0)
			before = SLIST_NEXT(before, link);
		if (before != f)
			continue;
		buf_addf(out, "%s%s", sep, value_of(f, i));
		sep = ",";
	}
}

/* Reports in an event what differs without harm to the group. */
static void
tell(struct group *g, const struct differences *d)
{
	struct buf b = {0};

	for (int i = 0; i < FACTS; i++) {
		if (!table[i].reported || !d->fact[i])
			continue;
		buf_addf(&b, " %s=", table[i].name);
		add_values(g, i, &b);
	}
	if (b.n)
		journal_event(g, "%s-differ%s", hosts_named(g) ? "hosts" : "ranks", b.p);
	buf_free(&b);
}

/* Why these ranks cannot form one group with this backend (NULL: they would choose different ones);
 * NULL: they can. */
static const char *
misfit(const struct differences *d, const char *backend)
{
	bool torch = !backend || strcmp(backend, "none") != 0;
	bool nccl = backend && strcmp(backend, "nccl") == 0;

	if (d->engine)
		return "ddip-engine must be of this version (" DDIP_VERSION
		       ") everywhere: install it there, or write `engine auto` to ctl";
	if (torch && d->torch_missing)
		return "torch is not everywhere: install it there, set `python` to one that has "
		       "it, or write `backend none` to ctl";
	if (torch && d->torch_minor)
		return "torch must have the same minor version everywhere: install it there, set "
		       "`python` to one that has it, or write `backend none` to ctl";
	if (!backend || (nccl && d->some_nccl && d->some_not_nccl))
		return "NCCL cannot be used everywhere: it needs a GPU for each rank, and torch "
		       "with NCCL; write `backend gloo` to ctl, or change `hosts`";
	if (nccl && d->fact[NCCL])
		return "NCCL must have the same version everywhere: install the same torch there, "
		       "or write `backend gloo` to ctl";
	return NULL;
}

int
facts_check(struct group *g, struct err *e)
{
	struct differences d = compare(g);
	const char *backend = choose(g, &d), *why = d.first ? misfit(&d, backend) : NULL;
	struct buf rows = {0};

	if (why) {
		add_table(g, &rows);
		fail(e, EPROTO, "%s%s", why, rows.p);
		buf_free(&rows);
		return -e->no;
	}
	g->life.backend = backend;
	tell(g, &d);
	return 0;
}

void
facts_forget_backend(struct group *g)
{
	g->life.backend = NULL;
}

const char *
facts_backend(const struct group *g)
{
	return g->life.backend ? g->life.backend : g->set.backend;
}
