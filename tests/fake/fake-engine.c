/* The fake agent: its connection, and the daemon's messages to the agent itself. */
#include "fake.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DECIMAL = 10 };

struct loop *loop;
static struct conn *up;

bool
fake_wrong(const char *word)
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

static void
refuse(const struct msg *m, int no, const char *why)
{
	conn_send(
	    up, Rerror, 0, m->slot, m->tag, -1, (uint32_t)no, slice_text(why), (struct slice){0});
}

static char *base;

static void
do_hello(struct msg *m)
{
	struct slice dir;

	if (wire_unpack(m, Thello, NULL, NULL, &dir) < 0)
		die("Thello");
	free(base);
	base = slice_dup(dir);
	if (fake_wrong("mute"))
		return;
	if (fake_wrong("hello")) {
		refuse(m, EPROTO, "this engine is of another build: reinstall both");
		return;
	}
	conn_send(up, Rhello, 0, m->slot, m->tag, -1,
	    (uint32_t)(fake_wrong("version") ? 99 : WIRE_VERSION), (uint32_t)getpid(),
	    slice_text("fake"), 0u);
}

static void
do_zygote(struct msg *m)
{
	uint32_t zygote;

	wire_unpack(m, Tzygote, NULL, &zygote, NULL, NULL, NULL, NULL);
	if (fake_wrong("zygote"))
		refuse(m, ENOENT, "python3: there is no such interpreter");
	else
		conn_send(up, Rzygote, 0, m->slot, m->tag, -1, zygote, slice_text("imports_ms 1"));
}

static void
do_spawn(struct msg *m)
{
	struct slice dir, name;
	struct err err = {0};
	struct engine *e;
	uint8_t kind;

	if (wire_unpack(m, Tspawn, &err, &kind, NULL, &dir, &name, NULL, NULL) < 0)
		die("%s", err.text);
	if (fake_wrong("spawn") || (kind == ENGINE_STORE && fake_wrong("store"))) {
		refuse(m, EAGAIN, "fork: no more processes");
		return;
	}
	e = xcalloc(1, sizeof(*e));
	*e = (struct engine){.slot = m->slot, .kind = kind, .name = slice_dup(name)};
	e->dir = xasprintf("%s/%.*s", base, (int)dir.n, dir.p);
	e->run.value = xstrdup("");
	TAILQ_INIT(&e->variables);
	TAILQ_INIT(&e->said);
	if (kind == ENGINE_RANK) {
		if (spool_writer_open(&e->spool, e->dir, e->name, &err) < 0) {
			refuse(m, err.no, err.text);
			free(e->dir);
			free(e->name);
			free(e->run.value);
			free(e);
			return;
		}
		e->spooled = true;
	}
	TAILQ_INSERT_TAIL(&engines, e, link);
	child_fork(e);
	engine_say(e, Rspawn, 0, m->tag, (uint32_t)e->child.pid, slice_text("zygote"));
	if (kind == ENGINE_RANK && fake_wrong("spawn_failed"))
		child_order(e, "exit 3\n");
	else
		engine_say(e, Nstarted, 0, 0, (uint32_t)e->child.pid,
		    kind == ENGINE_STORE ? 29500u : 0u, slice_text("fork_ms 1\n"), slice_text(""));
}

static const struct {
	int type;
	void (*answer)(struct msg *m);
} rows[] = {
    {Thello, do_hello},
    {Tzygote, do_zygote},
    {Tspawn, do_spawn},
};

static void
on_message(void *arg, struct msg *m)
{
	struct engine *e = engine_find(m->slot);

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].type == m->type) {
			rows[i].answer(m);
			return;
		}
	if (e && request_is(m->type))
		request_answer(e, m);
	else if (m->tag && request_is(m->type))
		refuse(m, EHOSTDOWN, "the engine has ended");
	else if (m->tag)
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
	fd = fcntl(0, F_DUPFD_CLOEXEC, 10);
	if (fd < 0)
		die("want the daemon on descriptor 0: %s", strerror(errno));
	signal(SIGPIPE, SIG_IGN);
	loop = loop_new();
	loop_signal(loop, SIGCHLD, child_ended, NULL);
	up = conn_new(loop, fd, fd, on_message, on_close, NULL);
	conn_gather(up);
	engine_init(up, s ? (unsigned)strtoul(s, NULL, DECIMAL) : 0);
	loop_run(loop);
	while ((e = TAILQ_FIRST(&engines))) {
		kill(e->child.pid, SIGKILL);
		engine_free(e);
	}
	while (waitpid(-1, NULL, 0) > 0)
		;
	conn_free(up);
	loop_free(loop);
	return 0;
}
