/* Packs, unpacks and prints messages, driven by the message table in wire.h. */
#include "wire.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { FLAGS_AT = 5 }; /* offset in the header */

static const struct row {
	const char *name, *format, *fields;
	bool many;
} rows[256] = {

#define X(name, type, many, format, fields) [type] = {#name, format, fields, many},
    WIRE_MESSAGES(X)
#undef X
};

static void
put(struct buf *b, uint64_t v, int size)
{
	char *p = buf_reserve(b, (size_t)size);

	for (int i = 0; i < size; i++)
		p[i] = (char)(v >> (8 * i));
	b->n += (size_t)size;
}

static void
put_at(char *p, size_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (char)(v >> (8 * i));
}

static uint64_t
get(const char *p, int size)
{
	uint64_t v = 0;

	for (int i = 0; i < size; i++)
		v |= (uint64_t)(uint8_t)p[i] << (8 * i);
	return v;
}

void
wire_put_number(struct buf *b, char field, uint64_t v)
{
	put(b, v, field - '0');
}

void
wire_put_bytes(struct buf *b, struct slice s)
{
	put(b, s.n, 4);
	buf_add(b, s.p, s.n);
}

static void
put_header(struct buf *b, int type, int flags, unsigned slot, uint64_t tag, uint32_t size)
{
	put(b, size, 4);
	put(b, (unsigned)type, 1);
	put(b, (unsigned)flags, 1);
	put(b, slot, 4);
	put(b, tag, 8);
}

void
wire_vpack(struct buf *b, int type, int flags, unsigned slot, uint64_t tag, va_list ap)
{
	size_t at = b->n;

	if (!rows[type].name)
		die("wire: no message %d", type);
	put_header(b, type, flags, slot, tag, 0);
	for (const char *f = rows[type].format; *f; f++) {
		if (*f == 's' || *f == 'd') {
			wire_put_bytes(b, va_arg(ap, struct slice));
		} else if (*f == '8') {
			wire_put_number(b, *f, va_arg(ap, uint64_t));
		} else {
			wire_put_number(b, *f, va_arg(ap, uint32_t));
		}
	}
	put_at(b->p + at, b->n - at);
	buf_reserve(b, 0)[0] = '\0';
}

void
wire_pack(struct buf *b, int type, int flags, unsigned slot, uint64_t tag, ...)
{
	va_list ap;

	va_start(ap, tag);
	wire_vpack(b, type, flags, slot, tag, ap);
	va_end(ap);
}

void
wire_cancelled(struct err *e)
{
	fail(e, EINTR, "cancelled: no longer wanted");
}

void
wire_pack_error(struct buf *b, unsigned slot, uint64_t tag, const struct err *e)
{
	wire_pack(b, Rerror, 0, slot, tag, (uint32_t)e->no, slice_text(e->text), slice_text(""));
}

void
wire_pack_raw(struct buf *b, const struct msg *m)
{
	put_header(b, m->type, m->flags, m->slot, m->tag, WIRE_HEADER + m->len);
	buf_add(b, m->body, m->len);
}

void
wire_goes_on(struct buf *b, size_t at, size_t n)
{
	put_at(b->p + b->n - 4, n);
	put_at(b->p + at, b->n - at + n);
}

void
wire_drop_fd(char *p)
{
	p[FLAGS_AT] = (char)(p[FLAGS_AT] & ~FLAG_FD);
}

long
wire_frame(const char *p, size_t n, struct msg *m, struct err *e)
{
	uint32_t size;

	if (n < 4)
		return 0;
	size = (uint32_t)get(p, 4);
	if (size < WIRE_HEADER || size > WIRE_MAX)
		return fail(e, EBADMSG, "wire: a frame of %u bytes (want %d..%d)", size,
		    WIRE_HEADER, WIRE_MAX);
	if (n < size)
		return 0;
	*m = (struct msg){.type = (uint8_t)p[4],
	    .flags = (uint8_t)p[5],
	    .slot = (uint32_t)get(p + 6, 4),
	    .tag = get(p + 10, 8),
	    .fd = -1,
	    .body = p + WIRE_HEADER,
	    .len = size - WIRE_HEADER};
	if (!rows[m->type].name)
		return fail(e, EBADMSG, "wire: no message %d", m->type);
	return (long)size;
}

bool
wire_get(char f, const char **p, size_t *left, uint64_t *v, struct slice *s)
{
	size_t n = f == 's' || f == 'd' ? 4 : (size_t)(f - '0');

	if (*left < n)
		return false;
	*v = get(*p, (int)n);
	*p += n;
	*left -= n;
	if (f != 's' && f != 'd')
		return true;
	if (*v > *left)
		return false;
	*s = (struct slice){*p, (size_t)*v};
	*p += *v;
	*left -= (size_t)*v;
	return true;
}

static void
store(char f, void *to, uint64_t v, struct slice s)
{
	if (!to)
		return;
	if (f == '1')
		*(uint8_t *)to = (uint8_t)v;
	else if (f == '2')
		*(uint16_t *)to = (uint16_t)v;
	else if (f == '4')
		*(uint32_t *)to = (uint32_t)v;
	else if (f == '8')
		*(uint64_t *)to = v;
	else
		*(struct slice *)to = s;
}

static int
damaged(const struct msg *m, struct err *e)
{
	return fail(e, EBADMSG, "wire: %s is damaged", rows[m->type].name);
}

int
wire_unpack(const struct msg *m, int type, struct err *e, ...)
{
	const char *p = m->body;
	size_t left = m->len;
	struct slice s = {0};
	uint64_t v;
	va_list ap;
	bool ok = true;

	if (m->type != type)
		return fail(
		    e, EBADMSG, "wire: %s in place of %s", wire_name(m->type), wire_name(type));
	va_start(ap, e);
	for (const char *f = rows[type].format; ok && *f; f++) {
		ok = wire_get(*f, &p, &left, &v, &s);
		if (ok)
			store(*f, va_arg(ap, void *), v, s);
	}
	va_end(ap);
	return !ok || left ? damaged(m, e) : 0;
}

int
wire_check(const struct msg *m, struct err *e)
{
	const char *p = m->body;
	size_t left = m->len;
	struct slice s;
	uint64_t v;

	for (const char *f = rows[m->type].format; *f; f++)
		if (!wire_get(*f, &p, &left, &v, &s))
			return damaged(m, e);
	return left ? damaged(m, e) : 0;
}

void
wire_read_error(const struct msg *m, struct err *e, struct slice *trace)
{
	struct slice text;
	uint32_t no;

	if (trace)
		*trace = (struct slice){0};
	if (wire_unpack(m, Rerror, e, &no, &text, trace) == 0)
		fail(e, no && no <= INT_MAX ? (int)no : EBADMSG, "%.*s",
		    (int)MIN(text.n, sizeof(e->text) - 1), text.p);
}

int
wire_reply(int request)
{
	return request == Treduce ? Rget : request + 1;
}

enum { WHO = 4 + 8 }; /* bytes of a slot and a tag */

int
wire_many_begin(struct wire_many *it, const struct msg *m, struct err *e)
{
	struct slice frame;
	uint8_t tail;

	*it = (struct wire_many){0};
	if (wire_unpack(m, Nmany, e, &tail, &it->who, &frame) < 0)
		return -EBADMSG;
	if (!frame.n || wire_frame(frame.p, frame.n, &it->each, NULL) != (long)frame.n ||
	    it->each.type == Nmany || it->each.flags & FLAG_FD || tail > it->each.len ||
	    it->who.n % (WHO + tail))
		return fail(e, EBADMSG, "wire: Nmany is damaged");
	it->tail = tail;
	if (!tail)
		return 0;
	it->copy = xmalloc(it->each.len);
	memcpy(it->copy, it->each.body, it->each.len);
	it->each.body = it->copy;
	return 0;
}

bool
wire_many_next(struct wire_many *it, struct msg *m)
{
	uint64_t slot = 0, tag = 0;

	if (!it->who.n)
		return false;
	wire_get('4', &it->who.p, &it->who.n, &slot, NULL);
	wire_get('8', &it->who.p, &it->who.n, &tag, NULL);
	if (it->tail)
		memcpy(it->copy + it->each.len - it->tail, it->who.p, it->tail);
	it->who.p += it->tail;
	it->who.n -= it->tail;
	*m = it->each;
	m->slot = (uint32_t)slot;
	m->tag = tag;
	return true;
}

void
wire_many_end(struct wire_many *it)
{
	free(it->copy);
}

void
wire_many_add(struct buf *who, unsigned slot, uint64_t tag, struct slice tail)
{
	put(who, slot, 4);
	put(who, tag, 8);
	buf_add(who, tail.p, tail.n);
}

const char *
wire_format(int type)
{
	return rows[type].format;
}

const char *
wire_fields(int type)
{
	return rows[type].fields;
}

bool
wire_is_many(int type)
{
	return rows[type].many;
}

int
wire_type(const char *name)
{
	for (int type = 0; type < (int)ARRAY_LEN(rows); type++)
		if (rows[type].name && strcmp(rows[type].name, name) == 0)
			return type;
	return -1;
}

const char *
wire_name(int type)
{
	return type >= 0 && type < 256 ? rows[type].name : NULL;
}

char
wire_kind(int type)
{
	return wire_name(type)[0];
}

static void
print_slice(struct buf *out, struct slice s)
{
	size_t n = MIN(s.n, (size_t)40);

	buf_addc(out, '\'');
	for (size_t i = 0; i < n; i++)
		if (s.p[i] == '\n')
			buf_adds(out, "\\n");
		else
			buf_addc(out, isprint((unsigned char)s.p[i]) ? s.p[i] : '.');
	buf_adds(out, n < s.n ? "…'" : "'");
	if (n < s.n)
		buf_addf(out, "[%zu]", s.n);
}

/* The message, and the slots of all engines that it is for or from. */
static void
print_many(const struct msg *m, struct buf *out)
{
	struct wire_many it;
	const char *sep = " for slots=";
	struct msg each;

	if (wire_many_begin(&it, m, NULL) < 0) {
		buf_adds(out, "Nmany damaged");
		return;
	}
	if (wire_many_next(&it, &each))
		wire_print(&each, out);
	do {
		buf_addf(out, "%s%u", sep, each.slot);
		sep = ",";
	} while (wire_many_next(&it, &each));
	wire_many_end(&it);
}

void
wire_print(const struct msg *m, struct buf *out)
{
	const struct row *r = &rows[m->type];
	const char *p = m->body, *word = r->fields;
	size_t left = m->len;
	struct slice s = {0};
	uint64_t v;

	if (!r->name) {
		buf_addf(out, "?%d", m->type);
		return;
	}
	if (m->type == Nmany) {
		print_many(m, out);
		return;
	}
	buf_adds(out, r->name);
	if (m->slot != SLOT_AGENT)
		buf_addf(out, " slot=%u", m->slot);
	if (m->tag)
		buf_addf(out, " tag=%llu", (unsigned long long)m->tag);
	for (const char *f = r->format; *f; f++) {
		size_t n = strcspn(word, " ");

		if (!wire_get(*f, &p, &left, &v, &s)) {
			buf_adds(out, " damaged");
			return;
		}
		buf_addf(out, " %.*s=", (int)n, word);
		if (*f == 's' || *f == 'd')
			print_slice(out, s);
		else
			buf_addf(out, "%llu", (unsigned long long)v);
		word += n + (word[n] == ' ');
	}
}
