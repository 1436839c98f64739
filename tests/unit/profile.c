/* Tests of engine/rank/profile.c: the medians of the last steps, and their waits. */
#include "check.h"
#include "rank/profile.h"

static struct profile p;
static uint64_t now, cpu;

/* Steps that take so long, and wait for a part of that. */
static void
steps(int n, uint64_t took, const char *in, uint64_t waited)
{
	for (int i = 0; i < n; i++) {
		if (in)
			profile_wait(&p, in, waited);
		now += took;
		cpu += took / 2;
		profile_step(&p, now, cpu);
	}
}

static void
check(unsigned together, unsigned n, double step, double waited, const char *in)
{
	struct profile_found f = profile_read(&p, together);

	CHECK(f.steps == n);
	CHECK(f.step == step);
	CHECK(f.waited == waited);
	CHECK(f.cpu == step / 2);
	CHECK_STR(f.in ? f.in : "-", in);
}

int
main(void)
{
	check(1, 0, 0, 0, "-");
	steps(8, 100, "barrier", 10);
	check(1, 0, 0, 0, "-"); /* a step has two ends */
	steps(1, 100, "barrier", 10);
	check(1, 8, 100, 10, "barrier");
	steps(1, 100000, "store", 99999); /* a checkpoint, say */
	steps(1, 100, NULL, 0);
	check(1, 10, 100, 10, "barrier");
	steps(200, 70, "all_reduce", 50);
	check(1, 64, 70, 50, "all_reduce");
	/* a loop of two collectives */
	for (int i = 0; i < 100; i++) {
		steps(1, 990, "all_reduce", 500);
		steps(1, 10, "barrier", 4);
	}
	check(8, 64, 500, 252, "all_reduce");
	profile_reset(&p);
	check(1, 0, 0, 0, "-");
	return CHECK_DONE();
}
