/*
 * Unblocks a rank that waits in a collective while Python is stuck.
 *
 * No torch call ends a gloo collective; shutdown(2) of its connected sockets does, within
 * milliseconds. The listening socket is never shut down, because the process would die in accept.
 * While gloo connects, a rank may wait for a connection that nobody will make: it is made here.
 * The store's connections are shut down only if the rank may be waiting for the store. Sockets that
 * the program created are left alone: rank_gloo.c records which ones are torch's.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DIAL_MS = 100, HANG_UP_MS = 2000 };

static _Atomic uint16_t store_port;
static _Atomic bool spans_hosts; /* the group has ranks on another host */
static _Atomic uint32_t world_size;

/* Connections that end_wait_for_peers() has made; the I/O thread's. */
static struct {
	struct loop *loop;
	struct timer *hang_up;
	int *fds;
	size_t n;
} dialled;

void
rank_unblock_init(struct loop *l)
{
	dialled.loop = l;
}

/* Sockets that torch created. A descriptor may be another file by now: the cookie shows it. */
static struct {
	pthread_mutex_t lock;
	bool known;	   /* torch's calls are intercepted */
	uint64_t *cookies; /* by descriptor; 0: not torch's */
	size_t capacity;
} made = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
rank_unblock_lock(void)
{
	pthread_mutex_lock(&made.lock);
}

void
rank_unblock_unlock(void)
{
	pthread_mutex_unlock(&made.lock);
}

void
rank_unblock_remembers(void)
{
	made.known = true;
}

/* A socket's number, which is never reused in its network namespace; 0 if fd is not a socket. */
static uint64_t
cookie_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

void
rank_unblock_remember(int fd)
{
	int saved = errno;
	uint64_t cookie;
	size_t old;

	if (fd < 0 || !(cookie = cookie_of(fd))) {
		errno = saved;
		return;
	}
	rank_unblock_lock();
	old = made.capacity;
	if ((size_t)fd >= old) {
		made.capacity = MAX((size_t)fd + 1, old * 2);
		made.cookies = xrealloc(made.cookies, made.capacity * sizeof(*made.cookies));
		memset(made.cookies + old, 0, (made.capacity - old) * sizeof(*made.cookies));
	}
	made.cookies[fd] = cookie;
	rank_unblock_unlock();
	errno = saved;
}

void
rank_unblock_group(uint32_t size, struct slice env)
{
	static const char key[] = "MASTER_PORT=", peer[] = "DDIP_PEER=";

	world_size = size;
	spans_hosts = false;
	for (size_t at = 0; at < env.n; at += strnlen(env.p + at, env.n - at) + 1) {
		struct slice line = {env.p + at, strnlen(env.p + at, env.n - at)};

		if (line.n > sizeof(key) - 1 && !memcmp(line.p, key, sizeof(key) - 1)) {
			char *text = slice_dup(line);

			store_port = (uint16_t)atoi(text + sizeof(key) - 1);
			free(text);
		}
		if (line.n > sizeof(peer) - 1 && !memcmp(line.p, peer, sizeof(peer) - 1))
			spans_hosts = true;
	}
}

/* The peer's port of a connected TCP socket; 0 if fd is anything else. *local: the peer is on this
 * host. */
static uint16_t
peer_port(int fd, bool *local)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} peer, us;

	socklen_t len = sizeof(peer), us_len = sizeof(us), int_len = sizeof(int);
	int type, listens;

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &int_len) < 0 || type != SOCK_STREAM ||
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_len) < 0 || listens ||
	    getpeername(fd, &peer.any, &len) < 0 || getsockname(fd, &us.any, &us_len) < 0)
		return 0;
	if (peer.any.sa_family == AF_INET) {
		*local = peer.v4.sin_addr.s_addr == us.v4.sin_addr.s_addr ||
			 ntohl(peer.v4.sin_addr.s_addr) >> 24 == 127;
		return ntohs(peer.v4.sin_port);
	}
	if (peer.any.sa_family != AF_INET6)
		return 0;
	*local = !memcmp(&peer.v6.sin6_addr, &us.v6.sin6_addr, sizeof(us.v6.sin6_addr));
	return ntohs(peer.v6.sin6_port);
}

static bool
has_one(const char *name, const char *const *words)
{
	for (; name && *words; words++)
		if (strstr(name, *words))
			return true;
	return false;
}

/* Does that call connect the ranks of a new group? */
static bool
makes_group(const char *name)
{
	static const char *const words[] = {
	    "init", "new_group", "new_subgroups", "split", "device_mesh", NULL};

	return has_one(name, words);
}

/* Does that call also wait for the store? */
static bool
uses_store(const char *name)
{
	static const char *const words[] = {"store", "destroy", "monitored_barrier", NULL};

	return makes_group(name) || has_one(name, words);
}

/* Is it still the socket that torch made? */
static bool
is_torchs(int fd)
{
	bool is;

	rank_unblock_lock();
	is = made.cookies[fd] && cookie_of(fd) == made.cookies[fd];
	rank_unblock_unlock();
	return is;
}

/* Shuts down a connection; that to the store only with store_too. remote_too: also one to another
 * host, which is the program's own while the group is on one host. */
static void
end_connection(int fd, bool store_too, bool remote_too)
{
	bool local = false;
	uint16_t port = peer_port(fd, &local);

	if (!port || (!local && !remote_too) || (port == store_port && !store_too))
		return;
	debug("cell", "shutdown of socket %d to port %u", fd, port);
	shutdown(fd, SHUT_RDWR);
}

static void
hang_up(void *arg)
{
	dialled.hang_up = NULL;
	while (dialled.n)
		close(dialled.fds[--dialled.n]);
}

/* connect(2) that gives up soon: the listener is on this machine. */
static bool
connects(int fd, const struct sockaddr *to, socklen_t len)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int error = ETIMEDOUT;
	socklen_t n = sizeof(error);

	if (connect(fd, to, len) == 0)
		return true;
	if (errno == EINPROGRESS && poll(&p, 1, DIAL_MS) > 0)
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
	errno = error;
	return error == 0;
}

/* Connects to this rank's own listener as the peer that has this number there would
 * (haveConnection() in gloo/transport/tcp/listener.cc), and sends nothing else. */
static void
dial(const struct sockaddr *listener, socklen_t len, int64_t number)
{
	int fd = socket(listener->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || !connects(fd, listener, len) ||
	    send(fd, &number, sizeof(number), MSG_NOSIGNAL) != (ssize_t)sizeof(number)) {
		debug("cell", "no connection as pair %lld: %s", (long long)number, strerror(errno));
		if (fd >= 0)
			close(fd);
		return;
	}
	shutdown(fd, SHUT_RDWR);
	/* not closed: who has made it is still to be seen (rank_accept.c) */
	dialled.fds = xrealloc(dialled.fds, (dialled.n + 1) * sizeof(*dialled.fds));
	dialled.fds[dialled.n++] = fd;
}

/* Gloo's constructor waits until the other ranks have connected, for half an hour if one failed
 * before it did. Each of them has a number in each listener, below the world size. */
static void
end_wait_for_peers(int fd)
{
	struct sockaddr_storage listener;
	socklen_t len = sizeof(listener), int_len = sizeof(int);
	int listens;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_len) < 0 || !listens ||
	    getsockname(fd, (struct sockaddr *)&listener, &len) < 0)
		return;
	debug("cell", "connections to the listener %d in place of the other ranks", fd);
	loop_timer_del(dialled.hang_up);
	dialled.hang_up = loop_timer(dialled.loop, HANG_UP_MS, hang_up, NULL);
	for (uint32_t i = 0; i < world_size; i++)
		dial((const struct sockaddr *)&listener, len, i);
}

/* For when torch's calls cannot be intercepted and its sockets are not known: connections to other
 * hosts may be the program's own. */
static void
end_all_connections(bool store_too)
{
	DIR *d = opendir("/proc/self/fd");

	if (!d) {
		note("cannot list the descriptors of this rank: %s", strerror(errno));
		return;
	}
	for (struct dirent *f; (f = readdir(d));)
		if (f->d_name[0] != '.')
			end_connection(atoi(f->d_name), store_too, false);
	closedir(d);
}

void
rank_unblock_sockets(bool always)
{
	const char *name = atomic_load(&rank_collective);
	bool store_too = uses_store(name) || (always && !name);
	size_t capacity;

	if (store_too)
		rank_store_shut();
	if (!made.known) {
		end_all_connections(store_too);
		return;
	}
	rank_unblock_lock();
	for (size_t fd = 0; fd < made.capacity; fd++)
		if (made.cookies[fd] && cookie_of((int)fd) == made.cookies[fd])
			end_connection((int)fd, store_too, spans_hosts);
	capacity = makes_group(name) ? made.capacity : 0;
	rank_unblock_unlock();
	for (size_t fd = 0; fd < capacity; fd++)
		if (is_torchs((int)fd))
			end_wait_for_peers((int)fd);
}

void
rank_unblock_disconnect(void)
{
	if (made.known)
		rank_unblock_sockets(false);
}
