/* Tests of fs/group/straggler.c: which rank the others wait for, and when that is not said. */
#include "check.h"
#include "group/straggler.h"
#include <stdlib.h>

enum { RANKS = 4 };

/* What is said of ranks whose engines tell these lines, one for each clock; NULL ends them. Rank 1
 * is said to be somewhere, if it is the slow one. */
static void
expect(const char *wanted, const char *const *lines)
{
	struct pace pace[RANKS][CLOCKS] = {0};
	struct paced p[RANKS];
	struct straggler s;
	char *text = NULL;
	int n = 0;

	for (; lines[n]; n++) {
		struct buf b = {0};

		buf_adds(&b, lines[n]);
		for (char *save = NULL, *line = strtok_r(b.p, "\n", &save); line;
		     line = strtok_r(NULL, "\n", &save))
			CHECK(pace_read(line, pace[n]));
		buf_free(&b);
		p[n] = (struct paced){n, pace[n]};
	}
	s = straggler_find(p, n);
	if (s.n)
		text = straggler_text(&s, p, n, s.slow[1] ? "mostly at t.py:26" : "");
	else if (s.clock != CLOCKS)
		text = straggler_pace(&s, p, n);
	CHECK_STR(text ? text : "", wanted);
	free(text);
	straggler_free(&s);
}

#define EXPECT(wanted, ...) expect(wanted, (const char *const[]){__VA_ARGS__, NULL})

static void
test_slow(void)
{
	EXPECT(
	    "rank 1 is slow: 78 ms of the 80 ms per step outside of waits, mostly at t.py:26; rank "
	    "0 9.5 ms, "
	    "and waits 70 ms in backward (medians of 30 steps)",
	    "0 32 80000000 70500000 9500000 backward", "0 30 80000000 2000000 78000000 backward");
	/* another clock, which others lack, does not count */
	EXPECT(
	    "rank 1 is slow: 0.90 ms of the 1.0 ms per step outside of waits, mostly at t.py:26; "
	    "ranks 0,2 at "
	    "most 0.20 ms, and wait 0.80 ms in all_reduce (medians of 9 steps)",
	    "1 32 1000000 800000 200000 all_reduce", "0 9 9 9 0 -\n1 9 1000000 100000 900000 -",
	    "1 32 1000000 850000 150000 all_reduce");
	EXPECT("ranks 2,3 are slow: 40 ms of the 50 ms per collective outside of waits; ranks 0,1 "
	       "at most 10 ms, "
	       "and wait 40 ms in barrier (medians of 64 collectives)",
	    "2 64 50000000 40000000 10000000 barrier", "2 64 50000000 41000000 9000000 barrier",
	    "2 64 50000000 0 50000000 -", "2 64 49000000 9000000 40000000 barrier");
}

static void
test_nothing_certain(void)
{
	EXPECT("", "0 32 80000000 2000000 0 backward"); /* nobody waits for one rank */
	EXPECT(
	    "80 ms per step, of which waits 38 ms on rank 1 to 40 ms on rank 0, CPU time 30 ms on "
	    "rank 0 to 31 ms on rank 1 (medians of 30 steps)",
	    "0 32 80000000 40000000 30000000 backward", "0 30 80000000 38000000 31000000 backward");
	EXPECT("", "0 32 80000000 70000000 0 backward", "");
	/* not in step */
	EXPECT("", "0 32 80000000 70000000 0 backward", "0 32 40000000 0 0 -");
	/* the times differ, but nobody waits that much longer */
	EXPECT("80 ms per step, of which waits 0.00 ms on rank 1 to 1.0 ms on rank 0, CPU time 5.0 "
	       "ms on rank 1 to 72 ms on rank 0 (medians of 32 steps)",
	    "0 32 73000000 1000000 72000000 backward", "0 32 80000000 0 5000000 backward");
	/* all but one are slow */
	EXPECT(
	    "80 ms per step, of which waits 0.00 ms on rank 1 to 70 ms on rank 0, CPU time 10 ms "
	    "on rank 0 to 80 ms on rank 1 (medians of 32 steps)",
	    "0 32 80000000 70000000 10000000 reduce", "0 32 80000000 0 80000000 -",
	    "0 32 80000000 0 80000000 -");
	EXPECT("1.0 ms per collective, of which waits 0.10 ms on rank 0 to 0.20 ms on rank 1, CPU "
	       "time 0.80 ms on rank 0 to 0.80 ms on rank 0 (medians of 64 collectives)",
	    "2 64 1000000 100000 800000 barrier", "2 64 1000000 200000 800000 barrier");
	EXPECT("", "0 32 0 0 0 -", "0 32 0 0 0 -");
}

static void
test_damaged(void)
{
	static const char *const damaged[] = {"", "0", "3 1 1 1 0 -", "-1 1 1 1 0 -",
	    "0 1 nan 1 0 -", "0 1 1 inf 0 -", "0 1 1 1 nan -", "0 1 1 1 0", "0 1 1 1 -",
	    "0 1 1 1 0 - -"};
	struct pace pace[CLOCKS] = {0};

	for (size_t i = 0; i < ARRAY_LEN(damaged); i++)
		CHECK(!pace_read(damaged[i], pace));
	CHECK(!pace[0].steps);
}

int
main(void)
{
	test_slow();
	test_nothing_certain();
	test_damaged();
	return CHECK_DONE();
}
