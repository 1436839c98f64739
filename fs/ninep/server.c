/* Connections: accepted, read, written, closed. Their messages go to the operations. */
#include "ninep/server.h"
#include "base/daemon.h"
#include "ninep/listener.h"
#include "ninep/ops.h"
#include "tree/event_file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	MSIZE_MAX = 1 << 20,	/* bytes of a message */
	MSIZE_MIN = 1 << 10,	/* smaller ones are refused */
	MSIZE_FIRST = 8 << 10,	/* until a size is negotiated */
	READ_PIECE = 256 << 10, /* bytes read from a socket at once */
	KEEP_BYTES = 64 << 10,	/* capacity that an empty input buffer may keep */
	BATCH = 64,		/* messages of one connection per pass of the loop */
	OUTPUT_MAX = 4 << 20,	/* pending bytes at which no more requests are read */
	CALLS_MAX = 1024,	/* in flight on one connection */
	CONNECTIONS_MAX = 1024, /* at once */
	ACCEPT_AGAIN_MS = 100,	/* retry delay when out of descriptors */
	LOOK_MS = 5000,		/* how often to look whether the socket is still there */
	PID_TEXT = 24
};

static const struct operation {
	const char *name, *format;
	enum ninep_dialect dialect;
	ninep_op_fn *fn;
} operations[UINT8_MAX + 1] = {

#define X(name_, type, dialect_, format_, fields)                                                  \
	[type] = {.name = #name_, .format = format_, .dialect = dialect_, .fn = op_##name_},
    NINEP_MESSAGES(X)
#undef X
};

static char *socket_path;
static int listen_fd = -1;
static struct watch *listen_watch;
static struct timer *accept_timer, *look_timer, *sweep_timer, *more_timer;
static TAILQ_HEAD(, connection) connections = TAILQ_HEAD_INITIALIZER(connections);
static size_t connection_count;
static const struct connection *busy; /* its messages are being handled: output is written later */

/* ---- the end of a connection ---- */

static void
drop_fids(struct connection *conn)
{
	struct fid *f;

	while ((f = fid_first(&conn->fids))) {
		op_discard(f);
		fid_drop(&conn->fids, f);
	}
}

/* The client is gone; treats it as a killed process: discards what it has written in part, and
 * interrupts what it waits for. */
static void
break_off(struct connection *conn)
{
	loop_fd_del(conn->watch);
	close(conn->fd);
	conn->fd = -1;
	conn->lost = true;
	buf_free(&conn->in);
	output_free(&conn->out);
	call_end_parked(conn);
	drop_fids(conn);
	connection_changed(conn);
}

/* Closes lost connections, and frees those that have no calls left. */
static void
sweep(void *arg)
{
	struct connection *conn, *next;

	sweep_timer = NULL;
	for (conn = TAILQ_FIRST(&connections); conn; conn = next) {
		next = TAILQ_NEXT(conn, link);
		if (conn->lost && conn->fd >= 0)
			break_off(conn);
		if (!conn->lost || conn->call_count)
			continue;
		TAILQ_REMOVE(&connections, conn, link);
		connection_count--;
		free(conn);
	}
}

static void
sweep_soon(void)
{
	if (!sweep_timer)
		sweep_timer = loop_timer(daemon_.loop, 0, sweep, NULL);
}

/* The client cannot be written to. This is found out where calls are answered, often in the middle
 * of a list of requests and files: its other calls and its files end later. */
static void
lose(struct connection *conn)
{
	conn->lost = true;
	output_free(&conn->out);
	sweep_soon();
}

/* ---- output ---- */

static bool
is_full(const struct connection *conn)
{
	return conn->out.queued + conn->promised >= OUTPUT_MAX;
}

static void take_messages(struct connection *conn);

/* Handles messages that have been received but not handled yet. */
static void
take_more(void *arg)
{
	struct connection *conn, *next;

	more_timer = NULL;
	for (conn = TAILQ_FIRST(&connections); conn; conn = next) {
		next = TAILQ_NEXT(conn, link);
		if (!conn->lost && conn->more && !is_full(conn))
			take_messages(conn);
	}
}

static void
take_soon(void)
{
	if (!more_timer)
		more_timer = loop_timer(daemon_.loop, 0, take_more, NULL);
}

/* Writes what can be written, and updates the events to wait for. */
static void
update(struct connection *conn)
{
	int r = output_write(&conn->out, conn->fd);
	bool takes = listen_fd >= 0 && !conn->more && !is_full(conn);
	uint32_t events = (takes ? EPOLLIN : 0) | (conn->out.queued ? EPOLLOUT : 0);

	if (r < 0) {
		lose(conn);
		return;
	}
	if (events != conn->events)
		loop_fd_events(conn->watch, events);
	conn->events = events;
}

void
connection_changed(struct connection *conn)
{
	if (conn->lost) {
		if (!conn->call_count)
			sweep_soon();
		return;
	}
	if (conn == busy)
		return;
	update(conn);
	if (!conn->lost && conn->more && !is_full(conn))
		take_soon();
}

/* ---- messages ---- */

static void
trace(const struct call *c, const struct operation *o, const struct ninep_field *f)
{
	const struct fid *fid =
	    o->format[0] == '4' ? fid_find(&c->conn->fids, (uint32_t)f[0].n) : NULL;
	char pid[PID_TEXT];

	if (!event_file_tracing())
		return;
	snprintf(pid, sizeof(pid), "pid=%d", (int)c->conn->peer);
	front_trace("9p", o->name, fid ? fid->node : tree_root(), NULL, pid);
}

/* The operation of a message type, or NULL if the client's dialect does not have it. Until a
 * version is negotiated, `version` is the only message allowed. */
static const struct operation *
operation_of(const struct connection *conn, uint8_t type)
{
	const struct operation *o = &operations[type];

	if (!o->fn || (conn->dialect ? !(o->dialect & conn->dialect) : o->fn != op_version))
		return NULL;
	return o;
}

static void
dispatch(struct connection *conn, const struct ninep_message *m)
{
	struct ninep_field f[NINEP_FIELDS_MAX];
	const struct operation *o = operation_of(conn, m->type);
	struct call *c = call_new(conn, m);
	int r;

	fid_close_unused(); /* whoever was told of a close finds the file closed */
	if (!o)
		r = fail(&c->r.err, EOPNOTSUPP, "no such message here");
	else if (ninep_unpack(o->format, m->body, f) < 0)
		r = fail(&c->r.err, EBADMSG, "malformed message");
	else if (conn->call_count > CALLS_MAX && o->fn != op_flush)
		r = fail(&c->r.err, ENOBUFS, "%d requests wait already", CALLS_MAX);
	else {
		trace(c, o, f);
		r = o->fn(c, f);
	}
	if (r != PARKED)
		call_answer(c, r);
}

static void
take_messages(struct connection *conn)
{
	size_t at = 0;
	long n = 0;
	int taken;

	busy = conn;
	for (taken = 0; taken < BATCH && !conn->lost && !is_full(conn); taken++) {
		struct ninep_message m;

		n = ninep_frame(conn->in.p + at, conn->in.n - at, conn->msize, &m);
		if (n <= 0)
			break;
		at += (size_t)n;
		dispatch(conn, &m);
	}
	busy = NULL;
	if (!conn->lost && n < 0) {
		note("9p: pid %d does not speak 9P: its connection is closed", (int)conn->peer);
		break_off(conn);
	}
	if (conn->lost)
		return;
	buf_drop(&conn->in, at);
	if (!conn->in.n && conn->in.cap > KEEP_BYTES)
		buf_free(&conn->in);
	conn->more = taken == BATCH || is_full(conn);
	connection_changed(conn);
}

static void
on_socket(void *arg, uint32_t events)
{
	struct connection *conn = arg;
	ssize_t n;

	if (events & EPOLLOUT)
		connection_changed(conn);
	if (conn->lost || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	n = fault("ninep.read", ECONNRESET)
		? -1
		: recv(conn->fd, buf_reserve(&conn->in, READ_PIECE), READ_PIECE, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		break_off(conn);
		return;
	}
	conn->in.n += (size_t)n;
	take_messages(conn);
}

/* ---- the session ---- */

int
op_version(struct call *c, struct ninep_field *f)
{
	struct connection *conn = c->conn;
	uint32_t msize = (uint32_t)MIN(f[0].n, (uint64_t)MSIZE_MAX);
	const char *version = "unknown";

	if (msize < MSIZE_MIN)
		return fail(&c->r.err, EMSGSIZE, "a message has at least %d bytes", MSIZE_MIN);
	/* a new session begins: drop everything of the previous one */
	call_end_parked(conn);
	drop_fids(conn);
	if (conn->call_count > 1)
		return fail(&c->r.err, EBUSY, "a request is still being answered");
	conn->dialect = 0;
	if (slice_eq(f[1].s, "9P2000.L"))
		conn->dialect = NINEP_L;
	else if (f[1].s.n >= 6 && memcmp(f[1].s.p, "9P2000", 6) == 0)
		conn->dialect = NINEP_PLAIN;
	if (conn->dialect)
		version = conn->dialect == NINEP_L ? "9P2000.L" : "9P2000";
	conn->msize = msize;
	ninep_put(&c->body, 4, msize);
	ninep_put_text(&c->body, version);
	return 0;
}

int
op_auth(struct call *c, struct ninep_field *f)
{
	if (c->conn->dialect != NINEP_L)
		return fail(&c->r.err, ECONNREFUSED,
		    "no authentication is needed: the socket is its user's");
	/* error 0 is how servers say so in this dialect */
	c->type = NINEP_RLERROR - 1;
	ninep_put(&c->body, 4, 0);
	return 0;
}

int
op_attach(struct call *c, struct ninep_field *f)
{
	struct ninep_qid q = fid_qid(tree_root());
	int r;

	if (f[3].s.n && !slice_eq(f[3].s, "/"))
		return fail(&c->r.err, ENOENT, "there is one tree, /");
	r = fid_add(&c->conn->fids, (uint32_t)f[0].n, fid_node(tree_root()));
	if (r == 0)
		ninep_put_qid(&c->body, &q);
	return r;
}

int
op_flush(struct call *c, struct ninep_field *f)
{
	struct call *old = call_find(c->conn, (uint16_t)f[0].n, c);

	if (!old)
		return 0;
	call_flush(old, c);
	return PARKED;
}

/* ---- clients ---- */

/* Sets *pid to the process at the other end. Returns -EACCES if it is another user's. */
static int
check_peer(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
		return -errno;
	*pid = peer.pid;
	return peer.uid == geteuid() ? 0 : -EACCES;
}

static void
accept_again(void *arg)
{
	accept_timer = NULL;
	loop_fd_events(listen_watch, EPOLLIN);
}

static void
on_listen(void *arg, uint32_t events)
{
	struct connection *conn;
	pid_t peer = 0;
	int fd = -1;

	if (!fault("ninep.accept", EMFILE))
		/* cppcheck-suppress nullPointer; it may be: accept(2) */
		fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
		note("9p: a client waits: %s", strerror(errno));
		loop_fd_events(listen_watch, 0);
		accept_timer = loop_timer(daemon_.loop, ACCEPT_AGAIN_MS, accept_again, NULL);
	}
	if (fd < 0)
		return;
	if (check_peer(fd, &peer) < 0 || connection_count >= CONNECTIONS_MAX) {
		close(fd);
		return;
	}
	conn = xcalloc(1, sizeof(*conn));
	*conn =
	    (struct connection){.fd = fd, .peer = peer, .msize = MSIZE_FIRST, .events = EPOLLIN};
	TAILQ_INIT(&conn->calls);
	TAILQ_INIT(&conn->parked);
	output_init(&conn->out);
	conn->watch = loop_fd(daemon_.loop, fd, EPOLLIN, on_socket, conn);
	TAILQ_INSERT_TAIL(&connections, conn, link);
	connection_count++;
}

/* A socket that was removed is made again: without it there may be no way in, and the ranks would
 * go on. */
static void
look_after(void *arg)
{
	struct err e;
	int fd;

	look_timer = loop_timer(daemon_.loop, LOOK_MS, look_after, NULL);
	if (!listener_gone(socket_path))
		return;
	fd = listener_open(socket_path, false, &e);
	if (fd < 0)
		return;
	note("%s was removed, and is made again", socket_path);
	loop_fd_del(listen_watch);
	close(listen_fd);
	listen_fd = fd;
	listen_watch = loop_fd(daemon_.loop, listen_fd, EPOLLIN, on_listen, NULL);
}

int
server_start(const char *path, struct err *e)
{
	listen_fd = listener_open(path, true, e);
	if (listen_fd < 0)
		return -e->no;
	socket_path = xstrdup(path);
	listen_watch = loop_fd(daemon_.loop, listen_fd, EPOLLIN, on_listen, NULL);
	look_timer = loop_timer(daemon_.loop, LOOK_MS, look_after, NULL);
	return 0;
}

void
server_shut(void)
{
	struct connection *conn;

	if (listen_fd < 0)
		return;
	loop_timer_del(accept_timer);
	loop_timer_del(look_timer);
	accept_timer = look_timer = NULL;
	loop_fd_del(listen_watch);
	listener_close(listen_fd, socket_path);
	listen_fd = -1;
	TAILQ_FOREACH (conn, &connections, link)
		connection_changed(conn);
}

void
server_stop(void)
{
	struct connection *conn;
	struct call *c;

	call_stop();
	TAILQ_FOREACH (conn, &connections, link) {
		while ((c = TAILQ_FIRST(&conn->parked)))
			req_done(&c->r, -ENODEV);
		if (conn->fd >= 0)
			break_off(conn);
	}
	fid_close_unused();
	loop_timer_del(sweep_timer);
	loop_timer_del(more_timer);
	more_timer = NULL;
	sweep(NULL);
	free(socket_path);
	socket_path = NULL;
}
