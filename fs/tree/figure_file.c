/*
 * cells/N/rankK/figureF.png: the figures that a cell has displayed on a rank, decoded from the JSON
 * lines in its spool when a file is opened. The engine writes these lines, and reports how many
 * figures there are (digest.py).
 */
#include "tree/figure_file.h"
#include "group/cell.h"
#include "group/output.h"
#include "group/report.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DISPLAY_MAX = 64 << 20 }; /* bytes of a cell's displays that are searched */

int
figure_file_find(struct place *at, const char *name)
{
	int count = report_figures(cell_subtask(at->cell, at->rank)), number = 0;
	char canonical[32];

	if (sscanf(name, "figure%9d.png", &number) != 1 || number < 1 || number > count)
		return -ENOENT;
	snprintf(canonical, sizeof(canonical), "figure%d.png", number);
	if (strcmp(name, canonical) != 0)
		return -ENOENT;
	at->name = xstrdup(name);
	return 0;
}

bool
figure_file_next(const struct place *at, struct part_cursor *c, struct place *child, char *name)
{
	if ((int)c->at >= report_figures(cell_subtask(at->cell, at->rank)))
		return false;
	snprintf(name, ENTRY_NAME_SIZE, "figure%d.png", (int)++c->at);
	child->name = name;
	return true;
}

void
figure_file_print(const struct place *at, struct buf *out)
{
	buf_adds(out, at->name);
}

/* ---- its bytes ---- */

/* The PNG in a line that is a display message, in base64; its p is NULL if there is none. */
static struct slice
figure_in(struct slice line)
{
	static const char *const kinds[] = {"{\"type\": \"display_data\"",
	    "{\"type\": \"update_display_data\"", "{\"type\": \"execute_result\""};
	static const char key[] = "\"image/png\": \""; /* quotes in texts are escaped */
	const char *p, *end;

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		if (line.n < strlen(kinds[i]) || memcmp(line.p, kinds[i], strlen(kinds[i])) != 0)
			continue;
		p = memmem(line.p, line.n, key, strlen(key));
		if (!p)
			break;
		p += strlen(key);
		end = memchr(p, '"', (size_t)(line.p + line.n - p));
		return (struct slice){p, end ? (size_t)(end - p) : 0};
	}
	return (struct slice){0};
}

/* Appends what base64 (RFC 4648) stands for. Line breaks in it are \n, as JSON writes them. */
static void
decode(struct slice s, struct buf *out)
{
	static const char digits[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned bits = 0, count = 0;

	for (size_t i = 0; i < s.n && s.p[i] != '='; i++) {
		const char *digit = s.p[i] ? strchr(digits, s.p[i]) : NULL;

		if (s.p[i] == '\\') {
			i++;
			continue;
		}
		if (!digit)
			continue;
		bits = bits << 6 | (unsigned)(digit - digits);
		if (++count % 4 == 1)
			continue;
		/* of 24 bits, a byte is complete after 12, 18 and 24 */
		buf_addc(out, (char)(bits >> (6 - 2 * ((count - 1) % 4))));
	}
}

int
figure_file_text(const struct place *at, struct buf *out, struct err *e)
{
	const struct subtask *j = cell_subtask(at->cell, at->rank);
	struct rank *k = output_rank(at->g, at->rank);
	struct buf all = {0};
	int wanted = (int)strtol(at->name + strlen("figure"), NULL, 10);

	if (!k || !j || !j->ended)
		return fail(e, ENOENT, "%s: the cell has not ended on this rank", at->name);
	output_last(k, SPOOL_DISPLAY, j->begin.size[SPOOL_DISPLAY], j->end.size[SPOOL_DISPLAY],
	    DISPLAY_MAX, &all);
	for (const char *p = all.p, *end = p + all.n; p && p < end;) {
		const char *newline = memchr(p, '\n', (size_t)(end - p));
		struct slice line = {p, (size_t)((newline ? newline : end) - p)};
		struct slice found = figure_in(line);

		if (found.p && --wanted == 0) {
			decode(found, out);
			break;
		}
		p += line.n + 1;
	}
	buf_free(&all);
	return wanted ? fail(e, ENOENT, "%s is no longer kept: see the setting spool", at->name)
		      : 0;
}
