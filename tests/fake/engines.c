/* The engines of the fake agent: their messages, one after the other and possibly delayed, and
 * their variables. */
#include "fake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DELAY_MAX_MS = 4 };

struct engine_list engines = TAILQ_HEAD_INITIALIZER(engines);
static struct conn *up;
static unsigned seed; /* 0: no delays */

void
engine_init(struct conn *daemon, unsigned delays)
{
	up = daemon;
	seed = delays;
}

void
engine_free(struct engine *e)
{
	struct variable *v;
	struct frame *f;

	TAILQ_REMOVE(&engines, e, link);
	while ((v = TAILQ_FIRST(&e->variables)))
		engine_unset(e, v->name);
	while ((f = TAILQ_FIRST(&e->said))) {
		TAILQ_REMOVE(&e->said, f, link);
		buf_free(&f->bytes);
		free(f);
	}
	loop_timer_del(e->mouth);
	loop_timer_del(e->run.timer);
	loop_fd_del(e->child.watch);
	close(e->child.orders);
	close(e->child.answers);
	if (e->spooled)
		spool_writer_close(&e->spool);
	free(e->dir);
	free(e->name);
	free(e->put.name);
	free(e->put.value);
	free(e->put.moved);
	free(e->run.source);
	free(e->run.value);
	free(e);
}

static void
forward(struct frame *f)
{
	struct msg m;

	if (wire_frame(f->bytes.p, f->bytes.n, &m, NULL) > 0)
		conn_forward(up, &m);
	buf_free(&f->bytes);
	free(f);
}

/* Sends one message, and the next one later. */
static void
speak(void *arg)
{
	struct engine *e = arg;
	struct frame *f = TAILQ_FIRST(&e->said);

	e->mouth = NULL;
	TAILQ_REMOVE(&e->said, f, link);
	forward(f);
	if (!TAILQ_EMPTY(&e->said))
		e->mouth = loop_timer(loop, (unsigned)rand_r(&seed) % DELAY_MAX_MS, speak, e);
	else if (e->gone)
		engine_free(e);
}

void
engine_say(struct engine *e, int type, int flags, uint64_t tag, ...)
{
	struct frame *f = xcalloc(1, sizeof(*f));
	va_list ap;

	va_start(ap, tag);
	wire_vpack(&f->bytes, type, flags, e->slot, tag, ap);
	va_end(ap);
	if (!seed) {
		forward(f);
		return;
	}
	TAILQ_INSERT_TAIL(&e->said, f, link);
	if (!e->mouth)
		e->mouth = loop_timer(loop, (unsigned)rand_r(&seed) % DELAY_MAX_MS, speak, e);
}

void
engine_refuse(struct engine *e, uint64_t tag, int no, const char *why)
{
	engine_say(e, Rerror, 0, tag, (uint32_t)no, slice_text(why), (struct slice){0});
}

void
engine_ran(struct engine *e, int outcome, const char *error, const char *traceback)
{
	char *table = engine_table(e);
	struct spool_mark at = spool_writer_cut(&e->spool);

	engine_say(e, Rrun, FLAG_MARK, e->run.tag, (uint32_t)outcome,
	    slice_text(outcome == OUT_OK ? e->run.value : ""), slice_text(error),
	    slice_text(traceback), slice_text(table), slice_text(""), e->run.collectives,
	    at.size[0], at.size[1], at.size[2], at.records);
	free(table);
}

void
engine_gone(struct engine *e)
{
	e->gone = true;
	if (!seed)
		engine_free(e);
}

void
engine_nonsense(void)
{
	(void)!write(conn_fd(up), "\1\0\0\0\377\377\377\377\377\377\377\377", 12);
}

/* ---- variables ---- */

struct variable *
engine_variable(const struct engine *e, const char *name)
{
	struct variable *v;

	TAILQ_FOREACH (v, &e->variables, link)
		if (strcmp(v->name, name) == 0)
			return v;
	return NULL;
}

void
engine_set(struct engine *e, const char *name, const char *value)
{
	struct variable *v = engine_variable(e, name);

	if (!v) {
		v = xcalloc(1, sizeof(*v));
		v->name = xstrdup(name);
		TAILQ_INSERT_TAIL(&e->variables, v, link);
	}
	free(v->value);
	v->value = xstrdup(value);
}

bool
engine_unset(struct engine *e, const char *name)
{
	struct variable *v = engine_variable(e, name);

	if (!v)
		return false;
	TAILQ_REMOVE(&e->variables, v, link);
	free(v->name);
	free(v->value);
	free(v);
	return true;
}

char *
engine_table(const struct engine *e)
{
	struct variable *v;
	struct buf b = {0};

	TAILQ_FOREACH (v, &e->variables, link)
		buf_addf(&b, "%s\tstr\t-\t-\t%zu\tcpu\n", v->name, strlen(v->value));
	return buf_take(&b);
}

struct engine *
engine_find(unsigned slot)
{
	struct engine *e;

	TAILQ_FOREACH (e, &engines, link)
		if (e->slot == slot && !e->gone)
			return e;
	return NULL;
}
