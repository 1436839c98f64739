/* Tests of fs/group/verdict.c: what is said of ranks whose engines describe themselves so. */
#include "check.h"
#include "group/verdict.h"
#include <stdlib.h>

/* In cell 7, where its main thread sleeps. */
#define CELL "cell 7\nmain S\n"
#define WORLD(source, entered) "group 0 " source " " #entered " 0-1\n"
#define BOTH(entered) WORLD("own", entered) WORLD("gloo", entered)
#define OP(number, name, size, done) "op " #number " " name " " size " " #done " 30.0\n"
#define REDUCE OP(2, "all_reduce", "4 float32", 0)

/* A rank that is busy in cell 7: in the Python call `in`, "-" for none, at a line of t.py. */
static struct rank_place
at(int rank, const char *in, const char *line, const char *description)
{
	struct rank_place p = {.rank = rank,
	    .state = PLACE_BUSY,
	    .in = in,
	    .line = line,
	    .seconds = 30,
	    .innermost = true,
	    .cell = 7};

	verdict_read(&p, (struct slice){description, strlen(description)});
	return p;
}

/* Of these two ranks this is said, as rank 0 and 1. Frees them. */
static void
expect_of(struct rank_place *p, int n, const char *wanted)
{
	struct buf out = {0};
	struct verdicts found = verdict_find(p, n, 0.1);

	for (size_t i = 0; i < found.n; i++)
		buf_addf(&out, "%s\n", found.list[i].text);
	verdict_free_all(&found);
	CHECK_STR(out.n ? out.p : "", wanted);
	buf_free(&out);
	for (int i = 0; i < n; i++)
		verdict_free(&p[i]);
}

/* The first verdict on these two ranks, as "KIND RANK waits=RANK OPERATION NUMBER". Frees them. */
static void
expect_fields(struct rank_place a, struct rank_place b, const char *wanted)
{
	struct rank_place p[] = {a, b};
	struct buf out = {0};
	struct verdicts found = verdict_find(p, 2, 0.1);
	const struct verdict *v = found.list;

	if (found.n)
		buf_addf(&out, "%s %d waits=%d %s %u", verdict_kinds[v->kind],
		    v->n ? v->ranks[0] : -1, v->waiting_n ? v->waiting[0] : -1, v->op->name,
		    v->op->number);
	verdict_free_all(&found);
	CHECK_STR(out.n ? out.p : "", wanted);
	buf_free(&out);
	for (int i = 0; i < 2; i++)
		verdict_free(&p[i]);
}

static void
expect(struct rank_place a, struct rank_place b, const char *wanted)
{
	expect_of((struct rank_place[]){a, b}, 2, wanted);
}

/* In all_reduce 2 by what torch records. */
static struct rank_place
waiter(void)
{
	return at(0, "all_reduce", "t.py:4", CELL WORLD("own", 2) REDUCE WORLD("gloo", 2) REDUCE);
}

/* The same by what the engine counts. */
static struct rank_place
counter(void)
{
	return at(0, "all_reduce", "t.py:4", CELL WORLD("own", 2) REDUCE);
}

static void
test_late(void)
{
	struct rank_place p;

	expect(waiter(), at(1, "-", "t.py:9", CELL BOTH(1)),
	    "rank 1 is in no collective (t.py:9); rank 0 waits for it in all_reduce 2 (t.py:4)\n");
	expect(counter(), at(1, "-", "t.py:9", CELL WORLD("own", 1)),
	    "rank 1 is in no collective (t.py:9); rank 0 waits for it in all_reduce 2 (t.py:4)\n");
	p = at(1, "-", "-", CELL BOTH(1));
	p.state = PLACE_ENDED;
	p.program = true;
	expect(waiter(), p,
	    "rank 1 has ended its program; rank 0 waits for it in all_reduce 2 (t.py:4)\n");
	p = at(1, "-", "-", CELL BOTH(1));
	p.state = PLACE_ENDED;
	p.failed = true;
	expect(waiter(), p,
	    "rank 1 has failed in its part of the cell; rank 0 waits for it in all_reduce 2 "
	    "(t.py:4)\n");
	p = at(1, "-", "-", "");
	p.state = PLACE_LOST;
	expect(counter(), p, "rank 1 was lost; rank 0 is in all_reduce 2 (t.py:4)\n");
	/* it runs no cell, and counts in another one: its numbers say nothing */
	for (int other = 0; other < 2; other++) {
		p = at(1, "-", "-", other ? "cell 6\nmain S\n" WORLD("own", 2) REDUCE : "");
		p.state = PLACE_NO_CELL;
		p.cell = 0;
		expect(counter(), p, "rank 1 runs no cell; rank 0 is in all_reduce 2 (t.py:4)\n");
	}
	/* C code holds the GIL: only the count of completed calls is known */
	p = at(1, "-", "t.py:9", "");
	p.calls = 1;
	expect(counter(), p,
	    "rank 1 is in no collective (t.py:9); rank 0 waits for it in all_reduce 2 (t.py:4)\n");
}

/* A rank that a debugger has stopped in cell 7. */
static struct rank_place
stopped(int rank, const char *line)
{
	struct rank_place p = at(rank, "-", line, CELL BOTH(1));

	p.state = PLACE_DEBUGGED;
	return p;
}

/* Ranks that a debugger has stopped, for which another one may wait. */
static void
test_debugged(void)
{
	struct rank_place p = at(1, "-", "<cell 7>:3", CELL BOTH(1));

	p.state = PLACE_DEBUGGED;
	p.cell = 7;
	expect(waiter(), p, "rank 1 is stopped in the debugger at line 3\n");
	p = at(1, "-", "t.py:3", CELL BOTH(1));
	p.state = PLACE_DEBUGGED;
	expect(waiter(), p, "rank 1 is stopped in the debugger (t.py:3)\n");
	expect(stopped(0, "<cell 7>:3"), stopped(1, "<cell 7>:3"),
	    "ranks 0,1 are stopped in the debugger at line 3\n");
	expect(stopped(0, "<cell 7>:3"), stopped(1, "<cell 7>:4"),
	    "rank 0 is stopped in the debugger at line 3\n"
	    "rank 1 is stopped in the debugger at line 4\n");
}

/* What programs get instead of the sentences. */
static void
test_fields(void)
{
	struct rank_place p = at(1, "-", "-", CELL BOTH(1));

	p.state = PLACE_ENDED;
	expect_fields(waiter(), at(1, "-", "t.py:9", CELL BOTH(1)), "late 1 waits=0 all_reduce 2");
	expect_fields(waiter(), p, "late 1 waits=0 all_reduce 2");
	p = at(1, "-", "-", "");
	p.state = PLACE_NO_CELL;
	p.cell = 0;
	expect_fields(counter(), p, "away 1 waits=0 all_reduce 2");
	expect_fields(waiter(), at(1, "all_reduce", "t.py:9", CELL BOTH(2) REDUCE),
	    "entered -1 waits=0 all_reduce 2");
}

/* Python has no word, as C code holds the GIL: torch's recorders have. */
static void
test_held(void)
{
	struct rank_place p;

	expect(at(0, "all_reduce", "t.py:4",
		   CELL "group a own 1 0-1\n" OP(1, "all_reduce", "4 float32",
		       0) "group a gloo 1 0-1\n" OP(1, "all_reduce", "4 float32", 0)),
	    at(1, "-", "t.py:9", "main R\ngroup a gloo 0 0-1\n"),
	    "rank 1 is in no collective (t.py:9); rank 0 waits for it in all_reduce 1 (t.py:4)\n");
	expect(waiter(), at(1, "-", "t.py:9", "main R\n" WORLD("gloo", 2) REDUCE "main R\n"),
	    "all ranks have entered all_reduce 2 (t.py:4): look at the GPUs or the network\n");
	/* so much that nothing is left of this group */
	p = at(1, "-", "t.py:9", "main R\ngroup 0 lost 0 0-1\n");
	p.calls = 2;
	expect(waiter(), p, "");
	p = at(1, "-", "t.py:9", "main R\n");
	p.calls = 1;
	expect(counter(), p,
	    "rank 1 is in no collective (t.py:9); rank 0 waits for it in all_reduce 2 (t.py:4)\n");
}

#define ON_GPU CELL WORLD("own", 2) OP(2, "all_reduce", "4 float32", 1) WORLD("nccl", 2)

/* Python goes on while NCCL waits. */
static void
test_gpu(void)
{
	struct rank_place p = at(0, "-", "t.py:4", ON_GPU REDUCE), q;

	expect(p, at(1, "-", "t.py:9", CELL WORLD("own", 1) WORLD("nccl", 1)),
	    "rank 1 is in no collective (t.py:9); all_reduce 2 of rank 0 waits for it (t.py:4)\n");
	q = at(1, "-", "-", "");
	q.state = PLACE_ENDED;
	expect(at(0, "-", "t.py:4", ON_GPU REDUCE), q,
	    "rank 1 has ended its part of the cell; all_reduce 2 of rank 0 has not ended "
	    "(t.py:4)\n");
	expect(at(0, "-", "t.py:4", ON_GPU REDUCE),
	    at(1, "-", "t.py:9", ON_GPU OP(2, "broadcast", "4 float32", 0)),
	    "different operations: rank 1 has entered broadcast 2 (t.py:9), rank 0 all_reduce 2 "
	    "(t.py:4)\n");
	expect(at(0, "-", "t.py:4", ON_GPU REDUCE), at(1, "-", "t.py:9", ON_GPU REDUCE),
	    "all ranks have entered all_reduce 2: look at the GPUs or the network\n");
	/* it may be behind what the GPU computes */
	expect(at(0, "-", "t.py:4", ON_GPU "op 2 all_reduce 4 float32 0 9.0\n"),
	    at(1, "-", "t.py:9", ON_GPU REDUCE), "");
	expect(at(0, "-", "t.py:4", ON_GPU "op 2 all_reduce 4 float32 0 0.5\n"),
	    at(1, "-", "t.py:9", CELL WORLD("own", 1) WORLD("nccl", 1)), "");
	/* Python is in something else, which has not started it */
	p = at(0, "barrier", "t.py:5", ON_GPU REDUCE);
	p.seconds = 20;
	expect(p, at(1, "-", "t.py:9", CELL WORLD("own", 1) WORLD("nccl", 1)),
	    "rank 1 is in no collective (t.py:9); all_reduce 2 of rank 0 waits for it (t.py:5)\n");
}

static void
test_silent(void)
{
	struct rank_place p, q = waiter();

	/* it has passed, is in another cell, has not answered, or is not known to wait */
	expect(waiter(), at(1, "-", "t.py:9", CELL BOTH(70)), "");
	expect(counter(), at(1, "-", "t.py:9", "cell 6\nmain S\n" WORLD("own", 1)), "");
	p = at(1, "-", "t.py:9", "");
	p.calls = 2;
	expect(counter(), p, "");
	p = at(1, "-", "-", "");
	p.state = PLACE_UNKNOWN;
	expect(waiter(), p, "");
	q.seconds = 0.05; /* since the ranks were asked */
	expect(q, at(1, "-", "t.py:9", CELL BOTH(1)), "");
	expect(
	    at(0, "recv", "t.py:4", CELL BOTH(2) REDUCE), at(1, "-", "t.py:9", CELL BOTH(1)), "");
	/* no member */
	expect(at(0, "all_reduce", "t.py:4",
		   CELL "group 1 gloo 1 0,2-5\n" OP(1, "all_reduce", "4 float32", 0)),
	    at(1, "-", "t.py:9", CELL BOTH(1)), "");
	/* a description that breaks off is none */
	expect(at(0, "all_reduce", "t.py:4", CELL WORLD("own", 2) REDUCE "group 0"),
	    at(1, "-", "t.py:9", CELL BOTH(1)), "");
}

static void
test_different(void)
{
	struct rank_place both[2];

	expect(waiter(),
	    at(1, "barrier", "t.py:9", CELL WORLD("gloo", 2) OP(2, "barrier", "-1 -", 0)),
	    "different operations: rank 1 has entered barrier 2, rank 0 all_reduce 2 (t.py:4)\n");
	expect(waiter(),
	    at(1, "barrier", "t.py:9",
		CELL WORLD("own", 2) OP(2, "barrier", "-1 -", 0) WORLD("gloo", 2)
		    OP(2, "barrier", "-1 -", 0)),
	    "different operations: rank 1 has entered barrier 2 (t.py:9), rank 0 all_reduce 2 "
	    "(t.py:4)\n");
	expect(waiter(),
	    at(1, "all_reduce", "t.py:9", CELL BOTH(2) OP(2, "all_reduce", "8 float32", 0)),
	    "different sizes: rank 1 has entered all_reduce 2 of 8 float32 (t.py:9), rank 0 "
	    "all_reduce 2 of 4 "
	    "float32 (t.py:4)\n");
	expect(waiter(),
	    at(1, "all_reduce", "t.py:9", CELL BOTH(2) OP(2, "all_reduce", "4 int32", 0)),
	    "different types: rank 1 has entered all_reduce 2 of 4 int32 (t.py:9), rank 0 "
	    "all_reduce 2 of 4 "
	    "float32 (t.py:4)\n");
	/* the call that the user has written is named, whichever rank makes it */
	for (int swapped = 0; swapped < 2; swapped++) {
		both[swapped] = at(0, "backward", "t.py:4", CELL BOTH(2) REDUCE);
		both[!swapped] =
		    at(1, "barrier", "t.py:9", CELL BOTH(2) OP(2, "barrier", "-1 -", 0));
		expect_of(both, 2,
		    "rank 1 is in barrier (t.py:9); rank 0 waits for it in all_reduce 2 of "
		    "backward (t.py:4)\n");
	}
}

static void
test_entered(void)
{
	struct rank_place p;

	expect(waiter(), at(1, "all_reduce", "t.py:9", CELL BOTH(2) REDUCE),
	    "all ranks have entered all_reduce 2: look at the GPUs or the network\n");
	expect(at(0, "reduce", "t.py:4", CELL BOTH(2) OP(2, "reduce", "4 float32", 0)),
	    at(1, "reduce", "t.py:4", CELL BOTH(2) OP(2, "reduce", "4 float32", 0)),
	    "all ranks have entered reduce 2 (t.py:4): look at the source or destination that each "
	    "gives, the GPUs or the network\n");
	/* what ended its part may have been an error in the operation */
	p = at(1, "-", "-", CELL BOTH(2) REDUCE);
	p.state = PLACE_ENDED;
	p.failed = true;
	expect(waiter(), p,
	    "rank 1 has failed in its part of the cell; rank 0 is in all_reduce 2 (t.py:4)\n");
	/* not if it is under way: the last one has come just now */
	expect(waiter(),
	    at(1, "all_reduce", "t.py:9", CELL BOTH(2) "op 2 all_reduce 4 float32 0 0.2\n"), "");
	expect(counter(), at(1, "all_reduce", "t.py:9", "cell 6\nmain S\n" WORLD("own", 2) REDUCE),
	    "");
}

/* Only some of the ranks are members. */
static void
test_some(void)
{
#define SOME CELL "group 1 own 0 0,2\ngroup 1 gloo 1 0,2\n" OP(1, "all_reduce", "4 float32", 0)
	struct rank_place p[3];

	for (int i = 0; i < 3; i++)
		p[i] = i == 1 ? at(i, "-", "t.py:9", CELL) : at(i, "wait", "t.py:4", SOME);
	expect_of(p, 3,
	    "ranks 0,2 have all entered all_reduce 1 (t.py:4): look at the GPUs or the network\n");
	for (int i = 0; i < 3; i++)
		p[i] = i == 1 ? at(i, "-", "t.py:9", CELL)
			      : at(i, "wait", i ? "t.py:5" : "t.py:4", SOME);
	expect_of(
	    p, 3, "ranks 0,2 have all entered all_reduce 1: look at the GPUs or the network\n");
}

/* Several ranks wait: at one line, at several, and in something else that has started it. */
static void
test_waiters(void)
{
#define OF_THREE(source, entered) "group 0 " source " " #entered " 0-2\n"
#define IN_TWO CELL OF_THREE("own", 0) OF_THREE("gloo", 2) REDUCE
	static const char *const in[] = {"wait", "wait", "backward"};
	static const char *const line[] = {"t.py:4", "t.py:5", "t.py:5"};
	static const char *const wanted[] = {
	    "rank 2 is in no collective (t.py:9); ranks 0,1 wait for it in all_reduce 2 (t.py:4)\n",
	    "rank 2 is in no collective (t.py:9); ranks 0,1 wait for it in all_reduce 2\n",
	    "rank 2 is in no collective (t.py:9); ranks 0,1 wait for it in all_reduce 2\n"};

	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		struct rank_place p[] = {at(0, "wait", "t.py:4", IN_TWO),
		    at(1, in[i], line[i], IN_TWO), at(2, "-", "t.py:9", CELL OF_THREE("gloo", 1))};

		expect_of(p, 3, wanted[i]);
	}
}

/* A backward computes, and its operations may run beside that. */
static void
test_backward(void)
{
	struct rank_place p = at(0, "backward", "t.py:4", CELL BOTH(2) REDUCE);

	expect(p, at(1, "-", "t.py:9", CELL BOTH(1)),
	    "rank 1 is in no collective (t.py:9); rank 0 waits for it in all_reduce 2 of backward "
	    "(t.py:4)\n");
	/* a thread is in it: where the main thread is says nothing of that */
	p = at(0, "all_reduce", "t.py:4", "cell 7\naside R\n" BOTH(2) REDUCE);
	expect(p, at(1, "-", "t.py:9", CELL BOTH(1)),
	    "rank 1 is in no collective (t.py:9); rank 0 waits for it in all_reduce 2\n");
	p = at(0, "backward", "t.py:4", "cell 7\nmain R\n" BOTH(2) REDUCE);
	expect(p, at(1, "-", "t.py:9", CELL BOTH(1)), "");
	p = at(0, "backward", "t.py:4", CELL BOTH(2) REDUCE);
	p.innermost = false;
	expect(p, at(1, "-", "t.py:9", CELL BOTH(1)), "");
	p = at(0, "backward", "t.py:4", CELL BOTH(2) REDUCE);
	p.seconds = 20; /* the operation is older */
	expect(p, at(1, "-", "t.py:9", CELL BOTH(1)), "");
}

/* Rank 0 waits for rank 1, and that one for rank 2, which is the one to look at. */
static void
test_chain(void)
{
	struct rank_place p[3] = {
	    at(0, "all_reduce", "t.py:4",
		CELL "group a own 1 0-1\n" OP(1, "all_reduce", "4 float32", 0)),
	    at(1, "broadcast", "t.py:5",
		CELL "group a own 0 0-1\ngroup b own 1 1-2\n" OP(1, "broadcast", "4 float32", 0)),
	    at(2, "-", "t.py:6", CELL "group b own 0 1-2\n"),
	};

	expect_of(p, 3,
	    "rank 2 is in no collective (t.py:6); rank 1 waits for it in broadcast 1 (t.py:5)\n"
	    "rank 1 is in broadcast of another group (t.py:5); rank 0 waits for it in all_reduce 1 "
	    "(t.py:4)\n");
}

/* One rank of many is late, and one is in a group that has not all of them. */
static void
test_many(void)
{
	enum { N = 600 };

	static const char described[] =
	    CELL "group 0 own 2 0-598\n" REDUCE "group 0 gloo 2 0-598\n" REDUCE;
	struct rank_place *p = xcalloc(N, sizeof(*p));

	for (int i = 0; i < N - 1; i++)
		p[i] = at(i, "all_reduce", "t.py:4", described);
	verdict_free(&p[597]);
	p[597] = at(597, "-", "t.py:9", CELL "group 0 own 1 0-598\ngroup 0 gloo 1 0-598\n");
	p[N - 1] = at(N - 1, "-", "t.py:9", CELL);
	expect_of(p, N,
	    "rank 597 is in no collective (t.py:9); ranks 0-596,598 wait for it in all_reduce 2 "
	    "(t.py:4)\n");
	free(p);
}

int
main(void)
{
	test_late();
	test_debugged();
	test_fields();
	test_held();
	test_gpu();
	test_silent();
	test_different();
	test_entered();
	test_some();
	test_waiters();
	test_backward();
	test_chain();
	test_many();
	return CHECK_DONE();
}
