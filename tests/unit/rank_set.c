#include "group/rank_set.h"
#include "check.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_PRINTS(set, text)                                                                    \
	do {                                                                                       \
		struct buf b = {0};                                                                \
                                                                                                   \
		rank_set_print((set), &b);                                                         \
		CHECK_STR(b.n ? b.p : "", text);                                                   \
		buf_free(&b);                                                                      \
	} while (0)

/* Ranks at the ends of the words that hold their bits. */
static void
test_bits(void)
{
	static const int ranks[] = {0, 63, 64, 127, 200, MAX_RANKS - 1};
	struct rank_set s = {0};
	int i = 0;

	CHECK(rank_set_empty(&s) && rank_set_count(&s) == 0 && rank_set_next(&s, 0) == -1);
	for (i = 0; i < (int)ARRAY_LEN(ranks); i++)
		rank_set_add(&s, ranks[i]);
	rank_set_add(&s, 63); /* twice */
	CHECK(!rank_set_empty(&s) && rank_set_count(&s) == (int)ARRAY_LEN(ranks));
	i = 0;
	RANK_SET_EACH (rank, &s)
		CHECK(rank == ranks[i++]);
	CHECK(i == (int)ARRAY_LEN(ranks));
	CHECK(rank_set_has(&s, 64) && !rank_set_has(&s, 65) && !rank_set_has(&s, 62));
	CHECK(rank_set_next(&s, 65) == 127 && rank_set_next(&s, MAX_RANKS) == -1);
	CHECK_PRINTS(&s, "0,63,64,127,200,16383");
}

static void
check_list(const char *list, const char *printed)
{
	char *word = xstrdup(list);
	struct rank_set s;
	struct err e = {0};

	CHECK(rank_set_parse(&s, &word, 1, 100, &e) == 0);
	CHECK_PRINTS(&s, printed);
	free(word);
}

static void
check_refused(const char *list)
{
	char *word = xstrdup(list);
	struct rank_set s;
	struct err e = {0};

	CHECK(rank_set_parse(&s, &word, 1, 100, &e) == -EINVAL);
	CHECK(strstr(e.text, "out of 0..99"));
	free(word);
}

static void
test_lists(void)
{
	char one[] = "5", two[] = "0-1,3", three[] = "4", *words[] = {one, two, three};
	struct rank_set s;
	struct err e = {0};

	check_list("0", "0");
	check_list("2-3,0", "0,2,3");
	check_list("4,2,3,3", "2-4");
	check_list("0-99", "0-99");
	for (const char *const *bad = (const char *const[]){"", "x", "1,", ",1", "3-2", "1-", "100",
		 "-1", "99999999999999999999", "1 2", NULL};
	     *bad; bad++)
		check_refused(*bad);
	CHECK(rank_set_parse(&s, words, 3, 100, &e) == 0);
	CHECK_PRINTS(&s, "0,1,3-5");
	CHECK(rank_list_has("0,2-3", 3) && !rank_list_has("0,2-3", 1) && !rank_list_has("", 0));
}

int
main(void)
{
	test_bits();
	test_lists();
	return CHECK_DONE();
}
