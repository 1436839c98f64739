/* Fuzzes 9P: frames of arbitrary bytes are unpacked by the format of their message, and the names
 * in walks with them. */
#include "ninep/message.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGE_MAX = 1 << 20 };

static const char *const formats[256] = {
#define X(name, type, dialect, format, fields) [type] = format,
    NINEP_MESSAGES(X)
#undef X
};

static void
check_inside(struct slice s, struct slice body)
{
	if (s.n && (s.p < body.p || s.p + s.n > body.p + body.n))
		abort();
}

static void
take_names(struct ninep_field *names, struct slice body)
{
	while (names->n) {
		struct slice name = ninep_name(names);
		char *part = ninep_part(name);

		check_inside(name, body);
		if (part && (strlen(part) != name.n || strchr(part, '/')))
			abort();
		free(part);
	}
	if (names->s.n)
		abort();
}

/* All fields must lie within the body. */
static void
unpack(const struct ninep_message *m)
{
	const char *format = formats[m->type];
	struct ninep_field f[NINEP_FIELDS_MAX];

	if (!format || ninep_unpack(format, m->body, f) < 0)
		return;
	for (int i = 0; format[i] && format[i] != '*'; i++) {
		check_inside(f[i].s, m->body);
		if (format[i] == 'w')
			take_names(&f[i], m->body);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy =
	    malloc(size ? size : 1); /* a block of its own: the sanitizer notices reads past it */
	struct ninep_message m;
	size_t at = 0;
	long n;

	memcpy(copy, data, size);
	while ((n = ninep_frame(copy + at, size - at, MESSAGE_MAX, &m)) > 0) {
		if (n < NINEP_HEADER || (size_t)n > size - at)
			abort();
		unpack(&m);
		at += (size_t)n;
	}
	free(copy);
	return 0;
}
