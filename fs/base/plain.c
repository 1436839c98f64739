/* Texts that come from others, made fit to be shown. */
#include "base/plain.h"
#include "base/json.h"
#include <string.h>

#define ELLIPSIS "…"
#define REPLACEMENT "\xef\xbf\xbd"

/* The length of the escape sequence at p: CSI parameters and a letter, OSC up to BEL or ST, or a
 * single character. */
static size_t
escape_length(const char *p, size_t n)
{
	size_t i = 2;

	if (n < 2)
		return n;
	if (p[1] == '[') {
		while (i < n && strchr("0123456789:;<=>?!\"#$%&'()*+,-./ ", p[i]) && p[i])
			i++;
		i++;
	} else if (p[1] == ']') {
		while (i < n && p[i] != '\a' && p[i] != '\033')
			i++;
		i += i + 1 < n && p[i] == '\033' && p[i + 1] == '\\' ? 2 : 1;
	}
	return MIN(i, n);
}

void
plain_add(struct buf *out, struct slice s)
{
	for (size_t i = 0; i < s.n;) {
		unsigned char c = (unsigned char)s.p[i];

		if (c == '\033') {
			i += escape_length(s.p + i, s.n - i);
			continue;
		}
		if (c == '\n' || c == '\t' || (c >= ' ' && c != 0x7f))
			buf_addc(out, s.p[i]);
		i++;
	}
}

void
plain_clip(struct buf *out, struct slice s, size_t max, bool one_line)
{
	struct buf plain = {0};
	size_t start = out->n, fits = out->n, len;
	bool cut = s.n > 4 * max; /* whatever it is made of */

	s.n = MIN(s.n, 4 * max);
	plain_add(&plain, s);
	for (size_t i = 0; i < plain.n; i += MAX(len, (size_t)1)) {
		size_t room = max - (out->n - start);

		len = json_character(plain.p + i, plain.n - i);
		if (room < (len ? len : strlen(REPLACEMENT))) {
			cut = true;
			break;
		}
		if (len == 0)
			buf_adds(out, REPLACEMENT);
		else if (one_line && (plain.p[i] == '\n' || plain.p[i] == '\t'))
			buf_addc(out, ' ');
		else
			buf_add(out, plain.p + i, len);
		if (out->n - start + strlen(ELLIPSIS) <= max)
			fits = out->n;
	}
	if (cut) {
		out->n = fits;
		buf_adds(out, ELLIPSIS);
	}
	buf_free(&plain);
}

void
plain_clip_path(struct buf *out, struct slice s, size_t max)
{
	struct buf b = {0};
	size_t skip = 0;

	plain_clip(&b, s, s.n * 4, true);
	if (b.n > max) {
		skip = b.n - max;
		while (skip < b.n && (b.p[skip] & 0xc0) == 0x80)
			skip++; /* not within a character */
		buf_adds(out, "…");
	}
	buf_adds(out, b.n ? b.p + skip : "");
	buf_free(&b);
}
