/* The lines that tell writers of failures and of waiting: their words, and who gets them. */
#include "tree/tell.h"
#include "base/plain.h"
#include "base/stderr_of.h"
#include "group/hooks.h"
#include "group/queue.h"
#include "group/queue_list.h"
#include "group/registry.h"
#include "group/task.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 400 }; /* bytes of an error's text; a pipe takes a line of 512 in one piece */

/* ---- words ---- */

/* Appends a text as a part of one line, not longer than TEXT_MAX. */
static void
add_text(const char *text, struct buf *out)
{
	struct buf plain = {0};
	size_t n;

	plain_add(&plain, slice_text(text));
	n = MIN(plain.n, (size_t)TEXT_MAX);
	while (n < plain.n && n && (plain.p[n] & 0xc0) == 0x80)
		n--; /* not within a character */
	while (n && (plain.p[n - 1] == '\n' || plain.p[n - 1] == ' '))
		n--;
	for (size_t i = 0; i < n; i++)
		buf_addc(out, plain.p[i] == '\n' || plain.p[i] == '\t' ? ' ' : plain.p[i]);
	if (n < plain.n && plain.p[n] != '\n')
		buf_adds(out, " …");
	buf_free(&plain);
}

/* The text behind "SUBJECT: ", if it begins so. */
static const char *
behind(const char *text, const char *subject)
{
	size_t n = strlen(subject);

	return strncmp(text, subject, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2
										 : text;
}

static const char *
outcome_of(int no)
{
	return no == EINTR ? "was interrupted" : no == ECANCELED ? "was cancelled" : "failed";
}

static bool
has_traceback(const struct task *w)
{
	for (int i = 0; i < w->n; i++)
		if (*w->subtasks[i].traceback)
			return true;
	return false;
}

/* "cell 12 failed on rank 1: ZeroDivisionError: division by zero (cells/12/traceback)" */
static void
add_cell(const struct task *w, struct buf *out)
{
	const char *text = w->err.text, *rest = text;
	char rank[32];

	buf_addf(out, "cell %d %s", w->cell->number, outcome_of(w->err.no));
	if (w->first >= 0) {
		snprintf(rank, sizeof(rank), "rank %d", w->cell->ranks[w->first]);
		rest = behind(text, rank);
		if (rest != text)
			buf_addf(out, " on %s", rank);
	}
	buf_adds(out, ": ");
	add_text(rest, out);
	buf_addf(out, " (cells/%d/%s)", w->cell->number, has_traceback(w) ? "traceback" : "error");
}

/* What a task is to whoever waits for it: the name of the file that was written, or the verb. */
static void
add_subject(const struct task *w, struct buf *out)
{
	static const char *const verbs[TASK_KINDS] = {[TASK_RESET] = "reset",
	    [TASK_FREE] = "free",
	    [TASK_SELFTEST] = "selftest",
	    [TASK_CLONE] = "clone"};
	const struct task_payload *p = &w->payload;

	if (w->cell)
		buf_addf(out, "cell %d", w->cell->number);
	else if (w->kind == TASK_PUT)
		buf_addf(out, "%s%s%s%s%s", p->name, *p->op ? "." : "", p->op, *p->view ? "." : "",
		    p->view);
	else
		buf_adds(out, verbs[w->kind] ? verbs[w->kind] : p->name);
}

static void
add_task(const struct task *w, struct buf *out)
{
	if (w->cell) {
		add_cell(w, out);
		return;
	}
	add_subject(w, out);
	buf_adds(out, ": ");
	add_text(w->kind == TASK_PUT ? behind(w->err.text, w->payload.name) : w->err.text, out);
}

/* A failure of what was written to a file, before there was a task. */
static void
add_error(const struct file *f, const struct err *e, struct buf *out)
{
	struct buf path = {0};
	const char *name;

	tree_path(f->node, &path);
	name = strrchr(path.p, '/') + 1;
	buf_addf(out, "%s: ", name);
	add_text(*e->text ? behind(e->text, name) : err_name(e->no), out);
	buf_free(&path);
}

/* ---- who ---- */

static bool
is_told(const struct file *f)
{
	return f->opener && !(f->flags & O_NOFOLLOW) && !f->node->at.g->set.quiet;
}

/* The words so far: the name of who says them, and of the group, if it is one of several. The
 * caller adds more. */
static struct buf
begin_line(const struct group *g)
{
	struct buf b = {0};

	buf_adds(&b, "ddipfs: ");
	if (TAILQ_FIRST(&groups) != TAILQ_LAST(&groups, group_list))
		buf_addf(&b, "%s: ", g->name);
	return b;
}

/* A request to be answered when the line about it has been written. */
struct held {
	struct req *r;
	int result;
};

static void
answer_held(void *arg)
{
	struct held *h = arg;

	h->r->on_done = NULL;
	req_done(h->r, h->result);
	free(h);
}

/* Ends the line and writes it. Returns whether r is held until then. */
static bool
say(struct req *r, int result, bool to_any, struct buf *line)
{
	struct req_client c = req_client(r);
	struct held *h = xcalloc(1, sizeof(*h));
	struct stderr_line l = {.to = r->file->err, .done = answer_held, .arg = h};
	bool held;

	*h = (struct held){r, result};
	/* an exiting process sees nothing more */
	l.closer = to_any || c.exits ? 0 : c.process;
	buf_addc(line, '\n');
	l.text = line->p;
	held = stderr_of_write(&l);
	if (!held)
		free(h);
	buf_free(line);
	return held;
}

bool
tell_closer(struct req *r, int result)
{
	struct task *w = r->waits_for;
	struct buf line;

	if (!is_told(r->file))
		return false;
	if (result == 0) {
		/* it does not wait any longer */
		if (w && !w->done)
			tell_leaver(r->file, w);
		return false;
	}
	line = begin_line(r->file->node->at.g);
	r->err.no = -result;
	if (w)
		add_task(w, &line);
	else
		add_error(r->file, &r->err, &line);
	return say(r, result, false, &line);
}

bool
tell_text(struct req *r, int result, const char *text)
{
	struct buf line;

	if (result == 0 || !is_told(r->file))
		return false;
	line = begin_line(r->file->node->at.g);
	add_text(text, &line);
	return say(r, result, true, &line);
}

static void
say_later(struct stderr_of *to, struct buf *line)
{
	buf_addc(line, '\n');
	stderr_of_write(&(struct stderr_line){.to = to, .text = line->p});
	buf_free(line);
}

void
tell_error(struct file *f, const struct err *e)
{
	struct buf line;

	if (!is_told(f))
		return;
	line = begin_line(f->node->at.g);
	add_error(f, e, &line);
	say_later(f->err, &line);
}

/* ---- a writer that does not wait ---- */

/* Waits in its place. */
struct stand_in {
	struct req r;
	struct stderr_of *to;
};

static bool
stand_in_done(struct req *r, int result)
{
	struct stand_in *s = (struct stand_in *)r;
	const struct task *w = r->waits_for;
	struct buf line;

	if (result < 0 && !w->g->set.quiet) {
		line = begin_line(w->g);
		add_task(w, &line);
		say_later(s->to, &line);
	}
	stderr_of_unref(s->to);
	free(s);
	return true;
}

void
tell_later(struct stderr_of *to, struct task *w)
{
	struct stand_in *s;

	if (!to)
		return;
	s = xcalloc(1, sizeof(*s));
	*s = (struct stand_in){.r.on_done = stand_in_done, .to = stderr_of_ref(to)};
	req_of_nobody(&s->r);
	task_wait(w, &s->r);
}

void
tell_leaver(struct file *f, struct task *w)
{
	if (is_told(f) && !(f->flags & O_NONBLOCK))
		tell_later(f->err, w);
}

/* ---- waiting ---- */

/* The task that runs where this one is queued; NULL: none, its ranks are not ready. */
static const struct task *
runs_before(const struct task *w)
{
	for (int i = 0; i < w->n; i++) {
		const struct subtask *j = &w->subtasks[i];

		if (j->state == SUBTASK_QUEUED && queue_running(j->k))
			return queue_running(j->k)->w;
	}
	return NULL;
}

/* A task has been in the queue for a while. */
static void
on_waits(struct task *w)
{
	const struct task *before = runs_before(w);
	struct req *r;

	TAILQ_FOREACH (r, &w->waiters, link) {
		struct buf line;

		if (!before || w->payload.watches || !r->file || !r->file->err || !is_told(r->file))
			continue;
		line = begin_line(w->g);
		add_subject(w, &line);
		buf_adds(&line, w->payload.steer ? " waits for a step of " : " waits for ");
		add_subject(before, &line);
		queue_list_owner(before, &line);
		say_later(r->file->err, &line);
	}
}

void
tell_init(void)
{
	group_news.task_waits = on_waits;
}
