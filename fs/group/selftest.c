/*
 * Self-tests: their sizes, and the table of the ranks' measurements. Each rank reports these lines:
 *
 *   about TEXT                                       backend, versions, device
 *   chosen TEXT                                      how the backend has chosen to route the data
 *   COLLECTIVE SIZE COUNT TYPE MICROSECONDS WRONG    same lines on each rank, in the same order
 *   pair RANK SIZE MICROSECONDS WRONG                with every other rank, both ways at once; if
 *                                                    there are many, only the fastest, median,
 *                                                    slowest and wrong ones
 *
 * Sizes are in bytes, COUNT and WRONG in elements, MICROSECONDS of one operation.
 */
#include "group/selftest.h"
#include "group/external.h"
#include "group/journal.h"
#include "group/queue.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAIRS_FIRST = 64 }; /* pairs that a table first has room for */

enum { SIZES_MAX = 16, SIZE_MIN = 4, SIZE_MAX_GIB = 1, WORD = 16, ROWS_MAX = 4 * SIZES_MAX };

static const uint64_t size_max = (uint64_t)SIZE_MAX_GIB << 30;
static const char usual_sizes[] = "1024 32768 1048576 16777216";

/* One collective at one size, over all ranks. */
struct row {
	char name[WORD], type[WORD];
	uint64_t size, count, wrong;
	double us; /* time of the slowest rank */
};

struct pair {
	int a, b;
	uint64_t size;
	double us; /* 0: not measured */
};

struct table {
	int ranks, row_count;
	struct row rows[ROWS_MAX];
	struct pair *pairs; /* of ranks a < b, once for each report; see merge_pairs() */
	size_t pair_count, pair_room;
	uint64_t wrong;
	char about[200];
	struct buf chosen; /* comment lines */
	struct buf where;  /* a line for each rank that got wrong elements */
};

/* ---- sizes ---- */

/* Parses a size: 64K is 65536. Returns 0 if it is not a valid size. */
static uint64_t
size_of(const char *word)
{
	static const char units[] = "KMG";
	char *end;
	uint64_t n = strtoull(word, &end, 10);
	const char *unit = *end ? strchr(units, *end) : NULL;

	if (*word < '0' || *word > '9' || (*end && (!unit || end[1])) || n > size_max)
		return 0;
	if (unit)
		n <<= 10 * (unit - units + 1);
	return n >= SIZE_MIN && n <= size_max ? n : 0;
}

static int
read_sizes(char **words, int n, struct buf *out, struct err *e)
{
	if (n > SIZES_MAX)
		return fail(e, EINVAL, "selftest: %d sizes (want 1..%d)", n, SIZES_MAX);
	for (int i = 0; i < n; i++) {
		uint64_t size = size_of(words[i]);

		if (!size)
			return fail(e, EINVAL,
			    "selftest: no size '%.80s' (want bytes, %d..%dG, e.g. 4096 64K 16M)",
			    words[i], SIZE_MIN, SIZE_MAX_GIB);
		buf_addf(out, "%s%" PRIu64, i ? " " : "", size);
	}
	if (n == 0)
		buf_adds(out, usual_sizes);
	return 0;
}

/* ---- the ranks' reports ---- */

static struct pair *
new_pair(struct table *t, int a, int b)
{
	struct pair *p;

	if (t->pair_count == t->pair_room) {
		t->pair_room = MAX(t->pair_room * 2, (size_t)PAIRS_FIRST);
		t->pairs = xrealloc(t->pairs, t->pair_room * sizeof(*t->pairs));
	}
	p = &t->pairs[t->pair_count++];
	*p = (struct pair){.a = MIN(a, b), .b = MAX(a, b)};
	return p;
}

static void
add_pair(struct table *t, int rank, const char *line)
{
	struct pair said = {0}, *p;
	uint64_t wrong = 0;
	int peer;

	if (sscanf(line, "pair %d %" SCNu64 " %lf %" SCNu64, &peer, &said.size, &said.us, &wrong) !=
		4 ||
	    peer < 0 || peer >= t->ranks || peer == rank)
		return;
	p = new_pair(t, rank, peer);
	p->size = said.size;
	p->us = said.us;
	t->wrong += wrong;
	if (wrong)
		buf_addf(&t->where, "wrong rank=%d from=%d size=%" PRIu64 " elements=%" PRIu64 "\n",
		    rank, peer, said.size, wrong);
}

/* Merges the i-th line of a rank into row i of the table. */
static void
add_row(struct table *t, int rank, int i, const char *line)
{
	struct row said = {0}, *row = &t->rows[MIN(i, ROWS_MAX - 1)];

	if (i >= ROWS_MAX ||
	    sscanf(line, "%15s %" SCNu64 " %" SCNu64 " %15s %lf %" SCNu64, said.name, &said.size,
		&said.count, said.type, &said.us, &said.wrong) != 6)
		return;
	said.us = MAX(said.us, row->us);
	t->wrong += said.wrong;
	if (said.wrong)
		buf_addf(&t->where, "wrong rank=%d %s size=%" PRIu64 " elements=%" PRIu64 "\n",
		    rank, said.name, said.size, said.wrong);
	said.wrong += row->wrong;
	*row = said;
	t->row_count = MAX(t->row_count, i + 1);
}

static void
add_rank(struct table *t, int rank, const char *text)
{
	char *copy = xstrdup(text), *save;
	int i = 0;

	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "about ", 6) == 0)
			snprintf(t->about, sizeof(t->about), "%s", line + 6);
		else if (strncmp(line, "chosen ", 7) == 0)
			buf_addf(&t->chosen, "# %s\n", line + 7);
		else if (strncmp(line, "pair ", 5) == 0)
			add_pair(t, rank, line);
		else
			add_row(t, rank, i++, line);
	}
	free(copy);
}

/* ---- the table ---- */

/* The ratio of bytes on a link to bytes of an operation, as in nccl-tests. */
static double
bus_factor(const char *name, int ranks)
{
	double share = (double)(ranks - 1) / ranks;

	if (strcmp(name, "all_reduce") == 0)
		return 2 * share;
	return strcmp(name, "all_gather") == 0 ? share : 1;
}

/* In GB/s (10^9 bytes). */
static double
bandwidth(uint64_t size, double us)
{
	return us > 0 ? (double)size / us / 1e3 : 0;
}

static void
print_rows(const struct table *t, struct buf *out)
{
	buf_addf(out, "# %-10s %12s %12s %9s %12s %8s %8s %8s\n", "", "size", "count", "type",
	    "time", "algbw", "busbw", "#wrong");
	buf_addf(out, "# %-10s %12s %12s %9s %12s %8s %8s %8s\n", "", "(B)", "(elements)", "",
	    "(us)", "(GB/s)", "(GB/s)", "");
	for (int i = 0; i < t->row_count; i++) {
		const struct row *row = &t->rows[i];
		double algbw = bandwidth(row->size, row->us);

		buf_addf(out,
		    "%-12s %12" PRIu64 " %12" PRIu64 " %9s %12.1f %8.2f %8.2f %8" PRIu64 "\n",
		    row->name, row->size, row->count, row->type, row->us, algbw,
		    algbw * bus_factor(row->name, t->ranks), row->wrong);
	}
}

static int
compare_ranks(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	return x->a != y->a ? (x->a > y->a) - (x->a < y->a) : (x->b > y->b) - (x->b < y->b);
}

/* Merges the reports of both ranks of a pair: keeps the slower time. */
static void
merge_pairs(struct table *t)
{
	size_t n = 0;

	if (t->pair_count)
		qsort(t->pairs, t->pair_count, sizeof(*t->pairs), compare_ranks);
	for (size_t i = 0; i < t->pair_count; i++) {
		struct pair *p = &t->pairs[i];

		if (n && compare_ranks(&t->pairs[n - 1], p) == 0)
			t->pairs[n - 1].us = MAX(t->pairs[n - 1].us, p->us);
		else if (p->us > 0)
			t->pairs[n++] = *p;
	}
	t->pair_count = n;
}

/* Sorts the slowest last. */
static int
compare(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	return (x->us > y->us) - (x->us < y->us);
}

static void
print_slowest(struct table *t, struct buf *out)
{
	const struct pair *slowest, *middle;
	size_t n;

	merge_pairs(t);
	n = t->pair_count;
	if (n == 0) {
		buf_adds(out, "slowest_pair -\n");
		return;
	}
	qsort(t->pairs, n, sizeof(*t->pairs), compare);
	slowest = &t->pairs[n - 1];
	middle = &t->pairs[n / 2];
	buf_addf(out, "slowest_pair ranks=%d-%d size=%" PRIu64 " time_us=%.1f algbw=%.2f ",
	    slowest->a, slowest->b, slowest->size, slowest->us,
	    bandwidth(slowest->size, slowest->us));
	buf_addf(out, "median_algbw=%.2f\n", bandwidth(middle->size, middle->us));
}

static void
print_time(const struct task *w, struct buf *out)
{
	time_t when = (time_t)w->when.end;
	struct tm tm;
	char text[40] = "";

	if (localtime_r(&when, &tm))
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	buf_addf(out, "# selftest %s", text);
}

static void
print_table(const struct task *w, struct buf *out)
{
	struct table *t = xcalloc(1, sizeof(*t));

	t->ranks = w->n;
	for (int i = 0; i < w->n; i++)
		add_rank(t, i, w->subtasks[i].value);
	print_time(w, out);
	buf_addf(out, ": %d rank%s, %s\n", w->n, w->n == 1 ? "" : "s", t->about);
	if (t->chosen.n)
		buf_add(out, t->chosen.p, t->chosen.n);
	print_rows(t, out);
	buf_addf(out, "errors %" PRIu64 "\n", t->wrong);
	if (t->where.n)
		buf_add(out, t->where.p, t->where.n);
	print_slowest(t, out);
	buf_free(&t->chosen);
	buf_free(&t->where);
	free(t->pairs);
	free(t);
}

/* Has every rank measured? Wrong results still make a table; any other failure leaves none. */
static bool
is_whole(const struct task *w)
{
	for (int i = 0; i < w->n; i++)
		if (!*w->subtasks[i].value)
			return false;
	return true;
}

static void
keep(struct group *g, const struct task *w)
{
	struct buf out = {0};

	if (is_whole(w)) {
		print_table(w, &out);
	} else {
		print_time(w, &out);
		buf_addf(&out, ": %s: %s\n", err_name(w->err.no), w->err.text);
	}
	free(g->selftest);
	g->selftest = buf_take(&out);
}

static void
ended(struct task *w)
{
	struct group *g = w->g;

	if (w->begun)
		keep(g, w);
	if (w->err.no)
		journal_fail(g, &w->err, "selftest");
	journal_event(g, "selftest %s", w->err.no ? err_name(w->err.no) : "ok");
	task_free(w);
}

void
selftest_print(const struct group *g, struct buf *out)
{
	buf_adds(out, g->selftest ? g->selftest : "# no selftest has ended: echo selftest > ctl\n");
}

struct task *
selftest_new(struct group *g, char **sizes, int n, struct err *e)
{
	static uint32_t made;
	struct rank_set all;
	struct buf text = {0};
	struct task *w;

	if (external_any(g)) {
		fail(e, EOPNOTSUPP,
		    "selftest: external ranks take part in no selftest, and the others wait for "
		    "them");
		return NULL;
	}
	if (read_sizes(sizes, n, &text, e) < 0) {
		buf_free(&text);
		return NULL;
	}
	external_own(g, &all);
	w = task_new(g, TASK_SELFTEST, &all);
	w->number = SELFTEST_FIRST + made++ % SELFTEST_FIRST;
	w->payload.name = buf_take(&text);
	w->ended = ended;
	return w;
}
