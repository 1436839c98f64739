/* Tables of variables are sorted, searched and compared right, also with 10^5 names, with which
 * anything quadratic would not finish. */
#include "object/var_table.h"
#include "check.h"
#include <stdlib.h>

enum { MANY = 100000 };

static struct var_table *
table(const char *text)
{
	return var_table_new((struct slice){text, strlen(text)});
}

static void
check_name(const struct var_table *t, size_t i, const char *want)
{
	CHECK(i < var_table_count(t) && slice_eq(var_table_name(t, i), want));
}

static void
test_rows(void)
{
	static const char text[] = "a\tint\t-\t-\t-\t-\nab\tTensor\tfloat32\t3,4\t48\tcpu\nb\n";
	struct var_table *t = table(text);

	CHECK(var_table_count(t) == 3);
	check_name(t, 0, "a");
	check_name(t, 1, "ab");
	check_name(t, 2, "b");
	CHECK(slice_eq(var_table_row(t, 0), "a\tint\t-\t-\t-\t-"));
	CHECK(slice_eq(var_table_find(t, "ab"), "ab\tTensor\tfloat32\t3,4\t48\tcpu"));
	CHECK(slice_eq(var_row_column(var_table_find(t, "ab"), VAR_TYPE), "Tensor"));
	CHECK(slice_eq(var_row_column(var_table_find(t, "ab"), VAR_DEVICE), "cpu"));
	CHECK(slice_eq(var_row_column(var_table_find(t, "ab"), VAR_NAME), "ab"));
	CHECK(slice_eq(var_row_column(var_table_find(t, "b"), VAR_BYTES), ""));
	CHECK(slice_eq(var_table_find(t, "b"), "b"));
	CHECK(!var_table_find(t, "").p && !var_table_find(t, "aa").p && !var_table_find(t, "c").p);
	CHECK(var_table_is(t, (struct slice){text, sizeof(text) - 1}));
	CHECK(!var_table_is(t, (struct slice){text, sizeof(text) - 2}));
	var_table_unref(t);
}

/* Names that no file can have are left out; unsorted and duplicate names are put right. */
static void
test_disorder(void)
{
	struct var_table *t =
	    table("z\t1\n../x\t1\nb\t2\n\n\t\n9\t1\na b\t1\nb\t3\na\t4\n\303\251t\303\251\t5");

	CHECK(var_table_count(t) == 4);
	check_name(t, 0, "a");
	check_name(t, 1, "b");
	check_name(t, 2, "z");
	check_name(t, 3, "\303\251t\303\251");
	var_table_unref(t);
	t = table("");
	CHECK(var_table_count(t) == 0 && !var_table_find(t, "a").p);
	CHECK(var_table_is(t, (struct slice){NULL, 0}));
	var_table_unref(t);
	var_table_unref(NULL);
}

static void
tell(void *arg, bool in_b, struct slice name)
{
	buf_addf(arg, "%c%.*s ", in_b ? '+' : '-', (int)name.n, name.p);
}

static void
check_diff(const char *a, const char *b, const char *want)
{
	struct var_table *old = table(a), *new = table(b);
	struct buf told = {0};
	size_t n = 0;

	buf_adds(&told, "");
	CHECK(var_table_diff(old, new, tell, &told) == var_table_diff(old, new, NULL, NULL));
	for (const char *p = want; *p; p++)
		n += *p == ' ';
	CHECK(var_table_diff(old, new, NULL, NULL) == n);
	CHECK_STR(told.p, want);
	buf_free(&told);
	var_table_unref(old);
	var_table_unref(new);
}

static void
test_diff(void)
{
	check_diff("", "", "");
	check_diff("a\nb\n", "", "-a -b ");
	check_diff("", "a\nb\n", "+a +b ");
	check_diff("a\tint\nc\n", "a\tstr\nb\nd\n", "+b -c +d ");
	check_diff("a\nab\n", "ab\nabc\n", "-a +abc ");
}

static void
test_references(void)
{
	struct var_table *t = table("a\n"), *same = var_table_ref(t);

	var_table_unref(t);
	check_name(same, 0, "a");
	var_table_unref(same);
}

/* 0, 7, 14 … modulo MANY: each number once, in no order. */
static char *
many(bool sorted, size_t step)
{
	struct buf b = {0};

	for (size_t i = 0; i < MANY; i += step)
		buf_addf(&b, "v%06zu\tint\t-\t-\t-\t-\n", sorted ? i : i * 7 % MANY);
	return buf_take(&b);
}

static void
test_many(void)
{
	char *text[] = {many(true, 1), many(false, 1), many(true, 2)}, name[16];
	struct var_table *sorted = table(text[0]), *shuffled = table(text[1]),
			 *half = table(text[2]);
	size_t wrong = 0;

	CHECK(var_table_count(sorted) == MANY && var_table_count(shuffled) == MANY);
	for (size_t i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "v%06zu", i);
		wrong += !slice_eq(var_table_name(shuffled, i), name);
		wrong += var_table_find(sorted, name).n != strlen("v000000\tint\t-\t-\t-\t-");
		wrong += (var_table_find(half, name).p != NULL) != (i % 2 == 0);
	}
	CHECK(wrong == 0);
	CHECK(var_table_diff(sorted, shuffled, NULL, NULL) == 0);
	CHECK(var_table_diff(sorted, half, NULL, NULL) == MANY / 2);
	var_table_unref(sorted);
	var_table_unref(shuffled);
	var_table_unref(half);
	for (size_t i = 0; i < ARRAY_LEN(text); i++)
		free(text[i]);
}

int
main(void)
{
	test_rows();
	test_disorder();
	test_diff();
	test_references();
	test_many();
	return CHECK_DONE();
}
