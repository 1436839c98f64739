/* Tests of engine/rank/flight.c: what torch's flight recorder says, as lines. */
#include "check.h"
#include "rank/flight.h"
#include <stdlib.h>

#define RECORD(id, number, group, name, more)                                                      \
	"{\"collective_seq_id\":" #number ",\"input_dtypes\":[\"Float\"],\"is_p2p\":false,"        \
	"\"input_sizes\":[[2,3],[4]],\"process_group\":[\"" group "\",\"it's \\\"}]\"],"           \
	"\"profiling_name\":\"" name "\",\"record_id\":" #id ",\"state\":\"scheduled\"," more      \
	"\"time_created_ns\":1000000000}"
#define DONE "\"retired\":true,"
#define TWO                                                                                        \
	"{\"version\":\"2.10\",\"entries\":[" RECORD(8, 3, "0", "gloo:_all gather",                \
	    "\"retired\":false,\"timeout_ms\":-1,") ", " RECORD(7, 2, "0", "gloo:all_reduce",      \
	    DONE) "],\"pg_config\":{\"\":{\"ranks\":\"[]\"}},\"last\":[[],{},null,-1.5e3]}"

static void
expect(const char *json, const char *groups, const char *wanted)
{
	struct buf out = {0};

	CHECK(flight_print(slice_text(json), slice_text(groups), "gloo", 3.5, &out));
	buf_addc(&out, '\0');
	CHECK_STR(out.p, wanted);
	buf_free(&out);
}

static void
test_groups(void)
{
	expect(TWO, "0 gloo 7 0-1\n",
	    "group 0 gloo 3 0-1\nop 2 all_reduce 10 float32 1 2.500000\n"
	    "op 3 all_gather 10 float32 0 2.500000\n");
	/* records of an earlier group of that name */
	expect(
	    TWO, "0 gloo 8 0-1\n", "group 0 gloo 3 0-1\nop 3 all_gather 10 float32 0 2.500000\n");
	/* nothing was recorded since, or what was is lost */
	expect(TWO, "1 gloo 9 0\n", "group 1 gloo 0 0\n");
	expect(TWO, "1 gloo 7 0\n", "group 1 gloo 0 0\n");
	expect(TWO, "1 gloo 6 0,2-5\n", "group 1 lost 0 0,2-5\n");
	expect("{}", "0 gloo 0 0-1\n0 nccl 0 0-1\n", "group 0 gloo 0 0-1\n");
	expect("{\"entries\":[" RECORD(0, 1, "0", "nccl:all_reduce_barrier", DONE) "]}",
	    "0 gloo 0 0\n", "group 0 gloo 1 0\nop 1 barrier 10 float32 1 2.500000\n");
	expect("{\"entries\":[{\"is_p2p\":true,\"process_group\":[\"0\",\"\"],\"record_id\":0}]}",
	    "0 gloo 0 0\n", "group 0 gloo 0 0\n");
	expect(TWO, "0 gloo\n\nx\n", "");
}

/* Whatever is said instead: nothing is read beyond the end. */
static void
test_others(void)
{
	static const char text[] = TWO;
	struct buf out = {0};

	for (size_t n = 0; n < sizeof(text) - 1; n++) {
		char *copy = xstrndup(text, n);

		CHECK(!flight_print(
		    (struct slice){copy, n}, slice_text("0 gloo 7 0-1\n"), "gloo", 3.5, &out));
		free(copy);
	}
	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		for (const char *c = "[]{},:\"\\0-a"; *c; c++) {
			char *copy = xstrdup(text);

			copy[i] = *c;
			flight_print(
			    slice_text(copy), slice_text("0 gloo 7 0-1\n"), "gloo", 3.5, &out);
			buf_clear(&out);
			free(copy);
		}
	}
	CHECK(out.n == 0);
	buf_free(&out);
}

int
main(void)
{
	test_groups();
	test_others();
	return CHECK_DONE();
}
