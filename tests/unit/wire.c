/* Tests of include/wire.c: every message survives packing and unpacking, and damaged frames are
 * refused. */
#include "wire.h"
#include "check.h"
#include <errno.h>
#include <stdlib.h>

static const char *const formats[256] = {
#define X(name, type, many, format, fields) [type] = format,
    WIRE_MESSAGES(X)
#undef X
};

/* A tag of more than 32 bits. */
static const uint64_t TAG = ((uint64_t)1 << 40) + 5;

static struct slice
text(const char *s)
{
	return (struct slice){s, strlen(s)};
}

static void
test_round_trip(void)
{
	struct buf b = {0}, line = {0};
	struct msg m;
	struct err e = {0};
	struct slice source;
	uint32_t cell, generation;

	wire_pack(&b, Trun, FLAG_MARK, 3, TAG, 17u, 2u, text("x = 1\ny"));
	CHECK(b.n == WIRE_HEADER + 4 + 4 + 4 + 7);
	for (size_t i = 0; i < b.n; i++)
		CHECK(wire_frame(b.p, i, &m, &e) == 0);
	CHECK(wire_frame(b.p, b.n, &m, &e) == (long)b.n);
	CHECK(m.type == Trun && m.flags == FLAG_MARK && m.slot == 3 && m.tag == TAG && m.fd == -1);
	CHECK(wire_unpack(&m, Trun, &e, &cell, &generation, &source) == 0);
	CHECK(cell == 17 && generation == 2 && slice_eq(source, "x = 1\ny"));
	CHECK(wire_unpack(&m, Trun, &e, NULL, NULL, &source) == 0);
	wire_print(&m, &line);
	CHECK_STR(line.p, "Trun slot=3 tag=1099511627781 cell=17 generation=2 source='x = 1\\ny'");
	buf_free(&line);
	buf_free(&b);
}

static void
test_numbers(void)
{
	struct buf b = {0}, again = {0};
	struct msg m;
	uint32_t pid, status;
	struct slice last;
	uint64_t out, err, disp, records;

	wire_pack(&b, Nexit, 0, SLOT_AGENT, 0, 0xffffffffu, 9u, text(""), text(""), UINT64_MAX,
	    (uint64_t)1 << 40, (uint64_t)0, (uint64_t)5);
	CHECK(wire_frame(b.p, b.n, &m, NULL) == (long)b.n);
	CHECK(wire_unpack(
		  &m, Nexit, NULL, &pid, &status, NULL, &last, &out, &err, &disp, &records) == 0);
	CHECK(pid == 0xffffffffu && status == 9 && last.n == 0);
	CHECK(out == UINT64_MAX && err == (uint64_t)1 << 40 && disp == 0 && records == 5);
	wire_pack_raw(&again, &m);
	CHECK(again.n == b.n && memcmp(again.p, b.p, b.n) == 0);
	buf_free(&again);
	buf_free(&b);
}

static void
test_damage(void)
{
	struct buf b = {0};
	struct msg m;
	struct err e = {0};
	char frame[WIRE_HEADER] = {4};
	struct wire_many many;

	CHECK(wire_frame(frame, sizeof(frame), &m, &e) == -EBADMSG); /* shorter than a header */
	memcpy(frame, "\xff\xff\xff\x7f", 4);
	CHECK(wire_frame(frame, sizeof(frame), &m, &e) == -EBADMSG); /* longer than the maximum */
	memcpy(frame, "\x12\0\0\0\xff", 5);
	CHECK(wire_frame(frame, sizeof(frame), &m, &e) == -EBADMSG); /* no such message */
	CHECK_STR(e.text, "wire: no message 255");
	wire_pack(&b, Tdel, 0, 1, 2, text("name"));
	wire_frame(b.p, b.n, &m, &e);
	b.p[WIRE_HEADER] = 5; /* the text claims to be longer than the frame */
	CHECK(wire_unpack(&m, Tdel, &e, NULL) == -EBADMSG);
	b.p[WIRE_HEADER] = 3; /* shorter: bytes are left over */
	CHECK(wire_unpack(&m, Tdel, &e, NULL) == -EBADMSG);
	memset(b.p + WIRE_HEADER, 0xff, 4);
	CHECK(wire_unpack(&m, Tdel, &e, NULL) == -EBADMSG);
	CHECK(wire_check(&m, &e) == -EBADMSG);
	memcpy(b.p + WIRE_HEADER, "\4\0\0", 4);
	CHECK(wire_unpack(&m, Tdel, &e, NULL) == 0 && wire_check(&m, &e) == 0);
	CHECK(wire_unpack(&m, Thas, &e, NULL) == -EBADMSG); /* it has the same fields */
	CHECK_STR(e.text, "wire: Tdel in place of Thas");
	buf_clear(&b);
	wire_pack(&b, Nmany, 0, SLOT_AGENT, 0, 0u, ((struct slice){"\1\0\0\0\2\0\0\0\0\0\0\0", 12}),
	    text(""));
	wire_frame(b.p, b.n, &m, &e);
	CHECK(wire_many_begin(&many, &m, &e) == -EBADMSG); /* no frame */
	CHECK(wire_type("Tdel") == Tdel && wire_type("Tde") == -1 && wire_type("") == -1);
	CHECK(wire_name(Tdel) && !wire_name(-1) && !wire_name(255) && !wire_name(256));
	buf_free(&b);
}

/* Each format uses known letters, and each of its fields has a name. */
static void
test_table(void)
{
	static const char *const fields[256] = {
#define X(name, type, many, format, fields) [type] = fields,
	    WIRE_MESSAGES(X)
#undef X
	};

	for (int t = 0; t < 256; t++) {
		size_t words = 0;

		if (!formats[t])
			continue;
		CHECK(formats[t][strspn(formats[t], "1248sd")] == '\0');
		for (const char *w = fields[t]; *w; w += strcspn(w, " "), w += *w == ' ')
			words++;
		if (words != strlen(formats[t]))
			printf("%s: %zu fields, format %s\n", wire_name(t), words, formats[t]);
		CHECK(words == strlen(formats[t]));
	}
}

int
main(void)
{
	test_round_trip();
	test_numbers();
	test_damage();
	test_table();
	return CHECK_DONE();
}
