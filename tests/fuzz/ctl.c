/* Fuzzes the lines of ctl: split into words, printed and split again, they give the same words. */
#include "base/words.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
read_numbers(const char *word)
{
	struct err e;
	long long v = 0;

	if (words_number("size", word, -5, 1LL << 40, &v, &e) == 0 && (v < -5 || v > 1LL << 40))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *line = malloc(size + 1), *again, *words[WORDS_MAX], *same[WORDS_MAX];
	struct buf printed = {0};
	struct err e;
	int n;

	memcpy(line, data, size);
	line[size] = '\0';
	n = words_split(line, words, WORDS_MAX, &e);
	if (n > WORDS_MAX || (n < 0 && !e.text[0]))
		abort();
	for (int i = 0; i < n; i++) {
		read_numbers(words[i]);
		words_print(words[i], &printed);
		buf_addc(&printed, i % 2 ? ' ' : '\t');
	}
	again = xstrdup(n > 0 ? printed.p : "");
	if (n >= 0 && words_split(again, same, WORDS_MAX, &e) != n)
		abort();
	for (int i = 0; i < n; i++)
		if (strcmp(words[i], same[i]) != 0)
			abort();
	buf_free(&printed);
	free(again);
	free(line);
	return 0;
}
