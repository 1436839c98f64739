/*
 * Fuzzes what an agent receives: messages of the daemon, and frames of ranks and zygotes, damaged,
 * in any order, and a ring of output that a rank has overwritten. Here are no processes: a fork is
 * only counted, and what would be sent to a process is not. Whatever comes, the agent goes on.
 */
#include "../../engine/agent/agent.c" /* its message table is private */
#include "frames.h"
#include "output_ring.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ENDS = 64, STEPS = 64, SLOTS = 4, POOLS = 2, FIRST_PID = 1 << 24 };

static struct {
	struct conn *daemon; /* our end of agent.up */
	int lane[LANES];     /* our ends of the other ones */
	int ends[ENDS];	     /* the processes' ends of the sockets that the agent made */
	unsigned n_ends;
	pid_t last_pid; /* above any that a process has */
	char dir[64];
} our = {.last_pid = FIRST_PID};

/* In place of libc's: nothing leaves this process. */
int
socketpair(int domain, int type, int protocol, int fds[2])
{
	int r = (int)syscall(SYS_socketpair, domain, type, protocol, fds);

	if (r == 0 && our.n_ends < ENDS)
		our.ends[our.n_ends++] = fcntl(fds[1], F_DUPFD_CLOEXEC, 3);
	return r;
}

pid_t
fork(void)
{
	return ++our.last_pid;
}

int
kill(pid_t pid, int signo)
{
	errno = ESRCH;
	return -1;
}

int
prlimit(
    pid_t pid, enum __rlimit_resource resource, const struct rlimit *new_limit, struct rlimit *old)
{
	errno = ESRCH;
	return -1;
}

static void
drop(void *arg, struct msg *m)
{
}

static void
never(void *arg, const struct err *e)
{
	abort(); /* the agent has closed its connection to the daemon */
}

static struct slice
text(const char *s)
{
	return (struct slice){s, strlen(s)};
}

static void
leave(void)
{
	rmdir(our.dir);
}

static void
step(void)
{
	char bytes[1 << 16];

	for (int i = LANE_CONTROL + 1; i < LANES; i++)
		while (recv(our.lane[i], bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
			;
	loop_once(agent.loop, 0);
	loop_once(agent.loop, 0);
}

/* Once: the agent, as agent_main() makes it. */
static void
begin(void)
{
	int pair[2], lane[LANES][2];

	if (agent.loop)
		return;
	snprintf(our.dir, sizeof(our.dir), "%s/ddip-fuzz.XXXXXX",
	    getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(our.dir) || syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pair) < 0 ||
	    syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, lane[LANE_OBJECTS]) < 0 ||
	    syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, lane[LANE_OUTPUT]) < 0)
		die("%s: %s", our.dir, strerror(errno));
	atexit(leave);
	TAILQ_INIT(&agent.engines);
	TAILQ_INIT(&agent.pools);
	TAILQ_INIT(&agent.zygotes);
	agent.user_umask = -1;
	agent.user_files = -1;
	agent.loop = loop_new();
	reap_start();
	agent.up = conn_new(agent.loop, pair[0], pair[0], on_message, on_close, NULL);
	conn_gather(agent.up);
	agent.away = true;
	agent.base = xstrdup(our.dir);
	for (int i = LANE_CONTROL + 1; i < LANES; i++) {
		agent.bulk[i] =
		    bulk_new(agent.loop, lane[i][0], agent.up, i == LANE_OUTPUT ? BULK_PIECE : 0,
			i == LANE_OUTPUT ? away_next : reads_next, NULL);
		our.lane[i] = lane[i][1];
	}
	our.daemon = conn_new(agent.loop, pair[1], pair[1], drop, never, NULL);
}

/* The daemon asks for a zygote or an engine: it is trusted with names of files and of programs. */
static void
ask(void)
{
	uint32_t pool = take() % POOLS;
	unsigned slot = take() % SLOTS;

	if (take() & 1)
		conn_send(our.daemon, Tzygote, 0, SLOT_AGENT, 1 + take(), -1, pool,
		    text("/nowhere/python"), text("A=1"), text(our.dir), text("torch"));
	else
		conn_send(our.daemon, Tspawn, 0, slot, 1 + take(), -1,
		    (unsigned)(take() % 8 == 0 ? ENGINE_STORE : ENGINE_RANK), pool, text("."),
		    text("rank0"), text("B=2"), (unsigned)(take() & 1));
}

/* Any other message of the daemon, with any body. A damaged Nmany ends an agent, rightly. */
static void
say(void)
{
	static const uint8_t others[] = {Tzygote, Tspawn, Thello, Nmany};
	uint8_t how = take(), type = take(), at = take();
	struct buf b = {0};
	struct msg m = {.slot = at & 128 ? SLOT_AGENT : at % SLOTS, .tag = take(), .fd = -1};

	while (!wire_name(type) || memchr(others, type, sizeof(others)))
		type++;
	m.type = type;
	m.flags = how & 64 ? FLAG_MARK : 0;
	fill(&b, type);
	damage(&b, how);
	m.body = b.p;
	m.len = (uint32_t)b.n;
	conn_forward(our.daemon, &m);
	buf_free(&b);
}

/* A frame of an engine or a zygote, damaged in its header, too. */
static void
lie(void)
{
	static const uint8_t likely[] = {
	    Nready, Rfork, Rerror, Npreload, Nstarted, Rinit, Rrun, Rget, Rread, Rcopy};
	uint8_t how = take(), type = take(), which = take();
	struct buf b = {0}, frame = {0};
	struct msg m = {.slot = take(), .tag = take() & 7, .fd = -1};

	if (!our.n_ends)
		return;
	if (take() & 1)
		type = likely[type % ARRAY_LEN(likely)];
	while (!wire_name(type))
		type++;
	m.type = type;
	m.flags = how & 128 ? FLAG_MARK : 0;
	if (type == Rfork && take() & 1)
		m.tag = ((uint64_t)1 << 32) + (take() & 7); /* of a successor or a spare */
	fill(&b, type);
	damage(&b, how);
	m.body = b.p;
	m.len = (uint32_t)b.n;
	wire_pack_raw(&frame, &m);
	if ((how & 31) == 9)
		frame.p[take() % frame.n] = (char)take();
	if (send(our.ends[which % our.n_ends], frame.p, frame.n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
	    errno == EBADF)
		abort();
	buf_free(&b);
	buf_free(&frame);
}

/* Some engine's ring, which its rank maps as well. */
static void
scribble(void)
{
	struct engine *e = spawn_find(take() % SLOTS);
	struct output_ring *p = e ? e->output.ring : NULL;
	static const uint64_t far[] = {1, RING_SIZE, RING_SIZE + 1, UINT64_MAX, UINT64_MAX / 2};

	if (!p)
		return;
	for (int i = take() & 3; i >= 0; i--)
		switch (take() & 3) {
		case 0:
			p->tail += take() & 1 ? far[take() % ARRAY_LEN(far)] : take();
			break;
		case 1:
			p->switch_tail += take() & 1 ? RING_SWITCHES * take() : take();
			break;
		case 2:
			p->switches[take() * 4].position =
			    e->output.head + far[take() % ARRAY_LEN(far)];
			p->switches[take() * 4].kind = take() * 0x1010101u;
			break;
		default:
			memset((char *)p + take(), take(), take());
		}
	drain_mark(e);
}

/* A process ends. */
static void
bury(void)
{
	struct engine *e = spawn_find(take() % SLOTS);
	struct zygote *z = TAILQ_FIRST(&agent.zygotes);

	if (e && e->state == ENGINE_RUNS && e->pid >= FIRST_PID)
		reap_ended(e, take());
	else if (z && z->pid >= FIRST_PID)
		zygote_pool_reaped(z->pid, take());
}

static void
clean(void)
{
	DIR *d;

	for (uint32_t i = 0; i < POOLS; i++)
		conn_send(our.daemon, Nrelease, 0, SLOT_AGENT, 0, -1, i);
	step();
	while (!TAILQ_EMPTY(&agent.engines))
		spawn_free(TAILQ_FIRST(&agent.engines));
	while (!TAILQ_EMPTY(&agent.zygotes))
		zygote_free(TAILQ_FIRST(&agent.zygotes));
	if (!TAILQ_EMPTY(&agent.pools))
		abort();
	while (our.n_ends)
		close(our.ends[--our.n_ends]);
	step();
	d = opendir(our.dir);
	for (struct dirent *f; d && (f = readdir(d));)
		if (f->d_name[0] != '.')
			unlinkat(dirfd(d), f->d_name, 0);
	if (d)
		closedir(d);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	input = (struct slice){(const char *)data, size};
	conn_send(our.daemon, Thello, 0, SLOT_AGENT, 1, -1, (uint32_t)WIRE_VERSION, text(our.dir));
	for (int i = 0; i < STEPS; i++) {
		uint8_t what = take();

		if (what < 40)
			ask();
		else if (what < 90)
			say();
		else if (what < 220)
			lie();
		else if (what < 245)
			scribble();
		else
			bury();
		step();
	}
	clean();
	return 0;
}
