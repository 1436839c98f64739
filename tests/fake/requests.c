/* The daemon's messages to an engine of the fake agent. What a cell does is in words.c. */
#include "fake.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PUT_MAX = 64 << 20 }; /* bytes of a push; a sparse file may claim any size */

static uint32_t handles;

static void
do_signal(struct engine *e, struct msg *m)
{
	uint32_t signo;

	if (wire_unpack(m, Nsignal, NULL, &signo, NULL) == 0)
		kill(e->child.pid, (int)signo);
}

/* A rank that is running a cell does not react to a polite quit; a store always does. */
static void
do_quit(struct engine *e, struct msg *m)
{
	if (!e->run.running)
		child_order(e, "exit 0\n");
}

static void
do_init(struct engine *e, struct msg *m)
{
	char *table = engine_table(e);

	wire_unpack(m, Tinit, NULL, &e->rank, &e->size, NULL, &e->generation, NULL, NULL);
	if (fake_wrong("knownbad") && e->rank == 0)
		engine_say(e, Nknownbad, 0, 0, slice_text("NCCL 2.28.5: some jobs hang"));
	if (fake_wrong("init"))
		engine_refuse(e, m->tag, ENOENT, "ModuleNotFoundError: No module named 'torch'");
	else
		engine_say(e, Rinit, 0, m->tag, slice_text(""), slice_text(table));
	free(table);
}

static void
do_run(struct engine *e, struct msg *m)
{
	struct spool_mark at = spool_writer_cut(&e->spool);
	struct slice source;
	uint32_t cell;

	wire_unpack(m, Trun, NULL, &cell, NULL, &source);
	engine_say(e, Nmark, 0, 0, m->tag, at.size[0], at.size[1], at.size[2], at.records);
	words_begin(e, m->tag, cell, source);
}

static void
do_put(struct engine *e, struct msg *m)
{
	struct slice name;
	uint64_t size;
	char *value;

	wire_unpack(m, Tput, NULL, &name, NULL, NULL, &size);
	if (size > PUT_MAX) {
		engine_refuse(e, m->tag, EFBIG, "more than a fake takes");
		return;
	}
	value = xcalloc(1, (size_t)size + 1);
	if (m->fd < 0 || pread(m->fd, value, (size_t)size, 0) != (ssize_t)size) {
		engine_refuse(e, m->tag, EIO, "the bytes did not come");
	} else if (strncmp(value, "bad", 3) == 0) {
		engine_refuse(e, m->tag, EBADMSG, "these bytes do not decode");
	} else {
		free(e->put.name);
		free(e->put.value);
		e->put.name = slice_dup(name);
		e->put.value = xstrndup(value, strcspn(value, "\n"));
		engine_say(e, Rput, 0, m->tag);
	}
	free(value);
}

static void
say_table(struct engine *e, int type, uint64_t tag)
{
	char *table = engine_table(e);

	engine_say(e, type, 0, tag, slice_text(table));
	free(table);
}

/* Like a push: stages the value under the new name; Tcommit removes the old one. */
static void
do_move(struct engine *e, struct msg *m)
{
	struct slice from, to;
	struct variable *v;
	char *name;

	wire_unpack(m, Tmove, NULL, &from, &to);
	name = slice_dup(from);
	v = engine_variable(e, name);
	if (!v) {
		engine_refuse(e, m->tag, ENOENT, "no such variable");
		free(name);
		return;
	}
	free(e->put.name);
	free(e->put.value);
	free(e->put.moved);
	e->put.name = slice_dup(to);
	e->put.value = xstrdup(v->value);
	e->put.moved = name;
	engine_say(e, Rmove, 0, m->tag);
}

static void
do_commit(struct engine *e, struct msg *m)
{
	uint8_t keep;

	if (wire_unpack(m, Tcommit, NULL, &keep) == 0 && keep) {
		if (e->put.moved)
			engine_unset(e, e->put.moved);
		engine_set(e, e->put.name, e->put.value);
	}
	free(e->put.moved);
	e->put.moved = NULL;
	say_table(e, Rcommit, m->tag);
}

static void
do_del(struct engine *e, struct msg *m)
{
	struct slice name;
	char *s;

	wire_unpack(m, Tdel, NULL, &name);
	s = slice_dup(name);
	if (engine_unset(e, s))
		say_table(e, Rdel, m->tag);
	else
		engine_refuse(e, m->tag, ENOENT, "no such variable");
	free(s);
}

static void
do_reset(struct engine *e, struct msg *m)
{
	struct variable *v;

	while ((v = TAILQ_FIRST(&e->variables)))
		engine_unset(e, v->name);
	say_table(e, Rreset, m->tag);
}

static void
do_rebuild(struct engine *e, struct msg *m)
{
	wire_unpack(m, Trebuild, NULL, &e->generation, NULL);
	if (fake_wrong("rebuild"))
		engine_refuse(e, m->tag, EIO, "the store does not answer");
	else
		engine_say(e, Rrebuild, 0, m->tag, slice_text(""));
}

/* The namespace as lines `NAME VALUE`. */
static void
give_clone(struct engine *e, uint64_t tag)
{
	struct variable *v;
	struct buf b = {0};

	if (fake_wrong("clone-from")) {
		engine_refuse(e, tag, EOPNOTSUPP, "the namespace cannot be read");
		return;
	}
	TAILQ_FOREACH (v, &e->variables, link)
		buf_addf(&b, "%s %s\n", v->name, v->value);
	engine_say(e, Rget, 0, tag, (uint32_t)GET_BYTES, ++handles, (uint64_t)0, (uint64_t)b.n,
	    ((struct slice){b.p, b.n}));
	buf_free(&b);
}

static void
do_get(struct engine *e, struct msg *m)
{
	struct slice name;
	struct variable *v;
	char *s;

	wire_unpack(m, Tget, NULL, &name, NULL, NULL);
	s = slice_dup(name);
	if (strcmp(s, "__main__") == 0) {
		free(s);
		give_clone(e, m->tag);
		return;
	}
	v = engine_variable(e, s);
	free(s);
	if (!v) {
		engine_refuse(e, m->tag, ENOENT, "no such variable");
		return;
	}
	s = xasprintf("%s\n", v->value);
	engine_say(e, Rget, 0, m->tag, (uint32_t)GET_BYTES, ++handles, (uint64_t)0,
	    (uint64_t)strlen(s), slice_text(s));
	free(s);
}

static void
do_has(struct engine *e, struct msg *m)
{
	struct slice name;
	char *s;

	wire_unpack(m, Thas, NULL, &name);
	s = slice_dup(name);
	engine_say(e, Rhas, 0, m->tag, engine_variable(e, s) ? 1u : 0u, slice_text(""));
	free(s);
}

static void
do_free(struct engine *e, struct msg *m)
{
}

/* Takes the lines of give_clone(), but none whose value begins with `bad`. */
static void
do_clone(struct engine *e, struct msg *m)
{
	struct buf failures = {0};
	uint32_t names = 0;
	uint64_t size;
	char *lines, *save, *table;

	wire_unpack(m, Tclone, NULL, &size);
	lines = xcalloc(1, (size_t)MIN(size, (uint64_t)PUT_MAX) + 1);
	if (m->fd < 0 || pread(m->fd, lines, (size_t)size, 0) != (ssize_t)size)
		engine_refuse(e, m->tag, EIO, "the bytes did not come");
	else {
		for (char *s = strtok_r(lines, "\n", &save); s; s = strtok_r(NULL, "\n", &save)) {
			char *value = strchr(s, ' ');

			*value++ = '\0';
			if (strncmp(value, "bad", 3) == 0) {
				buf_addf(&failures, "%s: an open file\n", s);
				continue;
			}
			engine_set(e, s, value);
			names++;
		}
		table = engine_table(e);
		engine_say(e, Rclone, 0, m->tag, slice_text(table),
		    ((struct slice){failures.p, failures.n}), names,
		    fake_wrong("wrapped") ? 1u : 0u);
		free(table);
	}
	buf_free(&failures);
	free(lines);
}

static void
do_gc(struct engine *e, struct msg *m)
{
	engine_say(e, Rgc, 0, m->tag, slice_text("objects=0"));
}

static void
do_selftest(struct engine *e, struct msg *m)
{
	engine_say(e, Rselftest, 0, m->tag, slice_text("all_reduce 4 1 float32 1.0 0\n"), 0u, 0u);
}

static void
do_stack(struct engine *e, struct msg *m)
{
	engine_say(e, Rstack, 0, m->tag, slice_text(e->run.waits == WAIT_REDUCE ? "reduce" : ""),
	    (uint64_t)0, 0u, 0u,
	    slice_text(
		"Thread 1 (most recent call first):\n  File \"<cell>\", line 1 in <module>\n"),
	    slice_text(""));
}

static void
do_intr(struct engine *e, struct msg *m)
{
	uint32_t cell;
	uint8_t why;

	if (wire_unpack(m, Nintr, NULL, &cell, &why) == 0)
		words_interrupt(e, cell);
}

static void
do_abort(struct engine *e, struct msg *m)
{
	words_abort(e);
}

static void
do_stdin(struct engine *e, struct msg *m)
{
	struct slice data;

	if (wire_unpack(m, Nstdin, NULL, &data) == 0)
		words_input(e, data);
}

static const struct {
	int type;
	void (*answer)(struct engine *e, struct msg *m);
} rows[] = {
    {Nsignal, do_signal},
    {Nquit, do_quit},
    {Tinit, do_init},
    {Trun, do_run},
    {Tput, do_put},
    {Tcommit, do_commit},
    {Tdel, do_del},
    {Tmove, do_move},
    {Treset, do_reset},
    {Tclone, do_clone},
    {Trebuild, do_rebuild},
    {Tget, do_get},
    {Thas, do_has},
    {Nfree, do_free},
    {Tgc, do_gc},
    {Tselftest, do_selftest},
    {Tstack, do_stack},
    {Nintr, do_intr},
    {Nabort, do_abort},
    {Nstdin, do_stdin},
};

bool
request_is(int type)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].type == type)
			return true;
	return false;
}

int
request_type(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (strcmp(wire_name(rows[i].type), name) == 0)
			return rows[i].type;
	return 0;
}

void
request_answer(struct engine *e, struct msg *m)
{
	if (e->refuses.left && e->refuses.type == m->type) {
		e->refuses.left--;
		engine_refuse(e, m->tag, (int)e->refuses.number++, "a number");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].type == m->type)
			rows[i].answer(e, m);
}
