/* The journal of a group: events are the lines of a stream, failures a list of the latest ones. */
#include "group/journal.h"
#include "group/hooks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* WHAT_MAX: characters of the line or file that an entry in `error` quotes. LOST_MAX: bytes of the
 * names and reasons in one. */
enum { WHAT_MAX = 200, LOST_MAX = 800 };

struct group_news group_news;

int
journal_open(struct group *g, struct err *e)
{
	char *path = xasprintf("%s/events", g->run_dir);

	g->journal.events = stream_new(path, e);
	free(path);
	return g->journal.events ? 0 : -e->no;
}

void
journal_close(struct group *g)
{
	if (g->journal.events)
		stream_free(g->journal.events, ENODEV);
	g->journal.events = NULL;
}

static void
failure_free(struct failure *f)
{
	free(f->what);
	free(f->text);
	*f = (struct failure){0};
}

void
journal_clear(struct group *g)
{
	for (int i = 0; i < g->journal.error_count; i++)
		failure_free(&g->journal.errors[i]);
	g->journal.error_count = 0;
}

void
journal_event(struct group *g, const char *fmt, ...)
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
journal_stranger(struct group *g, const char *process, const struct msg *m)
{
	struct slice how, who;

	if (wire_unpack(m, Nstranger, NULL, &how, &who) < 0)
		return;
	journal_event(g, "stranger %s %.*s %.*s", process, (int)how.n, how.p, (int)who.n, who.p);
	note("%s: %s: a connection was %.*s: %.*s", g->name, process, (int)how.n, how.p, (int)who.n,
	    who.p);
}

void
journal_changed(struct group *g)
{
	g->journal.changed = now_wall();
	if (!g->gone)
		group_tell(status_changed, g);
}

int
journal_add_lost(struct slice lines, struct buf *out)
{
	char *copy = slice_dup(lines), *save;
	int count = 0, more = 0;

	for (char *s = strtok_r(copy, "\n", &save); s; s = strtok_r(NULL, "\n", &save), count++)
		if (count && out->n + strlen(s) > LOST_MAX)
			more++;
		else
			buf_addf(out, "%s%.400s", count ? "; " : "", s);
	if (more)
		buf_addf(out, " and %d more", more);
	free(copy);
	return count;
}

const char *
journal_last(const struct group *g, int no)
{
	const struct group_journal *j = &g->journal;
	const struct failure *f = j->error_count ? &j->errors[j->error_count - 1] : NULL;

	return f && f->no == no ? f->text : NULL;
}

/* Removes and returns entry i. Later entries move up. */
static struct failure
take_failure(struct group_journal *j, int i)
{
	struct failure f = j->errors[i];

	j->error_count--;
	memmove(&j->errors[i], &j->errors[i + 1], (size_t)(j->error_count - i) * sizeof(f));
	return f;
}

/* Removes and returns the entry of the same failure, or an empty entry if there is none. */
static struct failure
same_failure(struct group_journal *j, int rank, int no, const char *what, const char *text)
{
	for (int i = 0; i < j->error_count; i++)
		if (j->errors[i].no == no && j->errors[i].rank == rank &&
		    strcmp(j->errors[i].what, what) == 0 && strcmp(j->errors[i].text, text) == 0)
			return take_failure(j, i);
	return (struct failure){0};
}

void
journal_retract(struct group *g, int no, const char *what)
{
	struct group_journal *j = &g->journal;
	struct failure *last = j->error_count ? &j->errors[j->error_count - 1] : NULL, f;

	if (!last || last->no != no || strcmp(last->what, what) != 0)
		return;
	if (--last->times == 0) {
		f = take_failure(j, j->error_count - 1);
		failure_free(&f);
	}
	group_tell(error_changed, g);
}

void
journal_fail(struct group *g, const struct err *e, const char *what)
{
	journal_fail_rank(g, -1, e, what);
}

void
journal_fail_rank(struct group *g, int rank, const struct err *e, const char *what)
{
	struct group_journal *j = &g->journal;
	size_t n = strlen(what);
	struct failure f, oldest;
	char *quoted;

	while (n && what[n - 1] == '\n')
		n--;
	quoted = xstrndup(what, MIN(n, (size_t)WHAT_MAX));
	note("%s: %s: %s: %s", g->name, err_name(e->no), quoted, e->text);
	f = same_failure(j, rank, e->no, quoted, e->text);
	if (f.times) {
		free(quoted);
	} else {
		f.no = e->no;
		f.rank = rank;
		f.what = quoted;
		f.text = xstrdup(e->text);
	}
	f.times++;
	f.seq = ++j->error_seq;
	f.time = now_wall();
	if (j->error_count == ERRORS_KEPT) {
		oldest = take_failure(j, 0);
		failure_free(&oldest);
	}
	j->errors[j->error_count++] = f;
	if (!g->gone)
		group_tell(error_changed, g);
}
