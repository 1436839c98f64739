/* The agent's side, see fake_agent.h; and, in place of fs/session, requests that belong to no real
 * client. */
#include "fake_agent.h"
#include "base/daemon.h"
#include "group/lifecycle.h"
#include "group/queue.h"
#include "group/registry.h"
#include "host/host_gpus.h"
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* QUIET_ROUNDS: rounds of the loop without a message after which it counts as quiet */
/* FIRST_PID: no process has such a pid, and so none that the test descends from is a rank. */
enum { SLOTS = 1024, QUIET_ROUNDS = 3, FIRST_PID = 1 << 22 };

struct conn *fake_conn;
bool fake_mute;

static TAILQ_HEAD(, fake_msg) sent = TAILQ_HEAD_INITIALIZER(sent);
static int rank_of_place[SLOTS], slot_of_rank[MAX_RANKS];
static const char *facts_of[SLOTS]; /* by rank; NULL: none */
static unsigned moves;		    /* counts events, to detect that there are none */
static uint64_t passed_ns;
static time_t set_back_s; /* by so much the wall clock is behind the monotonic one */
static char state_dir[] = "/tmp/ddip-unit.XXXXXX";
static int agent_end = -1; /* of the socket pair, until it becomes a connection */

/* Replaces libc's: the test drives the clock. No two calls return the same time, or a timer that is
 * set when another fires would be due at once. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	passed_ns++;
	*t = (struct timespec){.tv_sec = 1000000 + (time_t)(passed_ns / 1000000000) -
					 (clock == CLOCK_REALTIME ? set_back_s : 0),
	    .tv_nsec = (long)(passed_ns % 1000000000)};
	return 0;
}

/* Replaces libc's: the daemon closes the agent's end after the spawn, so keep a duplicate. */
int
socketpair(int domain, int type, int protocol, int fds[2])
{
	int r = (int)syscall(SYS_socketpair, domain, type, protocol, fds);

	if (r == 0)
		agent_end = dup(fds[1]);
	return r;
}

/* Replaces libc's: this program is the agent, there is no process to start. */
int
posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files,
    const posix_spawnattr_t *attr, char *const argv[], char *const env[])
{
	*pid = 0;
	return 0;
}

void
fake_set_facts(int rank, const char *lines)
{
	facts_of[rank] = lines;
}

struct slice
fake_slice(const char *s)
{
	return (struct slice){s, strlen(s)};
}

/* Answers requests that belong to starting and rebuilding. False: the test handles m. */
static bool
answer_start(struct msg *m)
{
	struct slice none = {"", 0}, dir, name;
	uint8_t kind;
	uint32_t zygote, pid = FIRST_PID + m->slot;
	int *rank = &rank_of_place[slot_place(m->slot) % SLOTS];

	switch (m->type) {
	case Thello:
		conn_send(fake_conn, Rhello, 0, m->slot, m->tag, -1, (uint32_t)WIRE_VERSION, pid,
		    fake_slice("host"), 0u);
		return true;
	case Tgpus:
		conn_send(fake_conn, Rgpus, 0, m->slot, m->tag, -1, (uint32_t)ENOENT,
		    fake_slice("no NVML"), (uint32_t)0, none, none);
		return true;
	case Tzygote:
		conn_send(fake_conn, Rzygote, 0, m->slot, m->tag, -1, (uint32_t)1, none);
		return true;
	case Tspawn:
		if (wire_unpack(m, Tspawn, NULL, &kind, &zygote, &dir, &name, NULL, NULL) < 0)
			return false;
		if (kind == ENGINE_RANK) {
			char *own = slice_dup(name);

			*rank = atoi(own + strlen("rank"));
			free(own);
			slot_of_rank[*rank] = (int)m->slot;
		}
		conn_send(fake_conn, Rspawn, 0, m->slot, m->tag, -1, pid, fake_slice("zygote"));
		conn_send(fake_conn, Nstarted, 0, m->slot, 0, -1, pid, (uint32_t)1, none,
		    kind == ENGINE_RANK && facts_of[*rank] ? fake_slice(facts_of[*rank]) : none);
		return true;
	case Tinit:
		conn_send(fake_conn, Rinit, 0, m->slot, m->tag, -1, none, none);
		return true;
	case Trebuild:
		conn_send(fake_conn, Rrebuild, 0, m->slot, m->tag, -1, none);
		return true;
	default:
		return false;
	}
}

static void
on_message(void *arg, struct msg *m)
{
	struct fake_msg *f;
	char *body;

	moves++;
	if (!fake_mute && answer_start(m))
		return;
	f = xcalloc(1, sizeof(*f));
	body = xcalloc(1, m->len + 1);
	memcpy(body, m->body, m->len);
	f->m = *m;
	f->m.body = body;
	f->m.fd = -1;
	f->rank = m->slot == SLOT_AGENT ? FAKE_AGENT : rank_of_place[slot_place(m->slot) % SLOTS];
	TAILQ_INSERT_TAIL(&sent, f, link);
}

static void
on_close(void *arg, const struct err *e)
{
}

void
fake_step(void)
{
	unsigned before = moves - 1;

	for (int quiet = 0; quiet < QUIET_ROUNDS; quiet++) {
		loop_once(daemon_.loop, 0);
		if (agent_end >= 0) {
			conn_free(fake_conn); /* of an agent that is no longer needed */
			fake_conn = conn_new(
			    daemon_.loop, agent_end, agent_end, on_message, on_close, NULL);
			agent_end = -1;
			moves++;
		}
		if (moves != before)
			quiet = 0;
		before = moves;
	}
}

void
fake_pass(double seconds)
{
	enum { STEP_NS = 10000000 };

	uint64_t end = passed_ns + (uint64_t)(seconds * 1e9);

	while (passed_ns < end) {
		passed_ns = MIN(passed_ns + STEP_NS, end);
		fake_step();
	}
}

void
fake_set_back(long seconds)
{
	set_back_s += seconds;
}

struct group *
fake_begin(int size)
{
	struct err e = {0};
	struct group *g;

	CHECK(mkdtemp(state_dir) != NULL);
	for (int i = 0; i < SLOTS; i++) {
		rank_of_place[i] = FAKE_AGENT;
		facts_of[i] = NULL;
	}
	daemon_ = (struct daemon){.loop = loop_new(),
	    .state_dir = state_dir,
	    .mountpoint = (char[]){"/nowhere"},
	    .engine = (char[]){"engine"},
	    .python = (char[]){"python"},
	    .cwd = (char[]){"/"}};
	CHECK(group_make("g", &e) == 0);
	g = group_find("g");
	g->set.size = size;
	free(g->set.gpus);
	g->set.gpus = xstrdup("none");
	free(g->set.backend);
	g->set.backend = xstrdup("none");
	host_gpus_here_begin(); /* else the start waits for the answer */
	fake_step();
	CHECK(lifecycle_start(g, &e) == 0);
	fake_step();
	CHECK_STR(lifecycle_state_name(g), "idle");
	return g;
}

void
fake_end(void)
{
	char command[sizeof(state_dir) + 32];
	struct fake_msg *f;

	daemon_.ending = true;
	group_remove_all();
	agent_stop_all();
	host_gpus_stop();
	agent_free_all();
	conn_free(fake_conn);
	fake_conn = NULL;
	loop_free(daemon_.loop);
	while ((f = TAILQ_FIRST(&sent))) {
		TAILQ_REMOVE(&sent, f, link);
		free((char *)(uintptr_t)f->m.body);
		free(f);
	}
	snprintf(command, sizeof(command), "rm -r %s", state_dir);
	CHECK(system(command) == 0);
	memcpy(state_dir + strlen(state_dir) - 6, "XXXXXX", 6);
}

struct fake_msg *
fake_take(int type, int rank)
{
	struct fake_msg *f;

	TAILQ_FOREACH (f, &sent, link)
		if (!f->taken && f->m.type == type && f->rank == rank) {
			f->taken = true;
			return f;
		}
	return NULL;
}

int
fake_count(int type, int rank)
{
	struct fake_msg *f;
	int n = 0;

	TAILQ_FOREACH (f, &sent, link)
		n += !f->taken && f->m.type == type && f->rank == rank;
	return n;
}

void
fake_ran(const struct fake_msg *m, int outcome, const char *error)
{
	struct slice none = {"", 0};

	fake_answer(m, Rrun, (uint32_t)outcome, none, fake_slice(error), none, none, none,
	    (uint32_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0);
}

void
fake_refuses(const struct fake_msg *m, int no, const char *text)
{
	fake_answer(m, Rerror, (uint32_t)no, fake_slice(text), fake_slice(""));
}

void
fake_dies(int rank, int status)
{
	int slot = slot_of_rank[rank];

	conn_send(fake_conn, Nexit, 0, (unsigned)slot, 0, -1, (uint32_t)(FIRST_PID + slot),
	    (uint32_t)status, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0);
	fake_step();
}

struct rank_set
fake_set(int n, const int *ranks)
{
	struct rank_set s = {0};

	while (n-- > 0)
		rank_set_add(&s, ranks[n]);
	return s;
}

struct cell *
fake_cell(struct group *g, const char *source, int n, const int *ranks)
{
	struct err e = {0};
	struct rank_set set = fake_set(n, ranks);
	struct cell *c = cell_submit(g, &set, fake_slice(source), &e);

	CHECK_STR(e.text, "");
	fake_step();
	return c;
}

void
fake_wait(struct task *w, struct fake_req *r)
{
	*r = (struct fake_req){0};
	CHECK(task_wait(w, &r->r) == PARKED);
}

/* Weak: a test that has fs/base/req.c has those of the daemon. */
#pragma weak req_park
#pragma weak req_done
#pragma weak req_data
#pragma weak req_copy
#pragma weak req_of_nobody
#pragma weak req_is_nobodys
#pragma weak req_process
#pragma weak req_client
#pragma weak req_wake_pollers

int
req_park(struct req *r, req_interrupt_fn *fn)
{
	((struct fake_req *)r)->interrupt = fn;
	return PARKED;
}

void
req_done(struct req *r, int result)
{
	struct fake_req *f = (struct fake_req *)r;

	CHECK(!f->done); /* answered exactly once */
	f->done = true;
	f->result = result;
	moves++;
}

void
req_data(struct req *r, const void *p, size_t n)
{
	req_done(r, (int)n);
}

void
req_copy(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	req_done(r, (int)n);
}

void
req_of_nobody(struct req *r)
{
}

bool
req_is_nobodys(const struct req *r)
{
	return false;
}

void
req_wake_pollers(void)
{
}

pid_t
req_process(const struct req *r)
{
	return ((const struct fake_req *)r)->process;
}

struct req_client
req_client(const struct req *r)
{
	return (struct req_client){0};
}
