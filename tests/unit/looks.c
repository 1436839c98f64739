/* Tests of fs/group/looks.c: where ranks are said to be mostly, and when that is only seen, or not
 * said. */
#include "check.h"
#include "group/looks.h"
#include <stdlib.h>

#define HEAD "Stack (most recent call first):\n"
#define MAIN "  File \"t.py\", line 57 in main\n  File \"t.py\", line 78 in <module>\n"
#define LOAD(n) HEAD "  File \"t.py\", line " #n " in load\n" MAIN "\n"
#define HELP HEAD "  File \"h.py\", line 3 in help\n" MAIN "\n"

/* What is said after each stack was seen so many times; NULL ends them. */
struct seen {
	const char *stack;
	int n;
};

static void
expect(const char *wanted, const struct seen *seen)
{
	struct looks l = {0};
	struct buf b = {0}, out = {0};

	for (; seen->stack; seen++)
		for (int i = 0; i < seen->n; i++)
			buf_adds(&b, seen->stack);
	looks_read(&l, (struct slice){b.p, b.n});
	looks_sort(&l);
	looks_print(&l, "mostly", &out);
	CHECK_STR(out.n ? out.p : "", wanted);
	looks_free(&l);
	buf_free(&b);
	buf_free(&out);
}

#define EXPECT(wanted, ...) expect(wanted, (const struct seen[]){__VA_ARGS__, {NULL, 0}})

static void
test_line(void)
{
	EXPECT("mostly at t.py:41 load(), 18 of 20 looks", {LOAD(40), 2}, {LOAD(41), 18});
	EXPECT("mostly at t.py:41 load(), 4 of 4 looks", {LOAD(41), 4});
	EXPECT("mostly at t.py:57 main(), 9 of 9 looks", {HEAD MAIN, 9});
	/* what is of no user's does not count, nor a frame below it */
	EXPECT("mostly at t.py:57 main(), 5 of 5 looks",
	    {HEAD "  File \"/v/site-packages/torch/x.py\", line 8 in f\n" MAIN, 5},
	    {HEAD "  File \"<ddip_engine rank>\", line 1 in next\n", 30}, {HEAD "\n\n", 2});
	/* a comprehension is a part of its function; the code of a module is none */
	EXPECT("mostly at t.py:40 load(), 6 of 6 looks", {LOAD(40), 3},
	    {HEAD "  File \"t.py\", line 40 in <listcomp>\n  File \"t.py\", line 40 in load\n" MAIN,
		3});
	/* a lambda stands where it was written */
	EXPECT("mostly at t.py:5 <lambda>(), 6 of 6 looks",
	    {HEAD "  File \"t.py\", line 5 in <lambda>\n  File \"t.py\", line 40 in load\n" MAIN,
		6});
	EXPECT(
	    "mostly at t.py:78, 6 of 6 looks", {HEAD "  File \"t.py\", line 78 in <module>\n", 6});
	/* one that was cut off */
	EXPECT("mostly at t.py:41 load(), 5 of 5 looks", {LOAD(41), 5},
	    {HEAD "  File \"/v/site-packages/a.py\", line\n", 1});
}

static void
test_two_lines(void)
{
	EXPECT("mostly at t.py:40 or :41 load(), 10 and 9 of 20 looks", {LOAD(40), 10},
	    {LOAD(41), 9}, {HEAD MAIN, 1});
	EXPECT("mostly at t.py:41 load() or h.py:3 help(), 11 and 9 of 20 looks", {HELP, 9},
	    {LOAD(41), 11});
}

static void
test_function(void)
{
	EXPECT("mostly at t.py:40-43 load(), 18 of 20 looks", {LOAD(43), 6}, {LOAD(41), 6},
	    {LOAD(40), 6}, {HELP, 2});
}

static void
test_nothing_certain(void)
{
	EXPECT("", {HEAD, 1});
	EXPECT("", {LOAD(41), 3});
	EXPECT("", {LOAD(41), 3}, {LOAD(40), 1}, {HEAD MAIN, 1}, {HELP, 1});
	EXPECT("", {LOAD(41), 4}, {HEAD MAIN, 3}, {HELP, 3}, {LOAD(40), 1},
	    {HEAD "  File \"o.py\", line 1 in o\n", 3}, {HEAD "  File \"o.py\", line 2 in o\n", 3});
	/* one look tells nothing of a second line */
	EXPECT("", {LOAD(41), 14}, {HEAD MAIN, 1}, {HELP, 1},
	    {HEAD "  File \"o.py\", line 1 in o\n", 1}, {HEAD "  File \"o.py\", line 2 in p\n", 1},
	    {HEAD "  File \"o.py\", line 3 in q\n", 1}, {HEAD "  File \"o.py\", line 4 in r\n", 1});
	EXPECT("seen at t.py:41 load() or :57 main(), 4 and 3 of 9 looks", {LOAD(41), 4},
	    {HEAD MAIN, 3}, {HELP, 2});
}

int
main(void)
{
	test_line();
	test_two_lines();
	test_function();
	test_nothing_certain();
	return CHECK_DONE();
}
