/*
 * A rank waits in the first operation of its group that is not done. Another member whose highest
 * number is lower has not entered it. If the other has an operation of another name under this
 * number, or one of another size or type where these must be equal, neither can end. Numbers of
 * different sources are not compared, and ranks that are no members are not considered.
 */
#include "group/verdict.h"
#include "group/rank_set.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const verdict_kinds[] = {[VERDICT_DEBUGGED] = "debugged",
    [VERDICT_LATE] = "late",
    [VERDICT_AWAY] = "away",
    [VERDICT_DIFFERENT] = "different",
    [VERDICT_ENTERED] = "entered"};

enum { RANKS_SHOWN = 4, ENOUGH_S = 1, LONG_S = 10 };

/* Splits a line at its spaces into n words. Returns false if it has another number of them. */
static bool
split(char *line, char **word, size_t n)
{
	char *save = NULL, *p = strtok_r(line, " ", &save);
	size_t count = 0;

	for (; p && count < n; p = strtok_r(NULL, " ", &save))
		word[count++] = p;
	return !p && count == n;
}

static bool
add_group(struct rank_place *p, char **word)
{
	struct membership m = {.name = word[0], .source = word[1], .members = word[3]};
	char *end;

	m.entered = (unsigned)strtoul(word[2], &end, 10);
	p->group = xrealloc(p->group, (p->n + 1) * sizeof(*p->group));
	p->group[p->n++] = m;
	return !*end;
}

static bool
add_operation(struct rank_place *p, char **word)
{
	struct operation o = {.name = word[1], .dtype = word[3], .done = *word[4] != '0'};
	struct membership *m = p->n ? &p->group[p->n - 1] : NULL;
	char *ends[3];

	if (!m)
		return false;
	o.number = (unsigned)strtoul(word[0], &ends[0], 10);
	o.elements = strtol(word[2], &ends[1], 10);
	o.seconds = strtod(word[5], &ends[2]);
	m->op = xrealloc(m->op, (m->n + 1) * sizeof(*m->op));
	m->op[m->n++] = o;
	return !*ends[0] && !*ends[1] && !*ends[2];
}

static bool
read_line(struct rank_place *p, char *line)
{
	char *word[6], *rest = strchr(line, ' ');

	if (!rest)
		return false;
	*rest++ = '\0';
	if (strcmp(line, "op") == 0)
		return split(rest, word, 6) && add_operation(p, word);
	if (strcmp(line, "group") == 0)
		return split(rest, word, 4) && add_group(p, word);
	if (strcmp(line, "profile") == 0)
		return pace_read(rest, p->pace);
	if (!split(rest, word, 1))
		return false;
	if (strcmp(line, "main") == 0 || strcmp(line, "aside") == 0) {
		p->aside = *line == 'a';
		p->sleeps = strchr("SD", *word[0]) != NULL;
		return true;
	}
	if (strcmp(line, "cuda") == 0)
		return p->on_gpu = true;
	p->counts = strcmp(line, "cell") == 0;
	p->counted = (unsigned)strtoul(word[0], NULL, 10);
	return p->counts;
}

static bool
is_own(const char *source)
{
	return strcmp(source, "own") == 0;
}

static bool
is_python(const char *source)
{
	return is_own(source) || strcmp(source, "unknown") == 0;
}

bool
verdict_is_recorded(const struct membership *m)
{
	return !is_python(m->source);
}

/* Does torch record the operations of all its groups? */
static bool
is_recorded(const struct rank_place *p)
{
	for (size_t i = 0; i < p->n; i++) {
		bool found = false;

		for (size_t k = 0; k < p->n && !found; k++)
			found = is_python(p->group[k].source) != is_python(p->group[i].source) &&
				strcmp(p->group[k].name, p->group[i].name) == 0;
		if (!found || strcmp(p->group[i].source, "lost") == 0)
			return false;
	}
	return p->counts;
}

void
verdict_read(struct rank_place *p, struct slice description)
{
	char *save = NULL;
	bool is_read = true;

	p->text = slice_dup(description);
	for (char *line = strtok_r(p->text, "\n", &save); line && is_read;
	     line = strtok_r(NULL, "\n", &save))
		is_read = read_line(p, line);
	if (!is_read)
		verdict_free(p);
	p->recorded = is_recorded(p);
}

void
verdict_free(struct rank_place *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->group[i].op);
	free(p->group);
	free(p->text);
	p->group = NULL;
	p->text = NULL;
	p->n = 0;
	p->counts = false;
}

static const struct operation *
first_open(const struct membership *m)
{
	for (size_t i = 0; i < m->n; i++)
		if (!m->op[i].done)
			return &m->op[i];
	return NULL;
}

static const struct operation *
find_operation(const struct membership *m, unsigned number)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->op[i].number == number)
			return &m->op[i];
	return NULL;
}

static bool
is_in(const struct rank_place *p)
{
	return p->state == PLACE_BUSY && strcmp(p->in, "-") != 0;
}

/* The group of this source with an operation that is not done; NULL if there are several. */
static const struct membership *
open_group(const struct rank_place *p, const char *source, const char *name)
{
	const struct membership *found = NULL;

	for (size_t i = 0; i < p->n; i++) {
		const struct membership *m = &p->group[i];

		if (strcmp(m->source, source) != 0 || !first_open(m) ||
		    (name && strcmp(m->name, name) != 0))
			continue;
		if (found)
			return NULL;
		found = m;
	}
	return found;
}

/* Does the rank wait for something else than an operation of a group? */
static bool
is_in_other(const struct rank_place *p)
{
	static const char *const others[] = {"send", "recv", "send_object_list", "recv_object_list",
	    "new_group", "split_group", "store", "init_process_group"};

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (strcmp(p->in, others[i]) == 0)
			return true;
	return false;
}

/* Backward and forward compute, too: does the rank wait in this operation that they have started?
 */
static bool
is_stuck_in(const struct rank_place *p, const struct operation *o)
{
	if (strcmp(p->in, "backward") != 0 && strcmp(p->in, "forward") != 0)
		return true;
	return p->sleeps && p->innermost && o->seconds <= p->seconds;
}

/* Python does not wait for what NCCL does on a GPU, or in another call. */
static const struct operation *
waits_on_gpu(const struct rank_place *p, const struct membership **group)
{
	const struct operation *o;

	*group = p->state == PLACE_BUSY ? open_group(p, "nccl", NULL) : NULL;
	o = *group ? first_open(*group) : NULL;
	return o && o->seconds >= ENOUGH_S ? o : NULL;
}

static const struct operation *
waits_in(const struct rank_place *p, const char *source, const struct membership **group)
{
	const struct membership *own = is_in(p) ? open_group(p, "own", NULL) : NULL;
	const struct operation *o;

	if (strcmp(source, "nccl") == 0)
		return waits_on_gpu(p, group);
	*group = NULL;
	if (!is_in(p) || is_in_other(p))
		return NULL;
	if (own && is_own(source))
		*group = own;
	else if (!is_own(source) && (own || p->recorded))
		*group = open_group(p, source, own ? own->name : NULL);
	o = *group ? first_open(*group) : NULL;
	if (o && !is_stuck_in(p, o))
		o = NULL;
	return o;
}

/* The best first. */
static const char *const sources[] = {"gloo", "nccl", "own"};

const struct operation *
verdict_waits_in(const struct rank_place *p, const struct membership **group)
{
	const struct operation *o = NULL;

	for (size_t i = 0; i < ARRAY_LEN(sources) && !o; i++)
		o = waits_in(p, sources[i], group);
	return o;
}

static const struct membership *
counterpart(const struct rank_place *p, const struct membership *m)
{
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->group[i].name, m->name) == 0 &&
		    strcmp(p->group[i].source, m->source) == 0 &&
		    strcmp(p->group[i].members, m->members) == 0)
			return &p->group[i];
	return NULL;
}

enum relation {
	NO_MEMBER,
	UNCERTAIN,
	LATE,
	OTHER_NAME,
	OTHER_SIZE,
	OTHER_TYPE,
	SAME,
	AWAY,
	RELATIONS
};

/* Do all ranks give this operation as many elements of the same type? */
static bool
is_alike(const struct operation *o)
{
	return strcmp(o->name, "all_reduce") == 0 || strcmp(o->name, "reduce") == 0 ||
	       strcmp(o->name, "broadcast") == 0;
}

/* What both have entered under this number: is it the same, and does the other have it open for
 * long? */
static enum relation
compare(const struct operation *o, const struct operation *other)
{
	if (strcmp(other->name, o->name) != 0)
		return OTHER_NAME;
	if (is_alike(o) && o->elements >= 0 && other->elements >= 0) {
		if (o->elements != other->elements)
			return OTHER_SIZE;
		if (strcmp(o->dtype, other->dtype) != 0)
			return OTHER_TYPE;
	}
	return other->done || other->seconds >= ENOUGH_S ? SAME : UNCERTAIN;
}

/* The same for rank p: one that has ended its part may have done so by an error in the operation.
 */
static enum relation
compare_entered(
    const struct rank_place *p, const struct operation *o, const struct operation *other)
{
	enum relation how = compare(o, other);

	return how == SAME && p->state != PLACE_BUSY ? AWAY : how;
}

/* How another member p relates to the operation that the rank of place q waits in. */
static enum relation
relate(const struct rank_place *p, const struct rank_place *q, const struct membership *m,
    const struct operation *o)
{
	const struct membership *its = counterpart(p, m);
	const struct operation *other = its ? find_operation(its, o->number) : NULL;

	if (p->state == PLACE_UNKNOWN)
		return UNCERTAIN;
	if (!p->counts && !its && p->state == PLACE_BUSY)
		return is_own(m->source) && !is_in(p) && strcmp(m->name, "0") == 0 &&
			       p->cell == q->counted && p->calls < o->number
			   ? LATE
			   : UNCERTAIN;
	if (!its || (is_own(m->source) && p->counted != q->counted))
		return p->state == PLACE_BUSY ? UNCERTAIN : AWAY;
	if (its->entered < o->number)
		return LATE;
	return other ? compare_entered(p, o, other) : UNCERTAIN;
}

static void
print_line(struct buf *out, const struct rank_place *p)
{
	if (strcmp(p->line, "-") != 0 && !p->aside)
		buf_addf(out, " (%s)", p->line);
}

/* Has something else that the rank is in, such as backward, started this operation? */
static bool
is_part(const struct rank_place *p, const struct operation *o)
{
	return is_in(p) && strcmp(p->in, o->name) != 0 && strcmp(p->in, "wait") != 0 &&
	       o->seconds <= p->seconds;
}

/* Is Python in what waits, or has it only started that? */
static bool
is_within(const struct rank_place *p, const struct operation *o)
{
	return is_in(p) && (strcmp(p->in, o->name) == 0 || strcmp(p->in, "wait") == 0 ||
			       o->seconds <= p->seconds);
}

/* Appends "all_reduce 10 of backward". */
static void
print_operation(struct buf *out, const struct rank_place *p, const struct operation *o)
{
	buf_addf(out, "%s %u", o->name, o->number);
	if (is_part(p, o))
		buf_addf(out, " of %s", p->in);
}

/* Appends where a rank is that others wait for in m: "rank 1 is in barrier (train.py:50)". */
static void
print_place(struct buf *out, const struct rank_place *p, const struct membership *m)
{
	const struct membership *its = NULL;

	verdict_waits_in(p, &its);
	buf_addf(out, "rank %d ", p->rank);
	if (p->state == PLACE_ENDED && p->failed)
		buf_addf(out, "has failed in its %s", p->program ? "program" : "part of the cell");
	else if (p->state == PLACE_ENDED)
		buf_addf(out, "has ended its %s", p->program ? "program" : "part of the cell");
	else if (p->state == PLACE_LOST)
		buf_adds(out, "was lost");
	else if (p->state == PLACE_NO_CELL)
		buf_adds(out, "runs no cell");
	else if (is_in(p))
		buf_addf(out, "is in %s%s", p->in,
		    its && strcmp(its->name, m->name) != 0 ? " of another group" : "");
	else
		buf_adds(out, "is in no collective");
	if (p->state == PLACE_BUSY)
		print_line(out, p);
}

/* Does this rank wait in this operation of the group? */
static bool
is_waiter(const struct rank_place *p, const struct membership *m, unsigned number)
{
	const struct membership *its;
	const struct operation *o = waits_in(p, m->source, &its);

	return o && o->number == number && counterpart(p, m) == its;
}

/* Do all that wait in it do so in the same call at the same line as rank p[at]? */
static bool
wait_alike(const struct rank_place *p, int n, int at, const struct membership *m,
    const struct operation *o)
{
	for (int i = 0; i < n; i++)
		if (is_waiter(&p[i], m, o->number) &&
		    (strcmp(p[i].line, p[at].line) != 0 || strcmp(p[i].in, p[at].in) != 0))
			return false;
	return true;
}

/* Appends the ranks that wait in this operation of the group: "rank 0" or "ranks 0,2". Returns
 * their number. */
static int
print_waiters(struct buf *out, const struct rank_place *p, int n, const struct membership *m,
    const struct operation *o)
{
	struct rank_set ranks = {0};

	for (int i = 0; i < n; i++)
		if (is_waiter(&p[i], m, o->number))
			rank_set_add(&ranks, p[i].rank);
	return rank_set_name(&ranks, out);
}

/* Appends the operation that ranks wait in and, if they do so alike, where p, one of them, is. */
static void
print_waited(struct buf *out, const struct rank_place *p, const struct operation *o, bool alike)
{
	if (alike) {
		print_operation(out, p, o);
		print_line(out, p);
	} else {
		buf_addf(out, "%s %u", o->name, o->number);
	}
}

/* Appends who waits in o of m: "; rank 0 waits for it in all_reduce 2 (train.py:44)", or if Python
 * has gone on "; all_reduce 2 of rank 0 waits for it (train.py:45)". late: so many have not entered
 * it; 0: what the others have entered is not known. */
static void
print_wait(struct buf *out, const struct rank_place *p, int n, int at, const struct membership *m,
    const struct operation *o, int late)
{
	bool within = is_within(&p[at], o), alike = wait_alike(p, n, at, m, o);
	int count;

	buf_adds(out, "; ");
	if (!within)
		buf_addf(out, "%s %u of ", o->name, o->number);
	count = print_waiters(out, p, n, m, o);
	if (late)
		buf_addf(out, " wait%s for %s", within && count > 1 ? "" : "s",
		    late == 1 ? "it" : "them");
	else
		buf_adds(out, !within ? " has not ended" : count > 1 ? " are" : " is");
	if (within) {
		buf_adds(out, " in ");
		print_waited(out, &p[at], o, alike);
	} else if (alike) {
		print_line(out, &p[at]);
	}
	buf_addc(out, '\n');
}

/* Appends "barrier 2 (train.py:50)", or "all_reduce 2 of 4 float32 (train.py:44)" if sized. */
static void
print_entered(struct buf *out, const struct rank_place *p, const struct membership *m,
    const struct operation *o, bool sized)
{
	const struct membership *its;
	bool waits = waits_in(p, m->source, &its) == o;

	if (waits)
		print_operation(out, p, o);
	else
		buf_addf(out, "%s %u", o->name, o->number);
	if (sized)
		buf_addf(out, " of %ld %s", o->elements, o->dtype);
	if (waits)
		print_line(out, p);
}

/* p waits in o of its group m; q has entered the other one. */
static void
print_different(struct buf *out, const struct rank_place *p, const struct membership *m,
    const struct operation *o, const struct rank_place *q, enum relation how)
{
	static const char *const words[] = {
	    [OTHER_NAME] = "operations", [OTHER_SIZE] = "sizes", [OTHER_TYPE] = "types"};
	const struct membership *its = counterpart(q, m), *in;
	const struct operation *other = find_operation(its, o->number);

	if (how == OTHER_NAME && waits_in(q, m->source, &in) == other &&
	    is_part(p, o) != is_part(q, other)) {
		/* the call that the user has written comes first */
		if (is_part(q, other)) {
			const struct rank_place *swap = p;

			p = q, q = swap;
			m = its, o = other;
		}
		print_place(out, q, m);
		buf_addf(out, "; rank %d waits for it in ", p->rank);
		print_entered(out, p, m, o, false);
	} else {
		buf_addf(out, "different %s: rank %d has entered ", words[how], q->rank);
		print_entered(out, q, its, other, how != OTHER_NAME);
		buf_addf(out, ", rank %d ", p->rank);
		print_entered(out, p, m, o, how != OTHER_NAME);
	}
	buf_addc(out, '\n');
}

/* Appends the members that relate so to the operation. Returns true if none of them waits. */
static bool
print_related(struct buf *out, const struct rank_place *p, int n, const struct membership *m,
    const enum relation *how, enum relation wanted)
{
	bool waits = false;

	for (int i = 0, shown = 0; i < n; i++) {
		if (how[i] != wanted)
			continue;
		waits |= is_in(&p[i]);
		if (shown > RANKS_SHOWN)
			continue;
		buf_adds(out, shown ? ", " : "");
		if (shown++ == RANKS_SHOWN)
			buf_adds(out, "…");
		else
			print_place(out, &p[i], m);
	}
	return !waits;
}

/* Do ranks name one of them in it? torch's recorders do not say which. */
static bool
has_root(const struct operation *o)
{
	static const char *const names[] = {"broadcast", "reduce", "gather", "scatter"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcmp(o->name, names[i]) == 0)
			return true;
	return false;
}

/* All members have entered what p[at] waits in. */
static void
print_all(struct buf *out, const struct rank_place *p, int n, int at, const struct membership *m,
    const struct operation *o)
{
	bool all = true;

	for (int i = 0; i < n; i++)
		all &= rank_list_has(m->members, p[i].rank);
	if (all)
		buf_adds(out, "all ranks have entered ");
	else
		buf_addf(out, "ranks %s have all entered ", m->members);
	print_waited(out, &p[at], o, wait_alike(p, n, at, m, o));
	buf_addf(out, ": look at %sthe GPUs or the network\n",
	    has_root(o) ? "the source or destination that each gives, " : "");
}

static void
add_verdict(struct verdicts *v, const struct verdict *what)
{
	v->list = xrealloc(v->list, (v->n + 1) * sizeof(*v->list));
	v->list[v->n++] = *what;
}

/* Fills in who waits in the operation, and what relates so to it. The text is that of line, without
 * its newline. */
static struct verdict
make(enum verdict_kind kind, const struct rank_place *p, int n, const struct membership *m,
    const struct operation *o, const enum relation *how, enum relation wanted, struct buf *line)
{
	struct verdict v = {.kind = kind, .op = o, .group = m};

	v.ranks = xcalloc((size_t)n, sizeof(int));
	v.waiting = xcalloc((size_t)n, sizeof(int));
	for (int i = 0; i < n; i++) {
		if (is_waiter(&p[i], m, o->number))
			v.waiting[v.waiting_n++] = p[i].rank;
		else if (how[i] == wanted)
			v.ranks[v.n++] = p[i].rank;
	}
	v.text = xstrndup(line->p, line->n - 1);
	return v;
}

/* Adds the verdict on what rank p[at] waits in, if it is certain: to first if nobody named in it
 * waits for others, else to rest. */
static void
judge(const struct rank_place *p, int n, int at, const struct membership *m,
    const struct operation *o, struct verdicts *first, struct verdicts *rest)
{
	enum relation *how = xcalloc((size_t)n, sizeof(*how)), wanted = RELATIONS;
	int count[RELATIONS] = {0}, other = -1;
	enum verdict_kind kind = VERDICT_ENTERED;
	struct buf line = {0};
	bool is_first = true;
	struct verdict v;

	for (int i = 0; i < n; i++) {
		how[i] = i == at				? SAME
			 : rank_list_has(m->members, p[i].rank) ? relate(&p[i], &p[at], m, o)
								: NO_MEMBER;
		count[how[i]]++;
		if (other < 0 && how[i] >= OTHER_NAME && how[i] <= OTHER_TYPE)
			other = i;
	}
	if (other >= 0) {
		kind = VERDICT_DIFFERENT;
		wanted = how[other];
		print_different(&line, &p[at], m, o, &p[other], wanted);
	} else if (count[LATE] + count[AWAY]) {
		kind = count[LATE] ? VERDICT_LATE : VERDICT_AWAY;
		wanted = count[LATE] ? LATE : AWAY;
		is_first = print_related(&line, p, n, m, how, wanted);
		print_wait(&line, p, n, at, m, o, count[LATE]);
	} else if (!count[UNCERTAIN] &&
		   (is_within(&p[at], o) ? p[at].seconds >= ENOUGH_S : o->seconds >= LONG_S)) {
		print_all(&line, p, n, at, m, o);
	}
	if (line.n) {
		v = make(kind, p, n, m, o, how, wanted, &line);
		add_verdict(is_first ? first : rest, &v);
	}
	buf_free(&line);
	free(how);
}

/* What rank p[i] waits in, if it did so before the ranks were asked. */
static const struct operation *
waited_in(const struct rank_place *p, const char *source, double took, const struct membership **m)
{
	const struct operation *o = waits_in(p, source, m);

	if (o && is_within(p, o) && p->seconds <= took)
		o = NULL;
	return o && (o->seconds < 0 || o->seconds > took) ? o : NULL;
}

static void
judge_all(const struct rank_place *p, int n, const char *source, double took, struct verdicts *out)
{
	struct verdicts rest = {0};

	for (int i = 0; i < n; i++) {
		const struct membership *m, *before;
		const struct operation *o = waited_in(&p[i], source, took, &m), *same;
		bool told = !o;

		for (int k = 0; k < i && !told; k++) {
			same = waited_in(&p[k], source, took, &before);
			told = same && same->number == o->number && counterpart(&p[k], m) == before;
		}
		if (!told)
			judge(p, n, i, m, o, out, &rest);
	}
	for (size_t i = 0; i < rest.n; i++)
		add_verdict(out, &rest.list[i]);
	free(rest.list);
}

/* Appends where a rank is: "at line 3" of its cell, or " (train.py:12)". */
static void
print_stop(struct buf *out, const struct rank_place *p)
{
	char cell[32];
	int n = snprintf(cell, sizeof(cell), "<cell %u>:", p->cell);

	if (strncmp(p->line, cell, (size_t)n) == 0)
		buf_addf(out, " at line %s", p->line + n);
	else
		print_line(out, p);
}

/* The index of the first rank that a debugger has stopped where it has stopped p[at]; -1 if it
 * has not stopped that. */
static int
first_stopped_as(const struct rank_place *p, int at)
{
	int i = 0;

	if (p[at].state != PLACE_DEBUGGED)
		return -1;
	while (p[i].state != PLACE_DEBUGGED || p[i].cell != p[at].cell ||
	       strcmp(p[i].line, p[at].line) != 0)
		i++;
	return i;
}

/* Appends who is stopped: "ranks 0,1 are stopped in the debugger". */
static void
print_stopped(struct buf *out, const struct verdict *v)
{
	struct rank_set ranks = {0};

	for (int i = 0; i < v->n; i++)
		rank_set_add(&ranks, v->ranks[i]);
	rank_set_name(&ranks, out);
	buf_addf(out, " %s stopped in the debugger", v->n > 1 ? "are" : "is");
}

/* Those that are stopped in the same line are told together. */
static void
judge_debugged(const struct rank_place *p, int n, struct verdicts *out)
{
	for (int i = 0; i < n; i++) {
		struct verdict v = {.kind = VERDICT_DEBUGGED};
		struct buf line = {0};

		if (p[i].state != PLACE_DEBUGGED)
			continue;
		if (first_stopped_as(p, i) < i) /* told with that one */
			continue;
		v.ranks = xcalloc((size_t)(n - i), sizeof(int));
		for (int other = i; other < n; other++)
			if (first_stopped_as(p, other) == i)
				v.ranks[v.n++] = p[other].rank;
		print_stopped(&line, &v);
		print_stop(&line, &p[i]);
		v.text = xstrndup(line.p, line.n);
		buf_free(&line);
		add_verdict(out, &v);
	}
}

struct verdicts
verdict_find(const struct rank_place *p, int n, double took)
{
	struct verdicts found = {0};

	judge_debugged(p, n, &found);
	if (found.n)
		return found;
	judge_all(p, n, "gloo", took, &found);
	judge_all(p, n, "nccl", took, &found);
	if (!found.n)
		judge_all(p, n, "own", took, &found);
	return found;
}

void
verdict_free_all(struct verdicts *v)
{
	for (size_t i = 0; i < v->n; i++) {
		free(v->list[i].ranks);
		free(v->list[i].waiting);
		free(v->list[i].text);
	}
	free(v->list);
	*v = (struct verdicts){0};
}
