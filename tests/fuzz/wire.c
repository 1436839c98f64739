/* Fuzzes the wire: frames of arbitrary bytes, unpacked by their format, printed, and packed
 * again. */
#include "wire.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const formats[256] = {
#define X(name, type, many, format, fields) [type] = format,
    WIRE_MESSAGES(X)
#undef X
};

/* Enough fields for any format. Slices must lie within the body. */
static void
unpack(const struct msg *m)
{
	struct slice s[12] = {0};
	const char *f = formats[m->type];

	if (wire_unpack(m, m->type, NULL, &s[0], &s[1], &s[2], &s[3], &s[4], &s[5], &s[6], &s[7],
		&s[8], &s[9], &s[10], &s[11]) < 0)
		return;
	for (size_t i = 0; f[i]; i++) {
		if (f[i] != 's' && f[i] != 'd')
			continue;
		if (s[i].p < m->body || s[i].p + s[i].n > m->body + m->len)
			abort();
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy =
	    malloc(size ? size : 1); /* a block of its own: the sanitizer notices reads past it */
	struct buf line = {0}, again = {0};
	struct msg m;
	size_t at = 0;
	long n;

	memcpy(copy, data, size);
	while ((n = wire_frame(copy + at, size - at, &m, NULL)) > 0) {
		if (n < WIRE_HEADER || (size_t)n > size - at)
			abort();
		wire_print(&m, &line);
		unpack(&m);
		buf_clear(&again);
		wire_pack_raw(&again, &m);
		if (again.n != (size_t)n || memcmp(again.p, copy + at, again.n) != 0)
			abort();
		at += (size_t)n;
	}
	buf_free(&line);
	buf_free(&again);
	free(copy);
	return 0;
}
