/* Writes arbitrary bytes as JSON strings. */
#include "base/json.h"
#include <stdint.h>

/* Length of a UTF-8 character with this lead byte; 0 if it is not a lead byte. */
static size_t
character_length(unsigned char c)
{
	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c < 0xe0)
		return 2;
	if (c >= 0xe0 && c < 0xf0)
		return 3;
	return c >= 0xf0 && c < 0xf5 ? 4 : 0;
}

size_t
json_character(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t len = character_length(p[0]);

	if (len == 0 || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
		return 0;
	return len;
}

size_t
json_whole(const char *p, size_t n)
{
	for (size_t back = 1; back <= 3 && back <= n; back++) {
		unsigned char c = (unsigned char)p[n - back];

		if ((c & 0xc0) == 0x80)
			continue;
		return character_length(c) > back ? n - back : n;
	}
	return n;
}

void
json_string(struct buf *b, const char *p, size_t n)
{
	static const char escapes[] = {
	    ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};

	buf_addc(b, '"');
	for (size_t i = 0; i < n;) {
		unsigned char c = (unsigned char)p[i];
		size_t len = json_character(p + i, n - i);

		if (len == 0) {
			buf_adds(b, "\\ufffd");
			i++;
		} else if (c == '"' || c == '\\') {
			buf_addc(b, '\\');
			buf_addc(b, p[i++]);
		} else if (c < 0x20) {
			if (c < sizeof(escapes) && escapes[c])
				buf_addf(b, "\\%c", escapes[c]);
			else
				buf_addf(b, "\\u%04x", c);
			i++;
		} else {
			buf_add(b, p + i, len);
			i += len;
		}
	}
	buf_addc(b, '"');
}
