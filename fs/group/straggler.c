/*
 * Ranks that are in step take as long for it as the slowest of them, and the others wait for it.
 * What a rank does outside of its waits is its own. A rank is slow if this is clearly more than on
 * the others, and these wait that much longer; at most half of the ranks can be.
 */
#include "group/straggler.h"
#include "group/rank_set.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CLEAR: a difference of this part of a step. IN_STEP: so much may the time of a step differ. */
static const double CLEAR = 0.125, IN_STEP = 0.1, NS = 1e-9, MS = 1e3;

/* TOGETHER: collectives in which a loop of several has one; the engine's medians are of as many. */
enum { TOGETHER = 8 };

bool
pace_read(const char *line, struct pace pace[CLOCKS])
{
	struct pace p = {0};
	unsigned clock;
	int end = -1;

	if (sscanf(line, "%u %u %lf %lf %lf %31s%n", &clock, &p.steps, &p.step, &p.waited, &p.cpu,
		p.in, &end) < 6 ||
	    line[end] || clock >= CLOCKS || !isfinite(p.step) || !isfinite(p.waited) ||
	    !isfinite(p.cpu))
		return false;
	p.step *= NS;
	p.waited *= NS;
	p.cpu *= NS;
	pace[clock] = p;
	return true;
}

static double
own(const struct pace *p)
{
	return MAX(p->step - p->waited, 0.0);
}

/* The best clock by which all ranks are in step; CLOCKS: none. */
static enum clock
find_clock(const struct paced *p, int n)
{
	for (enum clock c = 0; c < CLOCKS; c++) {
		double least = INFINITY, most = 0;
		bool all = n > 1;

		for (int i = 0; i < n; i++) {
			all &= p[i].pace[c].steps > 0 && p[i].pace[c].step > 0;
			least = MIN(least, p[i].pace[c].step);
			most = MAX(most, p[i].pace[c].step);
		}
		if (all)
			return most - least <= IN_STEP * most ? c : CLOCKS;
	}
	return CLOCKS;
}

static void
add_ms(struct buf *out, double s)
{
	double ms = s * MS;

	buf_addf(out, "%.*f ms", ms < 1 ? 2 : ms < 10 ? 1 : 0, ms);
}

/* Appends "rank 1" or "ranks 1,3", those that are slow or those that are not. */
static int
add_ranks(struct buf *out, const struct paced *p, int n, const struct straggler *s, bool slow)
{
	struct rank_set ranks = {0};

	for (int i = 0; i < n; i++)
		if (s->slow[i] == slow)
			rank_set_add(&ranks, p[i].rank);
	return rank_set_name(&ranks, out);
}

double
straggler_period(const struct straggler *s)
{
	return s->step * (s->clock == CLOCK_COLLECTIVE ? TOGETHER : 1);
}

char *
straggler_text(const struct straggler *s, const struct paced *p, int n, const char *where)
{
	const struct paced *other = NULL;
	struct buf b = {0};
	bool more;

	for (int i = n - 1; i >= 0; i--)
		if (!s->slow[i])
			other = &p[i];
	buf_adds(&b, add_ranks(&b, p, n, s, true) > 1 ? " are" : " is");
	buf_adds(&b, " slow: ");
	add_ms(&b, s->own);
	buf_adds(&b, " of the ");
	add_ms(&b, s->step);
	buf_addf(
	    &b, " per %s outside of waits", s->clock == CLOCK_COLLECTIVE ? "collective" : "step");
	buf_addf(&b, "%s%s; ", *where ? ", " : "", where);
	more = add_ranks(&b, p, n, s, false) > 1;
	buf_adds(&b, more ? " at most " : " ");
	add_ms(&b, s->others);
	buf_adds(&b, more ? ", and wait " : ", and waits ");
	add_ms(&b, s->waits);
	if (strcmp(other->pace[s->clock].in, "-") != 0)
		buf_addf(&b, " in %s", other->pace[s->clock].in);
	buf_addf(&b, " (medians of %u %s)", s->steps,
	    s->clock == CLOCK_COLLECTIVE ? "collectives" : "steps");
	return buf_take(&b);
}

/* What rank i waits in a step, or its CPU time in one. */
static double
part(const struct paced *p, int i, enum clock clock, bool cpu)
{
	const struct pace *pace = &p[i].pace[clock];

	return cpu ? pace->cpu : pace->waited;
}

/* Appends "38 ms on rank 1 to 40 ms on rank 0": the least and the most. */
static void
add_range(struct buf *out, const struct paced *p, int n, enum clock clock, bool cpu)
{
	int least = 0, most = 0;

	for (int i = 1; i < n; i++) {
		if (part(p, i, clock, cpu) < part(p, least, clock, cpu))
			least = i;
		if (part(p, i, clock, cpu) > part(p, most, clock, cpu))
			most = i;
	}
	add_ms(out, part(p, least, clock, cpu));
	buf_addf(out, " on rank %d to ", p[least].rank);
	add_ms(out, part(p, most, clock, cpu));
	buf_addf(out, " on rank %d", p[most].rank);
}

char *
straggler_pace(const struct straggler *s, const struct paced *p, int n)
{
	bool collective = s->clock == CLOCK_COLLECTIVE;
	struct buf b = {0};

	add_ms(&b, s->step);
	buf_addf(&b, " per %s, of which waits ", collective ? "collective" : "step");
	add_range(&b, p, n, s->clock, false);
	buf_adds(&b, ", CPU time ");
	add_range(&b, p, n, s->clock, true);
	buf_addf(&b, " (medians of %u %s)", s->steps, collective ? "collectives" : "steps");
	return buf_take(&b);
}

/* The slow ones are those above the middle. */
static void
divide(const struct paced *p, int n, struct straggler *s)
{
	double least = INFINITY, most = 0, waits = 0;

	for (int i = 0; i < n; i++) {
		least = MIN(least, own(&p[i].pace[s->clock]));
		most = MAX(most, own(&p[i].pace[s->clock]));
	}
	s->own = s->waits = INFINITY;
	for (int i = 0; i < n; i++) {
		const struct pace *a = &p[i].pace[s->clock];

		s->slow[i] = own(a) > (least + most) / 2;
		s->n += s->slow[i];
		s->step = MAX(s->step, a->step);
		s->steps = i ? MIN(s->steps, a->steps) : a->steps;
		if (s->slow[i]) {
			s->own = MIN(s->own, own(a));
			waits = MAX(waits, a->waited);
		} else {
			s->others = MAX(s->others, own(a));
			s->waits = MIN(s->waits, a->waited);
		}
	}
	if (2 * s->n > n || s->own - s->others < CLEAR * s->step ||
	    s->waits - waits < CLEAR * s->step)
		s->n = 0;
}

struct straggler
straggler_find(const struct paced *p, int n)
{
	struct straggler s = {.clock = find_clock(p, n)};

	if (s.clock == CLOCKS)
		return s;
	s.slow = xcalloc((size_t)n, sizeof(*s.slow));
	divide(p, n, &s);
	return s;
}

void
straggler_free(struct straggler *s)
{
	free(s->slow);
	s->slow = NULL;
}
