/*
 * A signal that kills Python has it write the stacks of all threads, innermost frame first, and the
 * names of all extension modules. Below the user's frames are those of the engine.
 */
#include "group/last_words.h"
#include "group/frames.h"
#include <string.h>

enum { LAST_WORDS_MAX = 600 };

#define FATAL "Fatal Python error: " /* written by faulthandler */
#define ORDER "(most recent call first):\n"
#define MODULES "Extension modules: "
/* written by the C++ runtime */
#define UNCAUGHT "terminate called after throwing"
#define WHAT "\n  what():  "

static bool
begins_with(struct slice s, const char *word)
{
	return s.n >= strlen(word) && memcmp(s.p, word, strlen(word)) == 0;
}

static bool
has(struct slice s, const char *word)
{
	return memmem(s.p, s.n, word, strlen(word)) != NULL;
}

/* Takes a line with its newline off the text. */
static struct slice
next_line(struct slice *text)
{
	const char *newline = memchr(text->p, '\n', text->n);
	struct slice line = {text->p, newline ? (size_t)(newline + 1 - text->p) : text->n};

	text->p += line.n;
	text->n -= line.n;
	return line;
}

/* Takes a frame that is not the engine's off the text, and those of the engine before it. Returns
 * false if there is none. line: the frame's. */
static bool
next_frame(struct slice *text, struct frame *f, struct slice *line)
{
	for (struct slice before = *text; frames_next(text, f); before = *text) {
		*line = (struct slice){before.p, before.n - text->n};
		if (has(f->file, "<ddip_engine importer>")) {
			while (frames_next(text, f))
				; /* what has started the engine */
			return false;
		}
		if (!has(f->file, "<ddip_engine"))
			return true;
	}
	return false;
}

/* Takes the frames at the beginning of the text off it. Appends the user's, or if there are none
 * those of libraries; of equal ones in a row, the first. */
static void
take_stack(struct slice *text, struct buf *out)
{
	struct slice rest = *text, line, last = {0};
	struct frame f;
	bool has_users = false;

	while (next_frame(&rest, &f, &line))
		has_users |= frame_is_users(&f, rest);
	while (next_frame(text, &f, &line)) {
		bool again = last.n == line.n && memcmp(last.p, line.p, line.n) == 0;

		if ((!has_users || frame_is_users(&f, *text)) && !again) {
			buf_add(out, line.p, line.n);
			last = line;
		}
	}
}

/* Lines that do not explain the failure: torch prints a C++ stack with each warning about a lost
 * connection. */
static bool
is_noise(struct slice line)
{
	return begins_with(line, "frame #") || begins_with(line, MODULES) ||
	       begins_with(line, "  ...\n") || *line.p == '\n';
}

void
last_words_plain(struct slice text, struct buf *out)
{
	while (text.n) {
		struct slice line;
		struct frame f;

		while (next_frame(&text, &f, &line))
			buf_add(out, line.p, line.n);
		if (!text.n)
			break;
		line = next_line(&text);
		if (!begins_with(line, MODULES))
			buf_add(out, line.p, line.n);
	}
}

/* The last place of the words in the text; NULL: it has none. */
static char *
find_last(char *text, const char *words)
{
	char *found = NULL;

	for (char *at = text; (at = strstr(at, words)); at++)
		found = at;
	return found;
}

/* Where the explanation of a crash begins: what() of a C++ exception that nobody caught, else
 * Python's stack, which starts with the frame that crashed. NULL: there is neither. */
static char *
crash_words(char *text)
{
	char *thrown = find_last(text, UNCAUGHT), *stack = find_last(text, FATAL);
	char *what = thrown ? strstr(thrown, WHAT) : NULL;

	return what ? what + strlen(WHAT) : stack;
}

/* Cuts the text to LAST_WORDS_MAX, at line boundaries if possible: keeps the beginning of what
 * explains a crash, or else the end of the text. */
static char *
bounded(struct buf *kept, bool crashed)
{
	char *from = crashed ? crash_words(kept->p) : NULL, *line;

	if (from) {
		if (strlen(from) > LAST_WORDS_MAX) {
			from[LAST_WORDS_MAX] = '\0';
			if ((line = strrchr(from, '\n')))
				line[1] = '\0';
		}
		return xstrdup(from);
	}
	from = kept->p + (kept->n > LAST_WORDS_MAX ? kept->n - LAST_WORDS_MAX : 0);
	if (from > kept->p && (line = strchr(from, '\n')) && line[1])
		from = line + 1;
	return xstrdup(from);
}

char *
last_words(struct slice tail, bool crashed)
{
	struct buf kept = {0};
	bool skips = false; /* inside the stack of a thread that did not crash, or of C */
	char *words;

	while (tail.n) {
		struct slice before = tail, line = next_line(&tail);
		struct frame f;

		skips = (skips && line.n > 1) || begins_with(line, "Thread 0x") ||
			begins_with(line, "Current thread's C stack");
		if (skips || is_noise(line))
			continue;
		if (frames_next(&before, &f)) {
			before = (struct slice){line.p, line.n + tail.n};
			take_stack(&before, &kept);
			tail = before;
		} else if (begins_with(line, "Current thread 0x") && has(line, ORDER)) {
			buf_adds(&kept, ORDER); /* its number says nothing */
		} else {
			buf_add(&kept, line.p, line.n);
		}
	}
	for (size_t i = 0; i < kept.n; i++)
		if (kept.p[i] == '\0')
			kept.p[i] = ' ';
	buf_addc(&kept, '\0');
	words = bounded(&kept, crashed);
	buf_free(&kept);
	return words;
}
