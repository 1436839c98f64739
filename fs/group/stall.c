/*
 * Asks each rank for its stack and produces the text of G/stall. The rank's I/O thread replies,
 * whatever Python is doing. A stack yields two things: the rank's collective, and the line of the
 * user's code. The rank that is furthest behind comes first, below a line that says what it has not
 * done. If a rank is slow in each step, its stack of one moment tells nothing: it is asked for
 * several looks, and the text comes after them.
 */
#include "group/stall.h"
#include "base/daemon.h"
#include "group/cell.h"
#include "group/events.h"
#include "group/frames.h"
#include "group/hooks.h"
#include "group/journal.h"
#include "group/looks.h"
#include "group/rank.h"
#include "group/registry.h"
#include "group/straggler.h"
#include "group/task.h"
#include "group/verdict.h"
#include "host/agent.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LATE_MS = 2000, US_PER_S = 1000000 };

enum { SAMPLES = 4 }; /* in the time of the setting `stall` */

enum { NAME_SIZE = 64, LINE_SIZE = 260 };

enum { RANKS_LOOKED_AT = 4, LINES_TOLD = 4 };

/* The time in s that looks take: whole periods of the loop, if they fit. */
static const double LOOK = 0.4, LOOK_MAX = 1;

/* Where one rank is. */
struct rank_sample {
	struct stall_sample *of;
	struct rank *k;
	char collective[NAME_SIZE]; /* "-": none */
	char line[LINE_SIZE];	    /* of the user's code, FILE:N; "-": unknown */
	struct rank_place place;    /* for the verdict */
	bool answered;
	uint32_t steps;	   /* of optimizers, in this cell */
	uint32_t number;   /* of the current collective, else of the last one done */
	double seconds;	   /* in this collective, in s */
	int same_location; /* number of ranks at the same place, including itself */
};

/* One round of requests to the ranks. */
struct stall_sample {
	struct group *g; /* referenced */
	struct rank_sample *rank;
	int n, left;
	uint64_t asked; /* now_ns() */
	double took;	/* seconds until the last answer */
	enum record_form form;
	stall_fn *fn; /* NULL: already called, or the sample is for the event */
	void *arg;
	struct timer *late;
	uint32_t about;	 /* the cell that the next two are about; 0: any */
	char *verdict;	 /* the first of what is certain; NULL: nothing */
	char *straggler; /* likewise, who is slow */
	char *pace;	 /* likewise, what a step takes if nobody is */
	int cell;	 /* for the event; 0: none */

	/* Once the ranks have answered. */
	struct rank_place *places; /* by rank; NULL: they have not */
	struct paced *paced;	   /* those that may be in step */
	int paced_n;
	struct straggler slow;
	struct looks looks; /* at the slow ones */
	double looked;	    /* s that these have taken; 0: there were none */
};

static bool
ends(struct slice s, const char *end)
{
	size_t n = strlen(end);

	return s.n >= n && memcmp(s.p + s.n - n, end, n) == 0;
}

/* Stores the innermost line of user code in the main thread. If the engine named no collective,
 * stores the innermost function of torch's DDP module that this line called in `in`.
 * innermost: what the engine named is the innermost call. */
static void
read_stack(struct slice text, char in[NAME_SIZE], char at[LINE_SIZE], bool *innermost)
{
	static const char ddp[] = "nn/parallel/distributed.py";
	struct slice rest = frames_main(text);
	struct frame f;

	*innermost = rest.n > 0;
	for (bool is_first = true; frames_next(&rest, &f); is_first = false) {
		if (is_first &&
		    (frame_is_users(&f, rest) ||
			(strcmp(in, "backward") == 0 && !ends(f.function, "_run_backward"))))
			*innermost = false;
		if (*in == '-' && memmem(f.file.p, f.file.n, ddp, sizeof(ddp) - 1))
			snprintf(in, NAME_SIZE, "%.*s",
			    (int)MIN(f.function.n, (size_t)NAME_SIZE - 1), f.function.p);
		if (frame_is_users(&f, rest)) {
			snprintf(at, LINE_SIZE, "%.*s:%u", (int)MIN(f.file.n, (size_t)200),
			    f.file.p, f.line);
			break;
		}
	}
}

static bool
in_collective(const struct rank_sample *r)
{
	return *r->collective != '-';
}

/* The order of the text: by the number of collectives, then ranks in none before ranks in one, then
 * by how few are at the same place. */
static int
compare(const void *a, const void *b)
{
	const struct rank_sample *x = a, *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	if (in_collective(x) != in_collective(y))
		return in_collective(x) ? 1 : -1;
	if (x->same_location != y->same_location)
		return x->same_location - y->same_location;
	return x->k->number - y->k->number;
}

/* Returns 0 if they are at the same place. */
static int
compare_places(const void *a, const void *b)
{
	const struct rank_sample *x = a, *y = b;
	int d = strcmp(x->collective, y->collective);

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return d ? d : strcmp(x->line, y->line);
}

static void
sort_ranks(struct stall_sample *s)
{
	qsort(s->rank, (size_t)s->n, sizeof(*s->rank), compare_places);
	for (int i = 0, next; i < s->n; i = next) {
		for (next = i + 1; next < s->n; next++)
			if (compare_places(&s->rank[i], &s->rank[next]) != 0)
				break;
		for (int k = i; k < next; k++)
			s->rank[k].same_location = next - i;
	}
	qsort(s->rank, (size_t)s->n, sizeof(*s->rank), compare);
}

/* The rank's part of a cell that other ranks still run, if it has ended; else NULL. */
static const struct subtask *
ended_part(const struct stall_sample *s, const struct rank *k)
{
	for (int i = 0; i < s->n; i++) {
		const struct subtask *j = queue_outermost(s->rank[i].k);

		for (int r = 0; j && r < j->w->n; r++)
			if (j->w->subtasks[r].k == k && j->w->subtasks[r].state == SUBTASK_DONE &&
			    j->w->kind == TASK_RUN)
				return &j->w->subtasks[r];
	}
	return NULL;
}

static void
set_states(struct stall_sample *s)
{
	for (int i = 0; i < s->n; i++) {
		struct rank_sample *r = &s->rank[i];
		struct rank_place *p = &r->place;
		const struct subtask *j = queue_outermost(r->k);
		const struct subtask *ended = j ? NULL : ended_part(s, r->k);

		p->rank = r->k->number;
		p->in = r->collective;
		p->line = r->line;
		p->seconds = r->seconds;
		p->calls = r->number - in_collective(r);
		p->cell = j && j->w->kind == TASK_RUN ? j->w->number : 0;
		if (!r->answered)
			p->state = PLACE_UNKNOWN;
		else if (j)
			p->state =
			    r->k->input.waits == INPUT_DEBUGGER ? PLACE_DEBUGGED : PLACE_BUSY;
		else if (ended)
			p->state = ended->no == EHOSTDOWN ? PLACE_LOST : PLACE_ENDED;
		else
			p->state = PLACE_NO_CELL;
		p->program = ended && task_is_program(ended->w);
		p->failed = ended && ended->no != 0;
	}
}

static void
add_numbers(struct record *out, const char *key, const int *numbers, int n)
{
	record_begin_list(out, key);
	for (int i = 0; i < n; i++)
		record_number(out, NULL, numbers[i]);
	record_end_list(out);
}

/* People get the sentence alone. */
static void
print_one_verdict(const struct verdict *v, struct record *out)
{
	if (out->form != RECORD_JSON) {
		buf_addf(out->out, "%s\n", v->text);
		return;
	}
	record_begin(out, NULL);
	record_text(out, "kind", verdict_kinds[v->kind]);
	add_numbers(out, "ranks", v->ranks, v->n);
	add_numbers(out, "waiting", v->waiting, v->waiting_n);
	if (v->op) {
		record_text(out, "op", v->op->name);
		record_number(out, "number", v->op->number);
		record_text(out, "group", v->group->members);
	}
	record_text(out, "text", v->text);
	record_end(out);
}

/* Does it say of a rank that runs this cell that it waits, or is stopped? places: by rank. */
static bool
concerns(const struct verdict *v, const struct rank_place *places, uint32_t cell)
{
	const int *ranks = v->waiting_n ? v->waiting : v->ranks;
	int n = v->waiting_n ? v->waiting_n : v->n;

	for (int i = 0; i < n; i++)
		if (places[ranks[i]].cell == cell)
			return true;
	return false;
}

/* Appends what is certain about who waits for whom. */
static void
print_verdict(struct stall_sample *s, struct record *out)
{
	struct verdicts found = verdict_find(s->places, s->n, s->took);

	free(s->verdict);
	s->verdict = NULL;
	record_begin_list(out, "verdicts");
	for (size_t i = 0; i < found.n; i++) {
		const struct verdict *v = &found.list[i];

		if (!s->verdict && (!s->about || concerns(v, s->places, s->about)))
			s->verdict = xstrdup(v->text);
		print_one_verdict(v, out);
	}
	record_end_list(out);
	verdict_free_all(&found);
}

/* Finds which ranks the others wait for in each step, if that is certain. */
static void
find_straggler(struct stall_sample *s)
{
	static const struct pace unknown[CLOCKS];

	s->paced = xcalloc((size_t)MAX(s->n, 1), sizeof(*s->paced));
	for (int i = 0; i < s->n; i++) {
		const struct rank_place *q = &s->places[i];

		if (s->about && q->cell && q->cell != s->about)
			continue; /* it makes steps of its own */
		if (q->state != PLACE_NO_CELL)
			s->paced[s->paced_n++] =
			    (struct paced){q->rank, q->counts && !q->on_gpu ? q->pace : unknown};
	}
	s->slow = straggler_find(s->paced, s->paced_n);
}

/* For programs: where the slow ranks were seen. */
static void
print_looks(const struct looks *l, struct record *out)
{
	record_number(out, "looks", l->n);
	record_begin_list(out, "lines");
	for (size_t i = 0; i < MIN(l->lines, (size_t)LINES_TOLD); i++) {
		const struct look_line *a = &l->line[i];
		char *at = xasprintf("%s:%u", a->file, a->number);

		record_begin(out, NULL);
		record_text(out, "at", at);
		record_text(out, "function", a->function);
		record_number(out, "looks", a->n);
		record_end(out);
		free(at);
	}
	record_end_list(out);
}

static void
print_straggler(struct stall_sample *s, struct record *out)
{
	const struct straggler *found = &s->slow;
	bool whole = s->looked * MS_PER_S >= floor(straggler_period(found) * MS_PER_S);
	struct buf where = {0};

	if (!found->n && found->clock != CLOCKS)
		s->pace = straggler_pace(found, s->paced, s->paced_n);
	if (!found->n)
		return;
	looks_sort(&s->looks);
	looks_print(&s->looks, whole ? "mostly" : "now", &where);
	s->straggler = straggler_text(found, s->paced, s->paced_n, where.n ? where.p : "");
	buf_free(&where);
	if (out->form != RECORD_JSON) {
		buf_addf(out->out, "%s\n", s->straggler);
		return;
	}
	record_begin(out, "straggler");
	record_begin_list(out, "ranks");
	for (int i = 0; i < s->paced_n; i++)
		if (found->slow[i])
			record_number(out, NULL, s->paced[i].rank);
	record_end_list(out);
	record_number(out, "steps", found->steps);
	record_real(out, "step_ms", found->step * MS_PER_S, 3);
	record_real(out, "own_ms", found->own * MS_PER_S, 3);
	record_real(out, "others_ms", found->others * MS_PER_S, 3);
	record_real(out, "waits_ms", found->waits * MS_PER_S, 3);
	print_looks(&s->looks, out);
	record_text(out, "text", s->straggler);
	record_end(out);
}

static void
print_rank(const struct rank_sample *r, struct record *out)
{
	const struct subtask *j = queue_running(r->k);
	const struct membership *m;
	const struct operation *o = verdict_waits_in(&r->place, &m);
	enum clock clock = r->of->slow.clock;
	const struct pace *pace =
	    clock < CLOCKS && r->place.state != PLACE_NO_CELL ? &r->place.pace[clock] : NULL;

	record_begin(out, NULL);
	record_number(out, "rank", r->k->number);
	record_text(out, "state", rank_state_name(r->k));
	record_number(out, "cell", r->k->cell);
	if (j)
		record_real(out, "seconds", in_seconds(now_ns() - j->sent), 1);
	record_text(out, "in", in_collective(r) ? r->collective : NULL);
	record_number(out, "number", o ? o->number : r->number);
	record_text(out, "at", strcmp(r->line, "-") != 0 ? r->line : NULL);
	if (o && strcmp(o->name, r->collective) != 0)
		record_text(out, "op", o->name);
	if (o)
		record_text(out, "group", m->members);
	if (o && o->elements >= 0) {
		record_number(out, "numel", o->elements);
		record_text(out, "dtype", o->dtype);
	}
	if (r->steps)
		record_number(out, "steps", r->steps);
	if (pace) {
		record_real(out, "step_ms", pace->step * MS_PER_S, 1);
		record_real(out, "waits_ms", pace->waited * MS_PER_S, 1);
		record_real(out, "cpu_ms", pace->cpu * MS_PER_S, 1);
	}
	if (r->seconds > 0)
		record_real(out, "for", r->seconds, 1);
	record_end(out);
}

/* Judges what the ranks have answered. */
static void
settle(struct stall_sample *s)
{
	s->took = in_seconds(now_ns() - s->asked);
	sort_ranks(s);
	set_states(s);
	s->places = xcalloc((size_t)MAX(s->n, 1), sizeof(*s->places));
	for (int i = 0; i < s->n; i++)
		s->places[s->rank[i].place.rank] = s->rank[i].place;
	find_straggler(s);
}

static void
print(struct stall_sample *s, struct buf *to)
{
	struct record out = {.out = to, .form = s->form};

	if (!s->places)
		settle(s);
	if (s->form == RECORD_JSON)
		record_begin(&out, NULL);
	print_verdict(s, &out);
	print_straggler(s, &out);
	record_begin_list(&out, "ranks");
	for (int i = 0; i < s->n; i++)
		print_rank(&s->rank[i], &out);
	record_end_list(&out);
	if (s->form == RECORD_JSON)
		record_end(&out);
}

static uint64_t
stall_span(const struct group *g)
{
	return (uint64_t)(g->set.stall * (double)NS_PER_S);
}

/* Adds how far the rank is in its groups, by torch's recorders or by Python. */
static void
add_groups(struct buf *b, const struct rank_place *p, bool by_recorder)
{
	for (size_t i = 0; i < p->n; i++)
		if (verdict_is_recorded(&p->group[i]) == by_recorder)
			buf_addf(b, " %u", p->group[i].entered);
}

/* Do the recorders say that a rank has moved since they have last said where it is? On a busy
 * machine they may answer too late for a look: that says nothing. */
static bool
have_moved(const struct stall_sample *s, struct task_escalation *x)
{
	bool moved = false;

	if (!x->recorded)
		x->recorded = xcalloc((size_t)s->g->size, sizeof(*x->recorded));
	for (int i = 0; i < s->n; i++) {
		const struct rank_sample *r = &s->rank[i];
		uint64_t *seen = &x->recorded[r->k->number], now;
		struct buf b = {0};

		if (!r->place.recorded)
			continue;
		add_groups(&b, &r->place, true);
		now = hash_add(HASH_START, b.n ? b.p : "", b.n);
		moved |= *seen && *seen != now;
		*seen = now;
		buf_free(&b);
	}
	return moved;
}

/* Hashes (FNV-1a) where all ranks are but for what the recorders say, in the order of s->rank. */
static uint64_t
hash(const struct stall_sample *s)
{
	uint64_t h;
	struct buf b = {0};

	for (int i = 0; i < s->n; i++) {
		const struct rank_sample *r = &s->rank[i];

		buf_addf(&b, "%s %u %s %u", r->collective, r->number, r->line, r->steps);
		add_groups(&b, &r->place, false);
		buf_addc(&b, '\n');
	}
	h = hash_add(HASH_START, b.p, b.n);
	buf_free(&b);
	return h;
}

/* Logs the event of a stall if one is due, or if the verdict was not there in time for the last. */
static void
tell(struct stall_sample *s, struct cell *c)
{
	struct task_escalation *x = &c->w->escalation;
	bool due = s->asked - x->stall_told >= stall_span(s->g);
	struct buf b = {0};

	if (!due && *x->verdict)
		return;
	print(s, &b);
	if (due || s->verdict)
		journal_event(
		    s->g, "stall cell=%d seconds=%.0f %s", s->cell, task_seconds(c->w), b.p);
	buf_free(&b);
	if (s->verdict)
		task_set_text(&x->verdict, slice_text(s->verdict));
	if (due && x->stall_told == x->stall_since)
		group_tell(cell_news, s->g, c, CELL_STALLED, -1);
	if (due)
		x->stall_told = s->asked;
}

static void watch(struct task *w);

/* Tells of a stall if nothing has moved for `stall` seconds and a rank is in a collective, and
 * again after each further such time. */
static void
report(struct stall_sample *s)
{
	struct cell *c = s->g->gone ? NULL : cell_find(s->g, s->cell);
	uint64_t now = hash(s);
	struct task_escalation *x;
	bool waits = false, asks = false;

	set_states(s);
	for (int i = 0; i < s->n; i++) {
		const struct membership *m;

		waits |= in_collective(&s->rank[i]) || verdict_waits_in(&s->rank[i].place, &m);
		asks |= s->rank[i].k->input.waits;
	}
	if (!c || c->w->done || s->g->set.stall <= 0)
		return;
	x = &c->w->escalation;
	if (have_moved(s, x) || asks || x->stall_seen != now)
		x->stall_since = x->stall_told = s->asked;
	x->stall_seen = now;
	x->stalled = waits && s->asked - x->stall_since >= stall_span(s->g);
	if (x->stalled)
		tell(s, c);
	else if (c->w->left == c->w->n && !x->step)
		task_set_text(&x->verdict, (struct slice){0}); /* it goes on */
	watch(c->w);
}

static void
answer(struct stall_sample *s)
{
	stall_fn *fn = s->fn;
	struct buf b = {0};

	s->fn = NULL;
	print(s, &b);
	fn(s->arg, (struct slice){b.p, b.n});
	buf_free(&b);
}

static void
free_sample(struct stall_sample *s)
{
	group_unref(s->g);
	for (int i = 0; i < s->n; i++)
		verdict_free(&s->rank[i].place);
	straggler_free(&s->slow);
	looks_free(&s->looks);
	free(s->paced);
	free(s->places);
	free(s->rank);
	free(s->verdict);
	free(s->straggler);
	free(s->pace);
	free(s);
}

static bool look(struct stall_sample *s);

/* All that were asked have answered. */
static void
complete(struct stall_sample *s)
{
	loop_timer_del(s->late);
	s->late = NULL;
	if (s->fn && !s->places && look(s))
		return;
	if (s->fn)
		answer(s);
	else if (s->cell)
		report(s);
	free_sample(s);
}

/* A rank that is stopped, or in an uninterruptible call, may reply much later: goes on without. */
static void
on_late(void *arg)
{
	struct stall_sample *s = arg;

	s->late = NULL;
	if (s->fn)
		answer(s);
}

static void
on_look(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct stall_sample *s = arg;
	struct slice stacks;
	uint32_t span_ms;

	if (m && s->fn && wire_unpack(m, Rlook, NULL, &span_ms, &stacks) == 0) {
		looks_read(&s->looks, stacks);
		s->looked = span_ms / (double)MS_PER_S;
	}
	if (--s->left == 0)
		complete(s);
}

/* Judges the answers, and asks the slow ranks for looks. Returns false if there are none. */
static bool
look(struct stall_sample *s)
{
	double period, span;
	int asked = 0;

	settle(s);
	if (!s->slow.n)
		return false;
	period = straggler_period(&s->slow);
	span = ceil(LOOK / period) * period;
	span = span > LOOK_MAX ? LOOK : span;
	s->left = 1;
	for (int i = 0; i < s->paced_n && asked < RANKS_LOOKED_AT; i++) {
		struct rank *k = &s->g->ranks[s->paced[i].rank];

		if (!s->slow.slow[i] || k->slot == NO_SLOT || !queue_running(k))
			continue;
		asked++;
		s->left++;
		agent_send(rank_agent(k), Tlook, 0, k->slot,
		    agent_tag(rank_agent(k), k->slot, Tlook, on_look, s), -1,
		    (uint32_t)(span * MS_PER_S));
	}
	if (--s->left > 0)
		s->late =
		    loop_timer(daemon_.loop, (uint64_t)(span * MS_PER_S) + LATE_MS, on_late, s);
	return s->left > 0;
}

static void
on_stack(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct rank_sample *r = arg;
	struct slice name, text, described;
	uint64_t us;
	uint32_t done, steps;

	/* after answer() has sorted the ranks, r is another rank's entry, and the reply is no
	 * longer wanted */
	if (m && (r->of->fn || r->of->cell) &&
	    wire_unpack(m, Rstack, NULL, &name, &us, &done, &steps, &text, &described) == 0) {
		if (name.n)
			snprintf(r->collective, sizeof(r->collective), "%.*s",
			    (int)MIN(name.n, sizeof(r->collective) - 1), name.p);
		read_stack(text, r->collective, r->line, &r->place.innermost);
		if (!queue_running(r->k)) /* the engine's own */
			snprintf(r->line, sizeof(r->line), "-");
		r->seconds = (double)us / US_PER_S;
		r->number = done + (name.n > 0);
		r->steps = steps;
		r->answered = true;
		verdict_read(&r->place, described);
	}
	if (--r->of->left == 0)
		complete(r->of);
}

void
stall_ask(struct stall_sample *s)
{
	struct group *g = s->g;

	s->n = g->size;
	s->rank = xcalloc((size_t)MAX(g->size, 1), sizeof(*s->rank));
	s->left = 1;
	s->asked = now_ns();
	for (int i = 0; i < g->size; i++) {
		struct rank *k = &g->ranks[i];

		s->rank[i] = (struct rank_sample){.of = s, .k = k, .collective = "-", .line = "-"};
		if (k->slot == NO_SLOT || k->state == R_SPAWNING)
			continue;
		s->left++;
		agent_send(rank_agent(k), Tstack, 0, k->slot,
		    agent_tag(rank_agent(k), k->slot, Tstack, on_stack, &s->rank[i]), -1);
	}
	if (--s->left == 0)
		complete(s);
	else if (s->fn)
		s->late = loop_timer(daemon_.loop, LATE_MS, on_late, s);
}

struct stall_sample *
stall_prepare(struct group *g, enum record_form form, uint32_t about, stall_fn *fn, void *arg)
{
	struct stall_sample *s = xcalloc(1, sizeof(*s));

	*s = (struct stall_sample){
	    .g = group_ref(g), .form = form, .about = about, .fn = fn, .arg = arg};
	return s;
}

const char *
stall_verdict(const struct stall_sample *s)
{
	return s->verdict;
}

const char *
stall_straggler(const struct stall_sample *s)
{
	return s->straggler;
}

const char *
stall_pace(const struct stall_sample *s)
{
	return s->pace;
}

/* Has one of the ranks that are waited for ended its part of the cell? */
static bool
waits_for_ended(const struct stall_sample *s, const struct verdict *v)
{
	bool ended = false;

	for (int i = 0; i < v->n; i++)
		ended |= s->places[v->ranks[i]].state == PLACE_ENDED ||
			 s->places[v->ranks[i]].state == PLACE_LOST;
	return ended;
}

void
stall_in_vain(const struct stall_sample *s, struct rank_set *ranks)
{
	struct verdicts found = verdict_find(s->places, s->n, s->took);

	for (size_t i = 0; i < found.n; i++) {
		const struct verdict *v = &found.list[i];

		if (!waits_for_ended(s, v))
			continue;
		for (int k = 0; k < v->waiting_n; k++) {
			const struct rank_place *p = &s->places[v->waiting[k]];

			if (strcmp(p->in, "-") != 0 && !p->aside)
				rank_set_add(ranks, p->rank);
		}
	}
	verdict_free_all(&found);
}

void
stall_cancel(struct stall_sample *s)
{
	s->fn = NULL;
}

static void
on_time(void *arg)
{
	struct task *w = arg;
	struct stall_sample *s = xcalloc(1, sizeof(*s));

	w->escalation.stall_timer = NULL;
	*s = (struct stall_sample){.g = group_ref(w->g),
	    .form = RECORD_WORDS,
	    .cell = w->cell->number,
	    .about = w->number};
	stall_ask(s);
}

/* A cell runs: samples it every `stall` seconds until it ends. Logs an event if nothing moves. */
static void
watch(struct task *w)
{
	uint64_t span_ms = (uint64_t)(w->g->set.stall * 1000);

	if (w->kind == TASK_RUN && w->g->set.stall > 0 && !w->done && !w->escalation.stall_timer)
		w->escalation.stall_timer =
		    loop_timer(daemon_.loop, MAX(span_ms / SAMPLES, 1), on_time, w);
}

void
event_task_began(struct task *w)
{
	watch(w);
}
