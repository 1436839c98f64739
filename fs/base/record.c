/* Writes records of named values, the same for people as text and for programs as JSON. */
#include "base/record.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

/* What stands before a value. */
static void
begin_value(struct record *r, const char *key)
{
	if (r->form == RECORD_JSON) {
		buf_adds(r->out, r->is_more ? "," : "");
		if (key) {
			json_string(r->out, key, strlen(key));
			buf_addc(r->out, ':');
		}
	} else if (r->form == RECORD_LINES) {
		buf_addf(r->out, "%s ", key);
	} else if (r->is_more) {
		buf_addf(r->out, " %s=", key);
	}
	r->is_more = true;
}

static void
end_value(struct record *r)
{
	if (r->form == RECORD_LINES)
		buf_addc(r->out, '\n');
}

static void
open_json(struct record *r, const char *key, char bracket)
{
	if (r->form == RECORD_JSON) {
		begin_value(r, key);
		buf_addc(r->out, bracket);
		r->depth++;
	}
	r->is_more = false;
}

static void
close_json(struct record *r, const char *bracket)
{
	if (r->form == RECORD_JSON)
		buf_addf(r->out, "%s%s", bracket, --r->depth ? "" : "\n");
	r->is_more = true;
}

void
record_begin(struct record *r, const char *key)
{
	open_json(r, key, '{');
}

void
record_end(struct record *r)
{
	if (r->form == RECORD_WORDS)
		buf_addc(r->out, '\n');
	close_json(r, "}");
}

void
record_begin_list(struct record *r, const char *key)
{
	open_json(r, key, '[');
}

void
record_end_list(struct record *r)
{
	close_json(r, "]");
}

static void
record_slice(struct record *r, const char *key, struct slice value)
{
	begin_value(r, key);
	if (r->form == RECORD_JSON)
		json_string(r->out, value.p, value.n);
	else
		buf_add(r->out, value.p, value.n);
	end_value(r);
}

void
record_text(struct record *r, const char *key, const char *value)
{
	if (value)
		record_slice(r, key, slice_text(value));
	else
		record_none(r, key);
}

void
record_number(struct record *r, const char *key, long long value)
{
	begin_value(r, key);
	buf_addf(r->out, "%lld", value);
	end_value(r);
}

void
record_real(struct record *r, const char *key, double value, int decimals)
{
	begin_value(r, key);
	buf_addf(r->out, "%.*f", decimals, value);
	end_value(r);
}

void
record_none(struct record *r, const char *key)
{
	begin_value(r, key);
	buf_adds(r->out, r->form == RECORD_JSON ? "null" : "-");
	end_value(r);
}

/* Is it a number as JSON writes them, without an exponent? */
static bool
is_number(struct slice s)
{
	size_t i = s.n && s.p[0] == '-', digits = i, point = 0;

	for (; i < s.n && ((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] == '.' && !point)); i++)
		if (s.p[i] == '.')
			point = i;
	return i == s.n && i > digits && s.p[i - 1] != '.' && s.p[digits] != '.' &&
	       (s.p[digits] != '0' || i == digits + 1 || point == digits + 1);
}

void
record_lines(struct record *r, const char *prefix, const char *lines)
{
	for (size_t n; *lines; lines += n + (lines[n] == '\n')) {
		size_t key = strcspn(lines, " \n");
		struct slice value = {lines + key, 0};
		char *name;

		n = strcspn(lines, "\n");
		if (n > key)
			value = (struct slice){lines + key + 1, n - key - 1};
		name = xasprintf("%s%.*s", prefix, (int)key, lines);
		if (r->form == RECORD_JSON && is_number(value)) {
			begin_value(r, name);
			buf_add(r->out, value.p, value.n);
		} else {
			record_slice(r, name, value);
		}
		free(name);
	}
}
