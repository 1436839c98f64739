/*
 * The report of a cell is a list of parts, the most telling ones first. Each has its form as text
 * and as JSON. A part that would make either too long is left out of both, which the last parts
 * say.
 */
#include "group/report.h"
#include "base/json.h"
#include "base/plain.h"
#include "group/alike.h"
#include "group/cell.h"
#include "group/external.h"
#include "group/last_words.h"
#include "group/left_out.h"
#include "group/output.h"
#include "group/said.h"
#include "group/straggler.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DECIMAL = 10 };

/* ROOM: for what is left out, at least the first kind of it. END: of the JSON. */
enum {
	PARTS_MAX = 64,
	FIELDS = 3,
	PARTS_ROOM = LEFT_OUT_KINDS,
	TEXT_ROOM = 96,
	JSON_ROOM = 128,
	JSON_END = 8
};

/* In bytes, but for the first. */
enum {
	SETS_SHOWN = 3,	 /* of ranks with equal texts */
	RANKS_READ = 64, /* whose output is read */
	FIGURES_SHOWN = 4,
	FIGURES_MAX = 10000,
	LINES_SHOWN = 5,
	ERROR_SIZE = 400,
	CAUSE_SIZE = 160,
	NOTE_SIZE = 160,
	FILE_SIZE = 64,
	CODE_SIZE = 100,
	OTHER_SIZE = 120,
	RANKS_SIZE = 40,
	OUTPUT_SIZE = 500,
	OUTPUT_READ = 1 << 10,
	STDERR_READ = 16 << 10, /* a crash has Python write much that is left out */
	NAMES_SIZE = 160,
	VALUE_SIZE = 160,
	LOCALS_SIZE = 400,
	DIFFERING_SIZE = 120,
	SENTENCE_SIZE = 400
};

/* One fact of several values. */
struct part {
	const char *list; /* the key of the JSON list that it is an element of; NULL: of none */
	char *text, *json;
};

struct report {
	struct cell *c;
	const struct report_now *now; /* NULL: the ranks were not asked */
	struct part part[PARTS_MAX];
	int n;
	struct left_out left_out;
	bool is_last; /* that is being added: there is no more room to keep */
	size_t text_n, json_n;
};

struct field {
	const char *key;
	const char *text; /* NULL: the field is a number */
	double number;
	int decimals;
};

/* ---- parts ---- */

static struct field
text_field(const char *key, const char *text)
{
	return (struct field){.key = key, .text = text};
}

static struct field
number_field(const char *key, double number, int decimals)
{
	return (struct field){.key = key, .number = number, .decimals = decimals};
}

/* `WORD VALUE VALUE: VALUE`; lines after the first are indented. */
static char *
part_text(const char *word, const struct field *f, int n)
{
	struct buf b = {0};

	buf_adds(&b, word);
	for (int i = 0; i < n; i++) {
		if (f[i].text && !*f[i].text)
			continue;
		buf_adds(&b, i && i == n - 1 ? ": " : " ");
		if (!f[i].text)
			buf_addf(&b, "%.*f", f[i].decimals, f[i].number);
		for (const char *p = f[i].text; p && *p; p++) {
			buf_addc(&b, *p);
			if (*p == '\n')
				buf_addc(&b, '\t');
		}
	}
	buf_addc(&b, '\n');
	return buf_take(&b);
}

static char *
part_json(const char *list, const struct field *f, int n)
{
	struct buf b = {0};
	bool is_object = list && f[0].key;

	buf_adds(&b, is_object ? "{" : "");
	for (int i = 0; i < n; i++) {
		if (f[i].key)
			buf_addf(&b, "%s\"%s\":", i ? "," : "", f[i].key);
		if (f[i].text)
			json_string(&b, f[i].text, strlen(f[i].text));
		else
			buf_addf(&b, "%.*f", f[i].decimals, f[i].number);
	}
	buf_adds(&b, is_object ? "}" : "");
	return buf_take(&b);
}

/* Says that a fact is left out, and which file has it. */
static void
leave_out(struct report *r, const char *word, const struct field *f)
{
	const struct task *w = r->c->w;
	bool of_ranks = f[0].key && strcmp(f[0].key, "ranks") == 0;
	char *see;

	if (strcmp(word, "see") == 0 || strcmp(word, "figure") == 0)
		see = xstrdup(f[0].text);
	else if (strcmp(word, "output") == 0)
		see = xasprintf("cells/%d/rank%ld/%s", r->c->number,
		    strtol(f[0].text, NULL, DECIMAL), f[1].text);
	else
		see = left_out_file(
		    word, r->c->number, w->first < 0 ? -1 : r->c->ranks[w->first], r->now != NULL);
	left_out_add(&r->left_out, word, of_ranks ? f[0].text : NULL, see, 1);
}

/* Adds a fact of n values, if there is room. word: that begins its line. list: see part; the
 * elements of a list are added one after the other. The texts must be UTF-8. */
static void
add(struct report *r, const char *word, const char *list, const struct field *f, int n)
{
	struct part p = {list, part_text(word, f, n), part_json(list, f, n)};
	bool goes_on = r->n && list && r->part[r->n - 1].list == list;
	size_t text_n = strlen(p.text);
	size_t json_n = strlen(p.json) + 1 + (list && !goes_on ? strlen(list) + 5 : 0);
	bool last = r->is_last;

	if (r->n >= PARTS_MAX - (last ? 0 : PARTS_ROOM) ||
	    r->text_n + text_n > REPORT_TEXT_MAX - (size_t)(last ? 0 : TEXT_ROOM) ||
	    r->json_n + json_n > REPORT_JSON_MAX - JSON_END - (size_t)(last ? 0 : JSON_ROOM)) {
		if (!last)
			leave_out(r, word, f);
		free(p.text);
		free(p.json);
		return;
	}
	r->part[r->n++] = p;
	r->text_n += text_n;
	r->json_n += json_n;
}

static void
add_text(struct report *r, const char *key, const char *text)
{
	struct field f = text_field(key, text);

	add(r, key, NULL, &f, 1);
}

static void
add_number(struct report *r, const char *key, double number, int decimals)
{
	struct field f = number_field(key, number, decimals);

	add(r, key, NULL, &f, 1);
}

/* Adds a text of others, as one line. */
static void
add_clipped(struct report *r, const char *key, struct slice s, size_t max)
{
	struct buf b = {0};

	plain_clip(&b, s, max, true);
	if (b.n)
		add_text(r, key, b.p);
	buf_free(&b);
}

/* ---- sets of ranks ---- */

static void
spell_ranks(const struct report *r, const struct alike *first, struct buf *out)
{
	struct buf b = {0};

	alike_ranks(first, r->c->ranks, &b);
	plain_clip(out, slice_text(b.p), RANKS_SIZE, true);
	buf_free(&b);
}

/* Adds an element of a list for each set of ranks with the same text, with the values of more
 * before the text. Empty texts are nobody's. t is sorted. */
static void
add_sets(struct report *r, const char *word, const char *list, struct alike *t, int n,
    const char *stream, size_t max)
{
	struct alike **first = xcalloc((size_t)n + 1, sizeof(struct alike *));
	int sets = alike_sets(t, n, first), shown = 0;

	for (int i = 0; i < sets; i++) {
		struct buf ranks = {0}, text = {0};
		struct field f[FIELDS];
		int k = 0;

		if (!*first[i]->text)
			continue;
		spell_ranks(r, first[i], &ranks);
		plain_clip(&text, slice_text(first[i]->text), max, !stream);
		f[k++] = text_field("ranks", ranks.p);
		if (stream)
			f[k++] = text_field("stream", stream);
		f[k++] = text_field("text", text.n ? text.p : "");
		if (++shown > SETS_SHOWN)
			leave_out(r, word, f);
		else
			add(r, word, list, f, k);
		buf_free(&ranks);
		buf_free(&text);
	}
	free(first);
}

/* ---- what the ranks say of themselves: lines `key value` ---- */

/* What the i-th rank says now, else at the end of its part. */
static const char *
said_by(const struct report *r, int i)
{
	return r->now && r->now->said[i] ? r->now->said[i] : r->c->w->subtasks[i].digest;
}

/* Adds for each set of ranks the value that they have under this key. */
static void
add_said(struct report *r, const char *key)
{
	const struct cell *c = r->c;
	struct alike *t = xcalloc((size_t)c->n + 1, sizeof(*t));
	char **value = xcalloc((size_t)c->n + 1, sizeof(*value));

	for (int i = 0; i < c->n; i++) {
		const char *p = said_by(r, i);
		struct slice s = said_next(&p, key);

		value[i] = s.p ? slice_dup(s) : xstrdup("");
		t[i] = (struct alike){value[i], i, 0};
	}
	add_sets(r, key, key, t, c->n, NULL, NAMES_SIZE);
	for (int i = 0; i < c->n; i++)
		free(value[i]);
	free(value);
	free(t);
}

/* Adds a name or ranks, and a text about them, unless one of them is empty; at most so many bytes
 * of each. */
static void
add_about(struct report *r, const char *word, const char *key, const struct buf *of, size_t of_size,
    const struct buf *about, size_t size)
{
	struct buf subject = {0}, text = {0};
	struct field f[2];

	plain_clip(&subject, (struct slice){of->p, of->n}, of_size, true);
	plain_clip(&text, (struct slice){about->p, about->n}, size, true);
	f[0] = text_field(key, subject.p);
	f[1] = text_field("text", text.p);
	if (subject.n && text.n)
		add(r, word, word, f, 2);
	buf_free(&subject);
	buf_free(&text);
}

/* Adds what the user's frames hold on all ranks alike, and what differs. */
static void
add_locals(struct report *r)
{
	const struct cell *c = r->c;
	const char **said = xcalloc((size_t)c->n + 1, sizeof(*said));
	struct said_locals l;

	for (int i = 0; i < c->n; i++)
		said[i] = said_by(r, i);
	l = said_compare(said, c->ranks, c->n);
	for (int i = 0; i < l.n; i++)
		add_about(r, "differs", "name", &l.differing[i].name, FILE_SIZE,
		    &l.differing[i].text, DIFFERING_SIZE);
	add_about(r, "locals", "ranks", &l.ranks, RANKS_SIZE, &l.common, LOCALS_SIZE);
	said_free(&l);
	free(said);
}

/* Adds who was slow in the last steps of a cell that has ended, or what they took. */
static void
add_pace(struct report *r)
{
	const struct cell *c = r->c;
	struct pace(*pace)[CLOCKS] = xcalloc((size_t)c->n + 1, sizeof(*pace));
	struct paced *p = xcalloc((size_t)c->n + 1, sizeof(*p));
	struct straggler found;
	char *text = NULL;

	for (int i = 0; i < c->n; i++) {
		const char *digest = c->w->subtasks[i].digest;

		for (struct slice s; (s = said_next(&digest, "profile")).p;) {
			char *line = slice_dup(s);

			pace_read(line, pace[i]);
			free(line);
		}
		p[i] = (struct paced){c->ranks[i], pace[i]};
	}
	found = straggler_find(p, c->n);
	if (found.clock != CLOCKS) {
		text =
		    found.n ? straggler_text(&found, p, c->n, "") : straggler_pace(&found, p, c->n);
		add_clipped(r, found.n ? "straggler" : "pace", slice_text(text), SENTENCE_SIZE);
	}
	free(text);
	straggler_free(&found);
	free(p);
	free(pace);
}

/* Adds what its ranks do now, and who waits for whom: a stall, if nothing moves. */
static void
add_now(struct report *r)
{
	const struct report_now *now = r->now;
	const struct task_escalation *x = &r->c->w->escalation;

	if (now->verdict && !(r->c->w->err.no && *x->verdict))
		add_clipped(
		    r, x->stalled ? "stall" : "waits", slice_text(now->verdict), SENTENCE_SIZE);
	if (now->straggler)
		add_clipped(r, "straggler", slice_text(now->straggler), SENTENCE_SIZE);
	if (now->pace)
		add_clipped(r, "pace", slice_text(now->pace), SENTENCE_SIZE);
}

static void
add_peak(struct report *r)
{
	unsigned long long most = 0;

	for (int i = 0; i < r->c->n; i++) {
		const char *p = r->c->w->subtasks[i].digest;
		struct slice s = said_next(&p, "peak_bytes");

		most = MAX(most, s.p ? strtoull(s.p, NULL, DECIMAL) : 0);
	}
	if (most > 0)
		add_number(r, "peak_bytes", (double)most, 0);
}

int
report_figures(const struct subtask *j)
{
	const char *p = j ? j->digest : "";
	struct slice s = said_next(&p, "figures");

	return s.p ? (int)MAX(MIN(strtol(s.p, NULL, DECIMAL), (long)FIGURES_MAX), 0L) : 0;
}

/* Adds the files of the first figures, once for ranks that have displayed as many. */
static void
add_figures(struct report *r)
{
	const struct cell *c = r->c;
	int counts[SETS_SHOWN], sets = 0;

	for (int i = 0; i < c->n && sets < SETS_SHOWN; i++) {
		int count = report_figures(&c->w->subtasks[i]), known = 0;

		while (known < sets && counts[known] != count)
			known++;
		if (count == 0 || known < sets)
			continue;
		counts[sets++] = count;
		for (int k = 1; k <= MIN(count, FIGURES_SHOWN); k++) {
			char *path =
			    xasprintf("cells/%d/rank%d/figure%d.png", c->number, c->ranks[i], k);
			struct field f = text_field(NULL, path);

			add(r, "figure", "figures", &f, 1);
			free(path);
		}
		if (count > FIGURES_SHOWN)
			left_out_add(&r->left_out, "figure", NULL,
			    xasprintf("cells/%d/rank%d/figure%d.png", c->number, c->ranks[i],
				FIGURES_SHOWN + 1),
			    count - FIGURES_SHOWN);
	}
}

/* ---- the failure ---- */

/* The text behind "rank N: " or "rank N ". */
static const char *
behind_rank(const char *text, int rank)
{
	char *begin = xasprintf("rank %d", rank);
	size_t n = strlen(begin);
	bool has = strncmp(text, begin, n) == 0;

	free(begin);
	if (has && text[n] == ' ')
		return text + n + 1;
	return has && text[n] == ':' && text[n + 1] == ' ' ? text + n + 2 : text;
}

/* A line of the user's code: FILE:LINE, function and source, separated by tabs. */
static void
add_frame(struct report *r, struct slice s)
{
	static const char *const keys[FIELDS] = {"at", "function", "source"};
	struct buf b[FIELDS] = {{0}};
	struct field f[FIELDS];

	for (int i = 0; i < FIELDS; i++) {
		const char *tab = s.n ? memchr(s.p, '\t', s.n) : NULL;
		struct slice part = {s.p, tab ? (size_t)(tab - s.p) : s.n};

		if (i == 0)
			plain_clip_path(&b[i], part, FILE_SIZE);
		else
			plain_clip(&b[i], part, CODE_SIZE, true);
		f[i] = text_field(keys[i], b[i].n ? b[i].p : "");
		s.p += part.n + (tab != NULL);
		s.n -= part.n + (tab != NULL);
	}
	add(r, "at", "frames", f, FIELDS);
	for (int i = 0; i < FIELDS; i++)
		buf_free(&b[i]);
}

/* Adds each value that the rank has under this key, as a line that begins with word. */
static void
add_list(struct report *r, const struct subtask *j, const char *key, const char *word,
    const char *list, size_t max)
{
	const char *p = j->digest;

	for (struct slice s; (s = said_next(&p, key)).p;) {
		struct buf b = {0};
		struct field f;

		plain_clip(&b, s, max, true);
		f = text_field(NULL, b.n ? b.p : "");
		add(r, word, list, &f, 1);
		buf_free(&b);
	}
}

/* What the rank that failed first says of it. */
static void
add_cause(struct report *r, const struct subtask *j)
{
	const char *p = j->digest;

	add_list(r, j, "cause", "from", "from", CAUSE_SIZE);
	for (struct slice s; (s = said_next(&p, "frame")).p;)
		add_frame(r, s);
}

/* The other ranks that failed: those with the same traceback, and what ended the rest. */
static void
add_others(struct report *r)
{
	const struct cell *c = r->c;
	const struct subtask *all = c->w->subtasks, *first = &all[c->w->first];
	struct alike *same = xcalloc((size_t)c->n + 1, sizeof(*same));
	struct alike *rest = xcalloc((size_t)c->n + 1, sizeof(*rest));
	struct buf b = {0};
	int n = 0, rests = 0;

	for (int i = 0; i < c->n; i++) {
		if (!all[i].no || &all[i] == first)
			continue;
		if (*first->traceback && strcmp(all[i].traceback, first->traceback) == 0)
			same[n++] = (struct alike){"", i, 0};
		else
			rest[rests++] =
			    (struct alike){behind_rank(all[i].error, c->ranks[i]), i, 0};
	}
	if (n) {
		same[0].n = n;
		spell_ranks(r, &same[0], &b);
		add_text(r, "same_on", b.p);
	}
	add_sets(r, "other", "others", rest, rests, NULL, OTHER_SIZE);
	buf_free(&b);
	free(same);
	free(rest);
}

static void
add_failure(struct report *r)
{
	const struct task *w = r->c->w;
	int rank = w->first >= 0 ? r->c->ranks[w->first] : -1;

	if (rank >= 0)
		add_number(r, "rank", rank, 0);
	add_clipped(r, "error", slice_text(behind_rank(w->err.text, rank)), ERROR_SIZE);
	if (rank >= 0)
		add_list(r, &w->subtasks[w->first], "note", "note", "notes", NOTE_SIZE);
	if (*w->escalation.verdict)
		add_clipped(r, "stall", slice_text(w->escalation.verdict), ERROR_SIZE);
	if (rank >= 0) {
		add_cause(r, &w->subtasks[w->first]);
		add_others(r);
	}
}

/* ---- what it has left ---- */

/* The last lines of a text, each as a progress bar has left it. The caller frees it. */
static char *
last_lines(const struct buf *b)
{
	struct buf out = {0};
	const char *end = b->n ? b->p + b->n : NULL, *from = end;
	int lines = 0;

	while (end && end > b->p && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' '))
		end--;
	for (from = end; from && from > b->p && (from[-1] != '\n' || ++lines < LINES_SHOWN);)
		from--;
	while (from < end) {
		const char *stop = memchr(from, '\n', (size_t)(end - from));
		const char *back;

		stop = stop ? stop : end;
		back = memrchr(from, '\r', (size_t)(stop - from));
		if (back && back + 1 < stop)
			from = back + 1;
		buf_adds(&out, out.n ? "\n" : "");
		plain_clip(&out, (struct slice){from, (size_t)(stop - from)},
		    OUTPUT_SIZE / LINES_SHOWN, true);
		from = stop + (stop < end);
	}
	return buf_take(&out);
}

/* The last lines that a rank wrote in the cell. The caller frees them. */
static char *
output_of(const struct report *r, int i, int stream)
{
	struct subtask *j = &r->c->w->subtasks[i];
	struct rank *k = output_rank(r->c->g, r->c->ranks[i]);
	struct buf b = {0}, plain = {0};
	uint64_t end;
	char *lines;

	if (!k || !j->begun)
		return xstrdup("");
	end = j->ended ? j->end.size[stream] : spool_reader_size(output_spool(k), stream);
	output_last(k, stream, j->begin.size[stream], end,
	    stream == SPOOL_STDERR ? STDERR_READ : OUTPUT_READ, &b);
	if (stream == SPOOL_STDERR)
		last_words_plain((struct slice){b.p, b.n}, &plain);
	lines = last_lines(stream == SPOOL_STDERR ? &plain : &b);
	buf_free(&b);
	buf_free(&plain);
	return lines;
}

static void
add_output(struct report *r, int stream)
{
	/* the rank that failed first is always among those whose output is read */
	int n = MIN(r->c->n, RANKS_READ), first = r->c->w->first;
	struct alike *t = xcalloc((size_t)n + 1, sizeof(*t));
	char *lines[RANKS_READ];

	for (int i = 0; i < n; i++) {
		int at = i == n - 1 && first >= n ? first : i;

		lines[i] = output_of(r, at, stream);
		t[i] = (struct alike){lines[i], at, 0};
	}
	add_sets(r, "output", "output", t, n, spool_names[stream], OUTPUT_SIZE);
	for (int i = 0; i < n; i++)
		free(lines[i]);
	free(t);
}

static void
add_results(struct report *r)
{
	const struct cell *c = r->c;
	struct alike *t = xcalloc((size_t)c->n + 1, sizeof(*t));

	for (int i = 0; i < c->n; i++)
		t[i] = (struct alike){c->w->subtasks[i].value, i, 0};
	add_sets(r, "result", "results", t, c->n, NULL, VALUE_SIZE);
	free(t);
}

/* ---- where the rest is ---- */

static void
add_path(struct report *r, const char *path)
{
	struct field f = text_field(NULL, path);

	add(r, "see", "see", &f, 1);
}

static void
add_file(struct report *r, int rank, const char *name)
{
	char *path = rank >= 0 ? xasprintf("cells/%d/rank%d/%s", r->c->number, rank, name)
			       : xasprintf("cells/%d/%s", r->c->number, name);

	add_path(r, path);
	free(path);
}

/* Is a text of any rank longer than what a report shows? */
static bool
is_long(const struct cell *c)
{
	for (int i = 0; i < c->n; i++)
		if (strlen(c->w->subtasks[i].value) > VALUE_SIZE)
			return true;
	return false;
}

static void
add_paths(struct report *r)
{
	const struct task *w = r->c->w;
	int rank = w->first >= 0 ? r->c->ranks[w->first] : -1;

	if (!w->done && w->begun)
		add_path(r, "stall");
	if (rank >= 0 && *w->subtasks[w->first].traceback)
		add_file(r, -1, "traceback");
	if (rank >= 0 && strstr(w->subtasks[w->first].digest, "frame "))
		add_file(r, rank, "locals");
	if (rank >= 0 && w->begun && w->subtasks[w->first].no == EHOSTDOWN)
		add_file(r, rank, "stderr"); /* the whole stack of a crash */
	if (w->begun)
		add_file(r, rank >= 0 ? rank : r->c->ranks[0], "stdout");
	if (is_long(r->c))
		add_file(r, -1, "result");
}

static void
add_left_out(struct report *r)
{
	r->is_last = true;
	for (int i = 0; i < r->left_out.n; i++) {
		const struct left_out_kind *k = &r->left_out.kind[i];
		struct buf b = {0};
		struct field f[2];

		left_out_print(k, &b);
		f[0] = text_field("what", b.p);
		f[1] = text_field("see", k->see ? k->see : "");
		add(r, "left_out", "left_out", f, k->see ? 2 : 1);
		buf_free(&b);
	}
}

/* ---- the whole ---- */

static void
add_head(struct report *r)
{
	const struct cell *c = r->c;
	const struct task *w = c->w;
	struct buf b = {0};
	struct alike all = {"", 0, c->n}, *each = xcalloc((size_t)c->n + 1, sizeof(*each));

	if (c->notice)
		add_clipped(r, "notice", slice_text(c->notice), ERROR_SIZE);
	add_number(r, "cell", c->number, 0);
	add_text(r, "state", task_state(w));
	if (w->err.no)
		add_text(r, "errno", err_name(w->err.no));
	for (int i = 0; i < c->n; i++)
		each[i].i = i;
	each[0].n = all.n;
	spell_ranks(r, each, &b);
	add_text(r, "ranks", b.n ? b.p : "");
	if (w->begun)
		add_number(r, "seconds", task_seconds(w), 3);
	if (w->owner.pid) {
		add_number(r, "pid", w->owner.pid, 0);
		add_clipped(r, "program", slice_text(w->owner.program), CODE_SIZE);
	}
	buf_free(&b);
	free(each);
}

static void
collect(struct report *r)
{
	const struct task *w = r->c->w;

	add_head(r);
	if (w->err.no)
		add_failure(r);
	if (r->now)
		add_now(r);
	else if (w->done)
		add_pace(r);
	if (r->now || w->err.no) {
		add_said(r, "where");
		add_locals(r);
	}
	add_paths(r);
	if (!w->begun)
		return;
	add_output(r, SPOOL_STDERR);
	add_output(r, SPOOL_STDOUT);
	add_results(r);
	add_figures(r);
	add_said(r, "set");
	add_said(r, "gone");
	add_peak(r);
}

static void
print_text(const struct report *r, struct buf *out)
{
	for (int i = 0; i < r->n; i++)
		buf_adds(out, r->part[i].text);
}

static void
print_json(const struct report *r, struct buf *out)
{
	const char *list = NULL;

	buf_addc(out, '{');
	for (int i = 0; i < r->n; i++) {
		const struct part *p = &r->part[i];

		if (list && p->list != list)
			buf_addc(out, ']');
		buf_adds(out, i ? "," : "");
		if (p->list && p->list != list)
			buf_addf(out, "\"%s\":[", p->list);
		buf_adds(out, p->json);
		list = p->list;
	}
	buf_adds(out, list ? "]" : "");
	buf_adds(out, "}\n");
}

void
report_print(struct cell *c, const struct report_now *now, bool as_json, struct buf *out)
{
	struct report r = {.c = c, .now = now};

	collect(&r);
	add_left_out(&r);
	if (as_json)
		print_json(&r, out);
	else
		print_text(&r, out);
	for (int i = 0; i < r.n; i++) {
		free(r.part[i].text);
		free(r.part[i].json);
	}
	left_out_free(&r.left_out);
}
