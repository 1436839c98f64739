/*
 * Reads the text of faulthandler. Each thread is a line «Thread 0x… (most recent call first):» with
 * its frames below. CPython lists the newest thread first, so that the main thread is the last.
 */
#include "group/frames.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char head[] = "(most recent call first):\n";

static bool
has(struct slice s, const char *part)
{
	return memmem(s.p, s.n, part, strlen(part)) != NULL;
}

struct slice
frames_main(struct slice text)
{
	struct slice rest = text, last = {0};
	const char *p;

	while (rest.n && (p = memmem(rest.p, rest.n, head, sizeof(head) - 1)) != NULL) {
		p += sizeof(head) - 1;
		rest = last = (struct slice){p, rest.n - (size_t)(p - rest.p)};
	}
	return last;
}

bool
frames_next(struct slice *text, struct frame *f)
{
	static const char before[] = "  File \"", between[] = "\", line ";
	const char *end = text->n ? memchr(text->p, '\n', text->n) : NULL;
	const char *p = text->p, *at = NULL;
	char number[16];
	int used = 0;

	if (!end || text->n < sizeof(before) || memcmp(p, before, sizeof(before) - 1) != 0)
		return false;
	p += sizeof(before) - 1;
	/* the last one: the name of a file may contain quotes */
	for (const char *q = p; (q = memmem(q, (size_t)(end - q), between, sizeof(between) - 1));
	     q++)
		at = q;
	if (!at)
		return false;
	f->file = (struct slice){p, (size_t)(at - p)};
	p = at + sizeof(between) - 1;
	snprintf(
	    number, sizeof(number), "%.*s", (int)MIN(end - p, (ptrdiff_t)sizeof(number) - 1), p);
	if (sscanf(number, "%u in %n", &f->line, &used) != 1)
		return false;
	f->function = (struct slice){p + used, (size_t)(end - p - used)};
	text->n -= (size_t)(end + 1 - text->p);
	text->p = end + 1;
	return true;
}

/* Is it in a standard library: …/lib/pythonX.Y/…, …/lib64/pythonX.Y/…, …/pythonXY.zip/…? */
static bool
is_standard(struct slice file)
{
	static const char name[] = "/python";
	struct slice rest = file;
	const char *p;

	while ((p = memmem(rest.p, rest.n, name, sizeof(name) - 1)) != NULL) {
		size_t before = (size_t)(p - file.p);
		const char *end = file.p + file.n, *q = p + sizeof(name) - 1;
		bool under_lib = (before >= 4 && memcmp(p - 4, "/lib", 4) == 0) ||
				 (before >= 6 && memcmp(p - 6, "/lib64", 6) == 0);

		rest = (struct slice){q, (size_t)(end - q)};
		if (!rest.n || !isdigit((unsigned char)*q))
			continue;
		while (q < end && (isdigit((unsigned char)*q) || *q == '.' || *q == 't'))
			q++;
		if (q < end && ((*q == '/' && under_lib) ||
				   (end - q > 4 && q[-1] == '.' && memcmp(q, "zip/", 4) == 0)))
			return true;
	}
	return false;
}

static bool
has_users_name(struct slice file)
{
	static const char *const others[] = {
	    "/site-packages/", "/dist-packages/", "<ddip_engine", "<frozen "};

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (has(file, others[i]))
			return false;
	return !is_standard(file);
}

bool
frame_is_users(const struct frame *f, struct slice callers)
{
	struct frame caller;

	if (!has_users_name(f->file))
		return false;
	return !slice_eq(f->file, "<string>") || !frames_next(&callers, &caller) ||
	       has(caller.file, "<ddip_engine") || has_users_name(caller.file);
}

/* Appends the lines in parentheses, in which the engine says why it cannot say more. */
static bool
print_remarks(struct buf *out, struct slice text)
{
	bool any = false;

	while (text.n) {
		const char *end = memchr(text.p, '\n', text.n);
		size_t n = end ? (size_t)(end + 1 - text.p) : text.n;

		if (*text.p == '(') {
			buf_add(out, text.p, n);
			any = true;
		}
		text.p += n;
		text.n -= n;
	}
	return any;
}

void
frames_print(struct buf *out, struct slice text)
{
	struct slice rest = frames_main(text);
	struct frame f;
	bool any = false;

	for (const char *p = rest.p; rest.n && frames_next(&rest, &f); p = rest.p) {
		if (has(f.file, "<ddip_engine importer>"))
			break; /* what started the engine is below it */
		if (frame_is_users(&f, rest)) {
			buf_add(out, p, (size_t)(rest.p - p));
			any = true;
		}
	}
	if (!print_remarks(out, text) && !any)
		buf_adds(
		    out, "(no code of the user's runs in the main thread; stack.all has all)\n");
}
