/* The fake agent: messages of the daemon, children, and what engines say. What a
 * cell does is in words.c, the processes are in child.c. */
#include "fake.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* PUT_MAX: bytes of a push; a sparse file may claim to have any number */
enum { DELAY_MAX_MS = 4, PUT_MAX = 64 << 20 };

struct engine_list engines = TAILQ_HEAD_INITIALIZER(engines);
struct loop *loop;
static struct conn *up;
static unsigned seed; /* 0: no delays */
static uint32_t handles;

/* Is this to go wrong? DDIP_FAKE_ONCE names a file that is there as long as it is. */
static bool
wrong(const char *word)
{
	const char *s = getenv("DDIP_FAKE"), *once = getenv("DDIP_FAKE_ONCE");
	size_t n = strlen(word);

	if (once && access(once, F_OK) < 0)
		return false;
	while (s && *s) {
		size_t k = strcspn(s, " ");

		if (k == n && strncmp(s, word, n) == 0)
			return true;
		s += k + (s[k] == ' ');
	}
	return false;
}

static struct slice
text(const char *s)
{
	return (struct slice){s, strlen(s)};
}

/* ---- what engines say ---- */

static void
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
	loop_timer_del(e->timer);
	loop_fd_del(e->watch);
	close(e->orders);
	close(e->answers);
	if (e->spooled)
		spool_writer_close(&e->spool);
	free(e->dir);
	free(e->name);
	free(e->put_name);
	free(e->put_value);
	free(e->moved);
	free(e->source);
	free(e->value);
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

/* One message goes out; the next one later. */
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
engine_say(struct engine *e, int type, int flags, uint32_t tag, ...)
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
engine_refuse(struct engine *e, uint32_t tag, int no, const char *why)
{
	engine_say(e, Rerror, 0, tag, (uint32_t)no, text(why), (struct slice){0});
}

void
engine_ran(struct engine *e, int outcome, const char *error, const char *traceback)
{
	char *table = engine_table(e);
	struct spool_mark at = spool_writer_cut(&e->spool);

	engine_say(e, Rrun, FLAG_MARK, e->tag, (uint32_t)outcome,
	    text(outcome == OUT_OK ? e->value : ""), text(error), text(traceback), text(table),
	    e->collectives, at.size[0], at.size[1], at.size[2], at.records);
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

/* ---- the daemon's messages for the agent ---- */

static void
refuse(const struct msg *m, int no, const char *why)
{
	conn_send(up, Rerror, 0, m->slot, m->tag, -1, (uint32_t)no, text(why), (struct slice){0});
}

static void
do_hello(struct msg *m)
{
	if (wrong("mute"))
		return;
	if (wrong("hello")) {
		refuse(m, EPROTO, "this engine is of another build: reinstall both");
		return;
	}
	conn_send(up, Rhello, 0, m->slot, m->tag, -1,
	    (uint32_t)(wrong("version") ? 99 : WIRE_VERSION), (uint32_t)getpid(), text("fake"));
}

static void
do_zygote(struct msg *m)
{
	uint32_t zygote;

	wire_unpack(m, NULL, &zygote, NULL, NULL, NULL, NULL);
	if (wrong("warm"))
		refuse(m, ENOENT, "python3: there is no such interpreter");
	else
		conn_send(up, Rzygote, 0, m->slot, m->tag, -1, zygote, text("imports_ms 1"));
}

static void
do_spawn(struct msg *m)
{
	struct slice dir, name;
	struct err err = {0};
	struct engine *e;
	uint8_t kind;

	if (wire_unpack(m, &err, &kind, NULL, &dir, &name, NULL, NULL) < 0)
		die("%s", err.text);
	if (wrong("spawn") || (kind == ENGINE_STORE && wrong("store"))) {
		refuse(m, EAGAIN, "fork: no more processes");
		return;
	}
	e = xcalloc(1, sizeof(*e));
	*e = (struct engine){
	    .slot = m->slot, .kind = kind, .dir = slice_dup(dir), .name = slice_dup(name)};
	e->value = xstrdup("");
	TAILQ_INIT(&e->variables);
	TAILQ_INIT(&e->said);
	if (kind == ENGINE_RANK) {
		if (spool_writer_open(&e->spool, e->dir, e->name, &err) < 0) {
			refuse(m, err.no, err.text);
			free(e->dir);
			free(e->name);
			free(e->value);
			free(e);
			return;
		}
		e->spooled = true;
	}
	TAILQ_INSERT_TAIL(&engines, e, link);
	child_fork(e);
	engine_say(e, Rspawn, 0, m->tag, (uint32_t)e->pid, text("zygote"));
	if (kind == ENGINE_RANK && wrong("spawn_failed"))
		child_order(e, "exit 3\n");
	else
		engine_say(e, Nstarted, 0, 0, (uint32_t)e->pid, kind == ENGINE_STORE ? 29500u : 0u,
		    text("fork_ms 1\n"));
}

/* ---- for an engine ---- */

static void
do_signal(struct engine *e, struct msg *m)
{
	uint32_t signo;

	if (wire_unpack(m, NULL, &signo, NULL) == 0)
		kill(e->pid, (int)signo);
}

/* A rank in the middle of something takes no polite end, a store does. */
static void
do_quit(struct engine *e, struct msg *m)
{
	if (!e->running)
		child_order(e, "exit 0\n");
}

static void
do_init(struct engine *e, struct msg *m)
{
	char *table = engine_table(e);

	wire_unpack(m, NULL, &e->rank, &e->size, NULL, &e->generation, NULL, NULL);
	if (wrong("init"))
		engine_refuse(e, m->tag, ENOENT, "ModuleNotFoundError: No module named 'torch'");
	else
		engine_say(e, Rinit, 0, m->tag, text(""), text(table));
	free(table);
}

static void
do_run(struct engine *e, struct msg *m)
{
	struct spool_mark at = spool_writer_cut(&e->spool);
	struct slice source;
	uint32_t cell;

	wire_unpack(m, NULL, &cell, NULL, &source);
	engine_say(e, Nmark, 0, 0, m->tag, at.size[0], at.size[1], at.size[2], at.records);
	words_begin(e, m->tag, cell, source);
}

static void
do_put(struct engine *e, struct msg *m)
{
	struct slice name;
	uint64_t size;
	char *value;

	wire_unpack(m, NULL, &name, NULL, NULL, &size);
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
		free(e->put_name);
		free(e->put_value);
		e->put_name = slice_dup(name);
		e->put_value = xstrndup(value, strcspn(value, "\n"));
		engine_say(e, Rput, 0, m->tag);
	}
	free(value);
}

static void
say_table(struct engine *e, int type, uint32_t tag)
{
	char *table = engine_table(e);

	engine_say(e, type, 0, tag, text(table));
	free(table);
}

/* As a push: the value under the other name, the old one goes at Tcommit. */
static void
do_move(struct engine *e, struct msg *m)
{
	struct slice from, to;
	struct variable *v;
	char *name;

	wire_unpack(m, NULL, &from, &to);
	name = slice_dup(from);
	v = engine_variable(e, name);
	if (!v) {
		engine_refuse(e, m->tag, ENOENT, "no such variable");
		free(name);
		return;
	}
	free(e->put_name);
	free(e->put_value);
	free(e->moved);
	e->put_name = slice_dup(to);
	e->put_value = xstrdup(v->value);
	e->moved = name;
	engine_say(e, Rmove, 0, m->tag);
}

static void
do_commit(struct engine *e, struct msg *m)
{
	uint8_t keep;

	if (wire_unpack(m, NULL, &keep) == 0 && keep) {
		if (e->moved)
			engine_unset(e, e->moved);
		engine_set(e, e->put_name, e->put_value);
	}
	free(e->moved);
	e->moved = NULL;
	say_table(e, Rcommit, m->tag);
}

static void
do_del(struct engine *e, struct msg *m)
{
	struct slice name;
	char *s;

	wire_unpack(m, NULL, &name);
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
	wire_unpack(m, NULL, &e->generation);
	if (wrong("rebuild"))
		engine_refuse(e, m->tag, EIO, "the store does not answer");
	else
		engine_say(e, Rrebuild, 0, m->tag, text(""));
}

static void
do_get(struct engine *e, struct msg *m)
{
	struct slice name;
	struct variable *v;
	char *s;

	wire_unpack(m, NULL, &name, NULL, NULL);
	s = slice_dup(name);
	v = engine_variable(e, s);
	free(s);
	if (!v) {
		engine_refuse(e, m->tag, ENOENT, "no such variable");
		return;
	}
	s = xasprintf("%s\n", v->value);
	engine_say(e, Rget, 0, m->tag, (uint32_t)GET_BYTES, ++handles, (uint64_t)0,
	    (uint64_t)strlen(s), text(s));
	free(s);
}

static void
do_has(struct engine *e, struct msg *m)
{
	struct slice name;
	char *s;

	wire_unpack(m, NULL, &name);
	s = slice_dup(name);
	engine_say(e, Rhas, 0, m->tag, engine_variable(e, s) ? 1u : 0u);
	free(s);
}

static void
do_free(struct engine *e, struct msg *m)
{
}

static void
do_gc(struct engine *e, struct msg *m)
{
	engine_say(e, Rgc, 0, m->tag, text("objects=0"));
}

static void
do_stack(struct engine *e, struct msg *m)
{
	engine_say(e, Rstack, 0, m->tag, text(e->waits == WAIT_REDUCE ? "reduce" : ""), (uint64_t)0,
	    0u,
	    text("Thread 1 (most recent call first):\n  File \"<cell>\", line 1 in <module>\n"));
}

static void
do_intr(struct engine *e, struct msg *m)
{
	uint32_t cell;

	if (wire_unpack(m, NULL, &cell) == 0)
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

	if (wire_unpack(m, NULL, &data) == 0)
		words_input(e, data);
}

static const struct {
	int type;
	void (*agent)(struct msg *m); /* either */
	void (*engine)(struct engine *e, struct msg *m);
} rows[] = {
    {Thello, do_hello, NULL},
    {Tzygote, do_zygote, NULL},
    {Tspawn, do_spawn, NULL},
    {Nsignal, NULL, do_signal},
    {Nquit, NULL, do_quit},
    {Tinit, NULL, do_init},
    {Trun, NULL, do_run},
    {Tput, NULL, do_put},
    {Tcommit, NULL, do_commit},
    {Tdel, NULL, do_del},
    {Tmove, NULL, do_move},
    {Treset, NULL, do_reset},
    {Trebuild, NULL, do_rebuild},
    {Tget, NULL, do_get},
    {Thas, NULL, do_has},
    {Nfree, NULL, do_free},
    {Tgc, NULL, do_gc},
    {Tstack, NULL, do_stack},
    {Nintr, NULL, do_intr},
    {Nabort, NULL, do_abort},
    {Nstdin, NULL, do_stdin},
};

static struct engine *
find(unsigned slot)
{
	struct engine *e;

	TAILQ_FOREACH (e, &engines, link)
		if (e->slot == slot && !e->gone)
			return e;
	return NULL;
}

static void
on_message(void *arg, struct msg *m)
{
	struct engine *e = find(m->slot);

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (rows[i].type != m->type)
			continue;
		if (rows[i].agent)
			rows[i].agent(m);
		else if (e)
			rows[i].engine(e, m);
		else if (m->tag)
			refuse(m, EHOSTDOWN, "the engine has ended");
		return;
	}
	if (m->tag)
		refuse(m, ENOSYS, "the fake engine does not know this message");
}

static void
on_close(void *arg, const struct err *e)
{
	if (e->no)
		note("%s", e->text);
	loop_stop(loop);
}

int
main(int argc, char **argv)
{
	const char *s = getenv("DDIP_FAKE_SEED");
	struct engine *e;
	int fd;

	note_as("fake-engine");
	seed = s ? (unsigned)strtoul(s, NULL, 10) : 0;
	fd = fcntl(0, F_DUPFD_CLOEXEC, 10);
	if (fd < 0)
		die("want the daemon on descriptor 0: %s", strerrordesc_np(errno));
	signal(SIGPIPE, SIG_IGN);
	loop = loop_new();
	loop_signal(loop, SIGCHLD, child_ended, NULL);
	up = conn_new(loop, fd, fd, on_message, on_close, NULL);
	loop_run(loop);
	while ((e = TAILQ_FIRST(&engines))) {
		kill(e->pid, SIGKILL);
		engine_free(e);
	}
	while (waitpid(-1, NULL, 0) > 0)
		;
	conn_free(up);
	loop_free(loop);
	return 0;
}
