/* Tests of fs/group/said.c: what the ranks hold alike, and what differs. */
#include "check.h"
#include "group/said.h"

/* What is said of ranks 4, 5 … that say these lines: the ranks and what is common to them, then
 * each name that differs. */
static void
expect(const char *wanted, const char *const *said, int n)
{
	static const int rank[] = {4, 5, 6, 7, 8, 9};
	struct said_locals l = said_compare(said, rank, n);
	struct buf b = {0};

	buf_addf(&b, "%s: %s\n", l.ranks.n ? l.ranks.p : "", l.common.n ? l.common.p : "");
	for (int i = 0; i < l.n; i++)
		buf_addf(&b, "%s: %s\n", l.differing[i].name.p, l.differing[i].text.p);
	CHECK_STR(b.p, wanted);
	buf_free(&b);
	said_free(&l);
}

#define EXPECT(wanted, ...)                                                                        \
	do {                                                                                       \
		const char *const said_[] = {__VA_ARGS__};                                         \
		expect(wanted, said_, (int)ARRAY_LEN(said_));                                      \
	} while (0)

int
main(void)
{
	EXPECT(": \n", "");
	EXPECT(": \n", "where main() at t.py:1\nlocal broken\nlocals x\t1\n");
	EXPECT("4: epoch=1 lr=0.1\n", "local lr\t0.1\nwhere here\nlocal epoch\t1");
	EXPECT("4: loss=nan epoch=1\n", "local loss\tnan\nlocal epoch\t1");
	EXPECT("4,5: epoch=1\nloss: nan on 5, 0.5 on 4\ni: 3 on 4\n",
	    "local epoch\t1\nlocal i\t3\nlocal loss\t0.5\n", "local loss\tnan\nlocal epoch\t1\n");
	EXPECT("4,5: \n", "local rank\t4\n", "local rank\t5\n");
	/* a rank that says nothing does not differ */
	EXPECT("4,6: a='info'\n", "local a\t'info'\n", "", "local a\t'info'\n");
	EXPECT("4-9: \ny: 1 on 4,6,8, 2 on 5,7,9\nz: 1 on 4, 2 on 5, 3 on 6, 4 on 7, …\n",
	    "local z\t1\nlocal y\t1\n", "local z\t2\nlocal y\t2\n", "local z\t3\nlocal y\t1\n",
	    "local z\t4\nlocal y\t2\n", "local z\t5\nlocal y\t1\n", "local z\t6\nlocal y\t2\n");
	return CHECK_DONE();
}
