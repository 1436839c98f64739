/* Reports stay short, are UTF-8 and valid JSON, whatever ranks say; and what they are made of. */
#include "base/json.h"
#include "base/plain.h"
#include "fake_agent.h"
#include "group/alike.h"
#include "group/queue.h"
#include "group/report.h"
#include <stdlib.h>
#include <string.h>

enum { RANKS = 12, ROUNDS = 300, LONG = 1500 };

static unsigned seed = 1;

/* text: a literal, which may have NUL bytes. */
#define CLIP(text, max, one_line, expected)                                                        \
	check_clip((struct slice){text, sizeof(text) - 1}, max, one_line, expected)

static void
check_clip(struct slice text, size_t max, bool one_line, const char *expected)
{
	struct buf b = {0};

	plain_clip(&b, text, max, one_line);
	CHECK_STR(b.n ? b.p : "", expected);
	CHECK(b.n <= max);
	buf_free(&b);
}

static void
test_plain(void)
{
	CLIP("plain", 10, true, "plain");
	CLIP("plain", 5, true, "plain");
	CLIP("plain text", 8, true, "plain…");
	CLIP("a\nb\tc", 10, true, "a b c");
	CLIP("a\nb", 10, false, "a\nb");
	CLIP("\033[1;31mred\033[0m \033]0;title\ax\033]8;;u\033\\y\033c!", 20, true, "red xy!");
	CLIP("\033[", 20, true, "");
	CLIP("\033", 20, true, "");
	CLIP("a\xff\0b", 20, true,
	    "a\xef\xbf\xbd"
	    "b");
	CLIP("ééééé", 8, true, "éé…");
	CLIP("ééé", 6, true, "ééé");
}

static void
test_alike(void)
{
	static const int ranks[] = {0, 1, 2, 3, 7, 8, 9, 11};
	static const char *const texts[] = {"a", "b", "b", "b", "a", "b", "a", "b"};
	struct alike t[8], *first[8];
	struct buf b = {0};

	for (int i = 0; i < 8; i++)
		t[i] = (struct alike){texts[i], i, 0};
	CHECK(alike_sets(t, 8, first) == 2);
	alike_ranks(first[0], ranks, &b);
	buf_addc(&b, ' ');
	alike_ranks(first[1], ranks, &b);
	CHECK_STR(b.p, "0,7,9 1-3,8,11");
	CHECK(alike_sets(t, 0, first) == 0);
	buf_free(&b);
}

/* Does it have balanced brackets outside of strings, one line, and UTF-8 only? */
static bool
is_json_line(const struct buf *b)
{
	int depth = 0;
	bool inside = false;

	for (size_t i = 0, n; i < b->n; i += n) {
		n = json_character(b->p + i, b->n - i);
		if (n == 0)
			return false;
		if (inside && b->p[i] == '\\')
			n = 2;
		else if (b->p[i] == '"')
			inside = !inside;
		else if (!inside && strchr("[{", b->p[i]))
			depth++;
		else if (!inside && strchr("]}", b->p[i]))
			depth--;
		if ((b->p[i] == '\n') != (i + 1 == b->n) || depth < 0)
			return false;
	}
	return depth == 0 && !inside;
}

/* A text that is hard to show, of any length. */
static const char *
noise(struct buf *b)
{
	static const char *const words[] = {"frame ", "cause ", "note ", "set ", "gone ",
	    "figures 9", "peak_bytes 1e9", "\n", "\t", "\xff", "é", "\xf0\x9f\x98\x80", "\033[3",
	    "\"", "\\", "rank 3: ", "x", "\r", "\x01"};
	int n = rand_r(&seed) % 4 == 0 ? LONG : rand_r(&seed) % 60;

	buf_clear(b);
	for (int i = 0; i < n; i++)
		buf_adds(b, words[(size_t)rand_r(&seed) % ARRAY_LEN(words)]);
	return b->n ? b->p : "";
}

static void
end_cell(struct cell *c)
{
	struct buf b[5] = {{0}};

	for (int i = 0; i < c->n; i++) {
		bool same = rand_r(&seed) % 2;

		for (size_t k = 0; k < ARRAY_LEN(b) && (i == 0 || !same); k++)
			noise(&b[k]);
		fake_answer(fake_take(Trun, c->ranks[i]), Rrun,
		    (uint32_t)(rand_r(&seed) % OUT_COUNT), fake_slice(b[0].n ? b[0].p : ""),
		    fake_slice(b[1].n ? b[1].p : ""), fake_slice(b[2].n ? b[2].p : ""),
		    fake_slice(""), fake_slice(b[3].n ? b[3].p : ""), (uint32_t)0, (uint64_t)0,
		    (uint64_t)0, (uint64_t)0, (uint64_t)0);
	}
	for (size_t k = 0; k < ARRAY_LEN(b); k++)
		buf_free(&b[k]);
}

/* Ranks that say anything. */
static void
test_bounds(void)
{
	struct group *g = fake_begin(RANKS);
	size_t longest = 0;

	for (int i = 0; i < ROUNDS; i++) {
		struct cell *c = cell_ref(fake_cell(g, "x", 0, NULL));
		struct buf text = {0}, data = {0};

		end_cell(c);
		CHECK(c->w->done);
		report_print(c, NULL, false, &text);
		report_print(c, NULL, true, &data);
		CHECK(text.n <= REPORT_TEXT_MAX && data.n <= REPORT_JSON_MAX);
		CHECK(is_json_line(&data));
		for (size_t k = 0, n; k < text.n; k += MAX(n, (size_t)1)) {
			n = json_character(text.p + k, text.n - k);
			CHECK(n > 0);
		}
		longest = MAX(longest, text.n);
		buf_free(&text);
		buf_free(&data);
		cell_unref(c);
	}
	CHECK(longest > REPORT_TEXT_MAX / 2); /* the bound was reached for */
	fake_end();
}

static void
test_words(void)
{
	struct group *g = fake_begin(2);
	struct cell *c = fake_cell(g, "x", 0, NULL);
	struct buf b = {0};

	fake_answer(fake_take(Trun, 1), Rrun, (uint32_t)OUT_RAISED, fake_slice(""),
	    fake_slice("ValueError: bad"), fake_slice("trace"), fake_slice(""),
	    fake_slice("frame /a/b.py:3\tmain\tf(x)\ncause KeyError: 'k'\nset x y\npeak_bytes "
		       "1024\nfigures 1\n"),
	    (uint32_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0);
	report_print(c, NULL, false, &b); /* why it has failed is known before it ends */
	CHECK(strstr(b.p, "state running\nerrno EREMOTEIO\n") &&
	      strstr(b.p, "\nrank 1\nerror ValueError: bad\n"));
	buf_clear(&b);
	fake_answer(fake_take(Trun, 0), Rrun, (uint32_t)OUT_OK, fake_slice("5"), fake_slice(""),
	    fake_slice(""), fake_slice(""), fake_slice("set x y\npeak_bytes 4096\nfigures -3\n"),
	    (uint32_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0);
	CHECK(report_figures(&c->w->subtasks[0]) == 0 && report_figures(&c->w->subtasks[1]) == 1);
	report_print(c, NULL, false, &b);
	CHECK_STR(b.p, "cell 1\nstate error\nerrno EREMOTEIO\nranks 0,1\nseconds 0.000\nrank 1\n"
		       "error ValueError: bad\nfrom KeyError: 'k'\nat /a/b.py:3 main: f(x)\n"
		       "see cells/1/traceback\nsee cells/1/rank1/locals\nsee cells/1/rank1/stdout\n"
		       "result 0: 5\nfigure cells/1/rank1/figure1.png\nset 0,1: x y\n"
		       "peak_bytes 4096\n");
	buf_free(&b);
	fake_end();
}

/* What is left out, and where it is: here results of ranks that differ. */
static void
test_left_out(void)
{
	struct group *g = fake_begin(RANKS);
	struct cell *c = fake_cell(g, "x", 0, NULL);
	struct buf b = {0};
	char value[2] = {0};

	for (int i = 0; i < RANKS; i++) {
		*value = (char)('a' + i);
		fake_answer(fake_take(Trun, i), Rrun, (uint32_t)OUT_OK, fake_slice(value),
		    fake_slice(""), fake_slice(""), fake_slice(""),
		    fake_slice(i ? "" : "figures 6\n"), (uint32_t)0, (uint64_t)0, (uint64_t)0,
		    (uint64_t)0, (uint64_t)0);
	}
	report_print(c, NULL, false, &b);
	CHECK(strstr(b.p, "\nleft_out result of 3 and 8 more: cells/1/result\n"
			  "left_out figure and 1 more: cells/1/rank0/figure5.png\n"));
	buf_clear(&b);
	report_print(c, NULL, true, &b);
	CHECK(strstr(b.p,
	    ",\"left_out\":[{\"what\":\"result of 3 and 8 more\",\"see\":\"cells/1/result\"},"
	    "{\"what\":\"figure and 1 more\",\"see\":\"cells/1/rank0/figure5.png\"}]}\n"));
	CHECK(is_json_line(&b));
	buf_free(&b);
	fake_end();
}

int
main(void)
{
	test_left_out();
	test_plain();
	test_alike();
	test_words();
	test_bounds();
	return CHECK_DONE();
}
