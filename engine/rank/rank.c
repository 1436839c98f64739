/* A rank's I/O thread: its messages, its start, the cleanup after forks by user code, its end. */
#define _GNU_SOURCE
#include "rank/rank.h"
#include "frame.h"
#include "rank/output.h"
#include "thread.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { READ_MAX = 1 << 20, ADOPT_MS = 1 };

static struct {
	struct rank_fds given;
	struct loop *loop;
	struct conn *conn;
	struct watch *out; /* while messages wait to be sent */
	int out_fd, kick;
	bool forked;
} self = {.given.display = -1};

bool
rank_forked(void)
{
	return self.forked;
}

int
rank_display(void)
{
	return self.given.display;
}

/* Kills this process and its process group immediately. */
_Noreturn static void
kill_all(void)
{
	kill(0, SIGKILL);
	_exit(1);
}

/* Packs and sends a message of the I/O thread's own. */
#define say(type, tag, ...)                                                                        \
	do {                                                                                       \
		struct buf b_ = {0};                                                               \
		struct msg m_;                                                                     \
		wire_pack(&b_, type, 0, 0, tag, ##__VA_ARGS__);                                    \
		if (wire_frame(b_.p, b_.n, &m_, NULL) > 0)                                         \
			rank_link_send(&m_);                                                       \
		buf_free(&b_);                                                                     \
	} while (0)

/* Any work for the main thread takes precedence over the communicator's work for readers. */
static void
for_main(struct msg *m)
{
	rank_queue_put(&rank_main, m);
	rank_nccl_stop(0);
}

static void
for_service(struct msg *m)
{
	rank_queue_put(&rank_service, m);
}

/* Replies at once to a request that no thread has taken yet. Otherwise a service thread raises an
 * exception in the thread that works on it. */
static void
on_cancel(struct msg *m)
{
	struct item *it;
	uint64_t tag;
	bool runs;

	if (wire_unpack(m, Ncancel, NULL, &tag) < 0)
		return;
	rank_nccl_stop(tag);
	it = rank_request_cancel(tag, &runs);
	if (runs)
		rank_queue_put(&rank_service, m);
	if (!it)
		return;
	say(Rerror, tag, (uint32_t)EINTR, slice_text("cancelled before it began"), slice_text(""));
	if (it->m.fd >= 0)
		close(it->m.fd);
	free(it);
}

static void
on_init(struct msg *m)
{
	struct slice env;
	uint32_t size;

	if (wire_unpack(m, Tinit, NULL, NULL, &size, NULL, NULL, NULL, &env) == 0)
		rank_unblock_group(size, env);
	for_main(m);
}

static void
on_run(struct msg *m)
{
	rank_look_forget();
	rank_collective_reset(); /* not when its code begins: who asks before that means this cell
				  */
	rank_stdin_settle();	 /* before the cell can say that it waits */
	for_main(m);
	rank_stdin_watch();
}

static void
on_quit(struct msg *m)
{
	rank_queue_end(&rank_main);
	rank_queue_end(&rank_service);
	rank_queue_end(&rank_rescue);
	rank_stdin_end();
}

static void
on_read(struct msg *m)
{
	struct slice data = {0};
	uint64_t offset;
	uint32_t handle, count;
	struct err e = {0};
	char *bytes = NULL;

	if (wire_unpack(m, Tread, &e, &handle, &offset, &count) == 0 && count > READ_MAX)
		fail(&e, EINVAL, "read: %u bytes at once (want 0..%d)", count, READ_MAX);
	if (!e.no) {
		bytes = xmalloc(count + 1);
		rank_pin_read(handle, offset, bytes, count, &e);
		data = (struct slice){bytes, count};
	}
	if (e.no)
		say(Rerror, m->tag, (uint32_t)e.no, slice_text(e.text), slice_text(""));
	else
		say(Rread, m->tag, data);
	free(bytes);
}

static void
on_copy(struct msg *m)
{
	struct err e;

	if (rank_device_answer(m, &e) < 0)
		say(Rerror, m->tag, (uint32_t)e.no, slice_text(e.text), slice_text(""));
}

static void
on_nccl(struct msg *m)
{
	struct err e;
	int r = m->type == Tcombine ? rank_combine_begin(m, &e) : rank_combine_id(m, &e);

	if (r < 0)
		say(Rerror, m->tag, (uint32_t)e.no, slice_text(e.text), slice_text(""));
}

static void
on_stack(struct msg *m)
{
	rank_stack_ask(m->tag);
}

static void
on_look(struct msg *m)
{
	uint32_t span_ms;

	if (wire_unpack(m, Tlook, NULL, &span_ms) == 0)
		rank_look_ask(m->tag, span_ms);
}

static void
on_steps(struct msg *m)
{
	say(Rsteps, m->tag, rank_collective_ticks(CLOCK_OPTIMIZER),
	    rank_collective_ticks(CLOCK_FORWARD), rank_collective_ticks(CLOCK_COLLECTIVE));
}

/* Registers the request here, not when it is taken, so that a cancellation always finds it. */
static void
on_put(struct msg *m)
{
	rank_request_main(m->tag, false);
	for_main(m);
}

/* Requests that release objects, which may run the objects' own code. */
static void
on_change(struct msg *m)
{
	rank_request_main(m->tag, true);
	for_main(m);
}

static void
on_interrupt(struct msg *m)
{
	uint32_t number;
	uint8_t why;

	if (wire_unpack(m, Nintr, NULL, &number, &why) < 0 || why >= WHY_COUNT)
		return;
	rank_sigint_interrupted();
	rank_cell_interrupt(number, why);
}

static void
on_abort(struct msg *m)
{
	uint8_t what;
	uint32_t ms;
	bool stuck = rank_collective != NULL; /* before the sockets are shut */

	if (wire_unpack(m, Nabort, NULL, &what, &ms) < 0)
		return;
	if (what == ABORT_ENDED) {
		rank_unblock_disconnect();
		return;
	}
	if (what == ABORT_KNOWN && (!stuck || rank_collective_us() / 1000 < ms))
		return;
	if (what != ABORT_ALL && ms == 0 && rank_sigint_ends_itself())
		return; /* the program handles the signal and is given time for it */
	if (what != ABORT_NCCL || stuck) {
		rank_unblock_sockets(what == ABORT_ALL);
		rank_nccl_abort();
	}
	rank_queue_put(&rank_rescue, m); /* aborts torch's NCCL communicators */
	rank_revoke_later();
}

static void
on_stdin(struct msg *m)
{
	struct slice data;

	if (wire_unpack(m, Nstdin, NULL, &data) == 0)
		rank_stdin_put(data);
}

static void
on_addresses(struct msg *m)
{
	struct slice addresses;

	if (wire_unpack(m, Naddresses, NULL, &addresses) == 0)
		rank_accept_from(addresses);
}

static const struct {
	int type;
	void (*fn)(struct msg *m);
} rows[] = {
    {Trun, on_run},
    {Tinit, on_init},
    {Tput, on_put},
    {Tcommit, on_change},
    {Tdel, on_change},
    {Tmove, for_main},
    {Treset, on_change},
    {Tclone, on_change},
    {Trebuild, for_main},
    {Tselftest, for_main},
    {Nautogc, for_main},
    {Nclock, for_main},
    {Naddresses, on_addresses},
    {Tget, for_service},
    {Thas, for_service},
    {Tgc, for_service},
    {Nfree, for_service},
    {Tsteer, for_service},
    {Nsteer, for_service},
    {Nwatch, for_service},
    {Tsteerrun, for_service},
    {Ncancel, on_cancel},
    {Tread, on_read},
    {Tcopy, on_copy},
    {Tncclid, on_nccl},
    {Tcombine, on_nccl},
    {Tstack, on_stack},
    {Tlook, on_look},
    {Tsteps, on_steps},
    {Nintr, on_interrupt},
    {Nabort, on_abort},
    {Nstdin, on_stdin},
    {Nquit, on_quit},
};

static void
on_message(void *arg, struct msg *m)
{
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (rows[i].type == m->type) {
			rows[i].fn(m);
			return;
		}
	}
	fail(&e, EOPNOTSUPP, "%s is not for a rank", wire_name(m->type));
	if (m->tag)
		say(Rerror, m->tag, (uint32_t)e.no, slice_text(e.text), slice_text(""));
}

/* The process had no free descriptor for the one that came with m; only m fails. */
static void
on_cut(void *arg, struct msg *m)
{
	struct err e;

	frame_no_descriptor(&e);
	say(Rerror, m->tag, (uint32_t)e.no, slice_text(e.text), slice_text(""));
}

/* Without the agent nothing would ever end this process. */
static void
on_close(void *arg, const struct err *e)
{
	if (e->no)
		note("%s", e->text);
	kill_all();
}

static void
on_room(void *arg, uint32_t events)
{
	if (rank_link_push())
		return;
	loop_fd_del(self.out);
	self.out = NULL;
}

static void
on_kick(void *arg, uint32_t events)
{
	uint64_t count;

	if (read(self.kick, &count, sizeof(count)) == sizeof(count) && !self.out)
		self.out = loop_fd(self.loop, self.out_fd, EPOLLOUT, on_room, NULL);
}

static void
kick(void)
{
	uint64_t one = 1;

	/* If the counter is full, a kick is already pending. */
	if (write(self.kick, &one, sizeof(one)) < 0)
		return;
}

/* The rank becomes the agent's child when the process between them has exited. From then on it dies
 * with the agent. */
static void
be_adopted(void *arg)
{
	if (getppid() != self.given.agent) {
		loop_timer(self.loop, ADOPT_MS, be_adopted, NULL);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != self.given.agent)
		kill_all();
}

static void *
io_thread(void *arg)
{
	prctl(PR_SET_NAME, "ddip-io");
	thread_short_slice();
	be_adopted(NULL);
	loop_run(self.loop);
	return NULL;
}

static void
before_fork(void)
{
	rank_cell_lock();
	rank_queue_lock_all();
	rank_stdin_lock();
	rank_device_lock();
	rank_nccl_lock();
	rank_revoke_lock();
	rank_pin_lock();
	rank_unblock_lock();
	rank_flight_lock();
	rank_link_lock();
}

static void
after_fork(void)
{
	rank_link_unlock();
	rank_flight_unlock();
	rank_unblock_unlock();
	rank_pin_unlock();
	rank_revoke_unlock();
	rank_nccl_unlock();
	rank_device_unlock();
	rank_stdin_unlock();
	rank_queue_unlock_all();
	rank_cell_unlock();
}

/* A child that user code forked has none of our threads and must not speak for its parent. */
static void
in_child(void)
{
	after_fork();
	if (self.forked)
		return;
	self.forked = true;
	rank_handlers_in_child();
	out_leave();
	rank_revoke_leave();
	/* The agent must see the end of the rank even if its children live on. */
	close(self.given.ctl);
	close(self.out_fd);
	close(self.given.wakeup_fd);
	close(self.given.ring);
	rank_link_open(-1, false);
	rank_queue_end(&rank_main);
	rank_queue_end(&rank_service);
	rank_queue_end(&rank_rescue);
	rank_stdin_leave();
}

static void
start_thread(void)
{
	pthread_t thread;
	int r;

	r = thread_start(&thread, io_thread, NULL);
	if (r != 0)
		die("no I/O thread: %s", strerror(r));
	pthread_detach(thread);
}

/* Lets the daemon read this process's memory where only parents may do so (Yama). */
static void
allow_daemon(void)
{
	const char *pid = getenv("DDIP_DAEMON_PID");

	if (pid && atoi(pid) > 0 && prctl(PR_SET_PTRACER, atoi(pid), 0, 0, 0) < 0 &&
	    errno != EINVAL)
		note("PR_SET_PTRACER: %s", strerror(errno));
}

void
rank_start(const struct rank_fds *g)
{
	int r;

	self.given = *g;
	note_as(g->name);
	prctl(PR_SET_NAME, g->name);
	fd_cloexec(g->ctl, true);
	self.out_fd = fcntl(g->ctl, F_DUPFD_CLOEXEC, 3);
	self.kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (self.out_fd < 0 || self.kick < 0)
		die("descriptors: %s", strerror(errno));
	if (g->display >= 0)
		fd_cloexec(g->display, true);
	if (g->ring >= 0 && (r = out_open(g->ring, g->wakeup_fd)) < 0)
		die("output ring: %s", strerror(-r));
	if (g->ring >= 0)
		fd_cloexec(g->ring, true);
	if (g->wakeup_fd >= 0)
		fd_cloexec(g->wakeup_fd, true);
	setvbuf(stdout, NULL, _IOLBF, 0); /* C code's output is line-buffered, as on a terminal */
	allow_daemon();
	rank_queue_init(&rank_main);
	rank_queue_init(&rank_service);
	rank_queue_init(&rank_rescue);
	rank_request_init();
	rank_stack_open();
	self.loop = loop_new();
	rank_stack_init(self.loop);
	rank_look_init(self.loop);
	rank_cell_init(self.loop);
	rank_revoke_init(self.loop);
	rank_unblock_init(self.loop);
	rank_stdin_open(self.loop);
	loop_fd(self.loop, self.kick, EPOLLIN, on_kick, NULL);
	rank_link_open(self.out_fd, false);
	rank_link_kick(kick);
	self.conn = conn_new(self.loop, g->ctl, g->ctl, on_message, on_close, NULL);
	conn_on_cut(self.conn, on_cut);
	pthread_atfork(before_fork, after_fork, in_child);
	start_thread();
}
