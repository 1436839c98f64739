/* Encodes and decodes 9P messages. */
#include "ninep/message.h"
#include "wire.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE_MAX = 255 };

/* Reads an integer of this many bytes. Returns false if there are not enough. */
static bool
get(struct slice *in, int bytes, uint64_t *v)
{
	return wire_get((char)('0' + bytes), &in->p, &in->n, v, NULL);
}

static bool
get_bytes(struct slice *in, int length, struct slice *s)
{
	uint64_t n;

	if (!get(in, length, &n) || n > in->n)
		return false;
	*s = (struct slice){in->p, (size_t)n};
	in->p += n;
	in->n -= (size_t)n;
	return true;
}

long
ninep_frame(const char *p, size_t n, uint32_t max, struct ninep_message *m)
{
	struct slice in = {p, n};
	uint64_t size, type, tag;

	if (!get(&in, 4, &size))
		return 0;
	if (size < NINEP_HEADER || size > max)
		return -EBADMSG;
	if (n < size)
		return 0;
	get(&in, 1, &type);
	get(&in, 2, &tag);
	*m = (struct ninep_message){
	    (uint8_t)type, (uint16_t)tag, {in.p, (size_t)size - NINEP_HEADER}};
	return (long)size;
}

static bool
get_names(struct slice *in, struct ninep_field *f)
{
	struct slice name, from = *in;

	if (!get(in, 2, &f->n) || f->n > NINEP_NAMES_MAX)
		return false;
	f->s = (struct slice){in->p, 0};
	for (uint64_t i = 0; i < f->n; i++)
		if (!get_bytes(in, 2, &name))
			return false;
	f->s.n = from.n - in->n - 2;
	return true;
}

int
ninep_unpack(const char *format, struct slice body, struct ninep_field f[NINEP_FIELDS_MAX])
{
	for (int i = 0; format[i]; i++) {
		bool ok;

		if (format[i] == '*')
			return 0;
		f[i] = (struct ninep_field){0};
		if (format[i] == 's' || format[i] == 'd')
			ok = get_bytes(&body, format[i] == 's' ? 2 : 4, &f[i].s);
		else if (format[i] == 'w')
			ok = get_names(&body, &f[i]);
		else
			ok = get(&body, format[i] - '0', &f[i].n);
		if (!ok)
			return -EBADMSG;
	}
	return body.n ? -EBADMSG : 0;
}

struct slice
ninep_name(struct ninep_field *names)
{
	struct slice name = {0};

	get_bytes(&names->s, 2, &name);
	names->n--;
	return name;
}

char *
ninep_part(struct slice name)
{
	if (name.n == 0 || name.n > NAME_SIZE_MAX || memchr(name.p, '/', name.n) ||
	    memchr(name.p, '\0', name.n))
		return NULL;
	return slice_dup(name);
}

void
ninep_put(struct buf *b, int bytes, uint64_t v)
{
	wire_put_number(b, (char)('0' + bytes), v);
}

void
ninep_put_text(struct buf *b, const char *s)
{
	size_t n = MIN(strlen(s), (size_t)UINT16_MAX);

	ninep_put(b, 2, n);
	buf_add(b, s, n);
}

void
ninep_put_qid(struct buf *b, const struct ninep_qid *q)
{
	ninep_put(b, 1, q->type);
	ninep_put(b, 4, 0); /* no version: the contents are read afresh each time */
	ninep_put(b, 8, q->path);
}
