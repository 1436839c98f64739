/* Splits a line of `ctl` into words. Knows no verbs. */
#include "base/words.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int
words_split(char *line, char **words, int max, struct err *e)
{
	char *in = line, *out;
	int n = 0;

	for (;;) {
		while (isspace((unsigned char)*in))
			in++;
		if (*in == '\0' || *in == '#')
			return n;
		if (n == max)
			return fail(e, EINVAL, "more than %d words in a line", max);
		words[n++] = out = in;
		while (*in && !isspace((unsigned char)*in)) {
			if (*in != '\'') {
				*out++ = *in++;
				continue;
			}
			for (in++; *in != '\'' || in[1] == '\''; in++) {
				if (*in == '\0')
					return fail(e, EINVAL, "a quote ' is not closed");
				if (*in == '\'')
					in++;
				*out++ = *in;
			}
			in++;
		}
		if (*in)
			in++;
		*out = '\0';
	}
}

void
words_print(const char *s, struct buf *out)
{
	if (*s && !strpbrk(s, " \t\n\v\f\r'#")) {
		buf_adds(out, s);
		return;
	}
	buf_addc(out, '\'');
	for (; *s; s++) {
		if (*s == '\'')
			buf_addc(out, '\'');
		buf_addc(out, *s);
	}
	buf_addc(out, '\'');
}

int
words_number(
    const char *name, const char *word, long long min, long long max, long long *v, struct err *e)
{
	long long number;
	char *end;

	errno = 0;
	number = strtoll(word, &end, 10);
	if (errno || end == word || *end || number < min || number > max)
		return fail(e, EINVAL, "%s: want a whole number %lld..%lld, not '%.80s'", name, min,
		    max, word);
	*v = number;
	return 0;
}
