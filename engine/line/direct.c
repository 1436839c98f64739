/* The near end's listener, and the far end's connection to it. */
#include "line/direct.h"
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	OFFER_MS = 10000, /* for the far end to connect */
	CALLERS = 8,	  /* that have not said their token yet: the last ones */
	REACH_MS = 5000	  /* for all that the far end does */
};

struct tokens {
	unsigned char far[DIRECT_TOKEN], near[DIRECT_TOKEN]; /* by who says it */
};

/* What the other side of a connection has said so far. */
struct said {
	unsigned char token[DIRECT_TOKEN];
	size_t n;
};

struct caller {
	int fd;
	struct watch *watch; /* NULL: there is no caller */
	struct said said;
};

static struct {
	struct loop *loop;
	struct line *line;
	direct_fn *fn; /* NULL: there is no offer */
	int listener;
	struct watch *watch;
	struct timer *patience;
	struct tokens tokens;
	struct caller callers[CALLERS];
	size_t next; /* index for the next one */
} offer;

static struct {
	struct loop *loop;
	struct line *line;
	struct watch *watch; /* NULL: no attempt is in progress */
	struct timer *patience;
	int fd;
	bool connected;
	struct tokens tokens;
	struct said said;
	char *where; /* its destination, for messages */
} reach;

/* Receives what has come of a token. Returns true once it is the expected one; *wrong is set if it
 * is another one, or will never come. What follows it stays in the socket. */
static bool
hear(int fd, struct said *said, const unsigned char *expected, const char **wrong)
{
	ssize_t n = recv(fd, said->token + said->n, DIRECT_TOKEN - said->n, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		*wrong = n < 0 ? strerror(errno) : "the other side has closed it";
		return false;
	}
	said->n += (size_t)n;
	if (said->n < DIRECT_TOKEN)
		return false;
	if (same_secret(said->token, expected, DIRECT_TOKEN))
		return true;
	*wrong = "the other side does not know the token";
	return false;
}

/* Has the line use the connection, which belongs to it from here on. */
static bool
attach(struct line *l, int fd)
{
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	return line_attach_direct(l, fd);
}

/* ---- the near end: callers ---- */

static void
hang_up(struct caller *c)
{
	if (!c->watch)
		return;
	loop_fd_del(c->watch);
	c->watch = NULL;
	close(c->fd);
}

void
direct_withdraw(void)
{
	if (!offer.fn)
		return;
	offer.fn = NULL;
	loop_fd_del(offer.watch);
	loop_timer_del(offer.patience);
	for (size_t i = 0; i < CALLERS; i++)
		hang_up(&offer.callers[i]);
	if (offer.listener >= 0)
		close(offer.listener);
	explicit_bzero(&offer.tokens, sizeof(offer.tokens));
}

static void
end_with(const struct err *why)
{
	direct_fn *fn = offer.fn;

	direct_withdraw();
	fn(why);
}

/* A stranger, or the far end with a connection that has ended: it may still connect. */
static void
turn_away(struct caller *c, const char *why)
{
	note("a direct connection: %s", why);
	hang_up(c);
}

/* It is the far end. */
static void
answer(struct caller *c)
{
	const unsigned char *token = offer.tokens.near;
	struct err e = {0};

	if (send(c->fd, token, DIRECT_TOKEN, MSG_NOSIGNAL | MSG_DONTWAIT) != DIRECT_TOKEN) {
		turn_away(c, "it ended at once");
		return;
	}
	loop_fd_del(c->watch);
	c->watch = NULL;
	if (!attach(offer.line, c->fd))
		fail(&e, ENOTCONN,
		    "the connection by the launcher broke just then, or no descriptor is free");
	end_with(&e);
}

static void
on_caller_word(void *arg, uint32_t events)
{
	struct caller *c = arg;
	const char *wrong = NULL;

	if (hear(c->fd, &c->said, offer.tokens.far, &wrong))
		answer(c);
	else if (wrong)
		turn_away(c, wrong);
}

static void
on_caller(void *arg, uint32_t events)
{
	/* cppcheck-suppress nullPointer ; nobody's name is wanted */
	int fd = accept4(offer.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct caller *c = &offer.callers[offer.next];

	if (fd < 0)
		return;
	offer.next = (offer.next + 1) % CALLERS;
	hang_up(c);
	*c = (struct caller){.fd = fd};
	c->watch = loop_fd(offer.loop, fd, EPOLLIN, on_caller_word, c);
}

/* ---- the near end: the offer ---- */

void
direct_refused(struct slice text)
{
	struct err e;

	if (!offer.fn)
		return;
	fail(&e, ECONNREFUSED, "%.*s", (int)MIN(text.n, (size_t)900), text.p);
	end_with(&e);
}

static void
on_nobody(void *arg)
{
	struct err e;

	offer.patience = NULL;
	fail(&e, ETIMEDOUT, "no connection came from there for %d s", OFFER_MS / 1000);
	end_with(&e);
}

/* Opens a socket that listens on IPv6 and IPv4, or on IPv4 alone if this host has no IPv6. */
static int
open_listener(uint16_t *port, struct err *e)
{
	const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
	const struct sockaddr_in any4 = {.sin_family = AF_INET};

	union {
		struct sockaddr any;
		struct sockaddr_in6 in6;
	} bound = {0};

	socklen_t n = sizeof(bound);
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (fd >= 0) {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
		r = bind(fd, (const struct sockaddr *)&any6, sizeof(any6));
	} else {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		r = bind(fd, (const struct sockaddr *)&any4, sizeof(any4));
	}
	if (r < 0 || listen(fd, CALLERS) < 0 || getsockname(fd, &bound.any, &n) < 0) {
		fail_errno(e, "a socket that listens");
		if (fd >= 0)
			close(fd);
		return -e->no;
	}
	*port = ntohs(bound.in6.sin6_port); /* sockaddr_in has it in the same place */
	return fd;
}

static void
say_offer(uint16_t port, const char *variable)
{
	struct buf head = {0};

	buf_addc(&head, (char)(port & UCHAR_MAX));
	buf_addc(&head, (char)(port >> CHAR_BIT));
	buf_add(&head, &offer.tokens, sizeof(offer.tokens));
	line_send(
	    offer.line, LINE_OFFER, false, (struct slice){head.p, head.n}, slice_text(variable));
	explicit_bzero(head.p, head.n);
	buf_free(&head);
}

void
direct_offer(struct loop *loop, struct line *l, const char *variable, direct_fn *fn)
{
	struct err e = {0};
	uint16_t port = 0;

	direct_withdraw();
	offer.loop = loop;
	offer.line = l;
	offer.fn = fn;
	offer.watch = NULL;
	offer.patience = NULL;
	offer.listener = open_listener(&port, &e);
	if (offer.listener >= 0 &&
	    getrandom(&offer.tokens, sizeof(offer.tokens), 0) != sizeof(offer.tokens))
		fail_errno(&e, "getrandom");
	if (e.no) {
		end_with(&e);
		return;
	}
	offer.watch = loop_fd(loop, offer.listener, EPOLLIN, on_caller, NULL);
	offer.patience = loop_timer(loop, OFFER_MS, on_nobody, NULL);
	say_offer(port, variable);
}

/* ---- the far end ---- */

/* Ends the attempt. Returns its socket. */
static int
take_socket(void)
{
	loop_fd_del(reach.watch);
	loop_timer_del(reach.patience);
	reach.watch = NULL;
	reach.patience = NULL;
	explicit_bzero(&reach.tokens, sizeof(reach.tokens));
	return reach.fd;
}

static void
stop(void)
{
	if (reach.watch)
		close(take_socket());
}

static void
refuse(const struct err *why)
{
	line_send(reach.line, LINE_REFUSAL, false, slice_text(why->text), (struct slice){0});
}

/* Reports why there is no connection. */
static void
give_up(const char *why)
{
	struct err e;

	fail(&e, ECONNREFUSED, "%s: %s", reach.where, why);
	stop();
	refuse(&e);
}

static void
on_late(void *arg)
{
	char why[64];

	reach.patience = NULL;
	snprintf(why, sizeof(why), "%s for %d s",
	    reach.connected ? "the other side said nothing" : "nobody answered", REACH_MS / 1000);
	give_up(why);
}

static void
on_answer(void *arg, uint32_t events)
{
	const char *wrong = NULL;

	if (hear(reach.fd, &reach.said, reach.tokens.near, &wrong))
		attach(reach.line, take_socket());
	else if (wrong)
		give_up(wrong);
}

static void
on_connected(void *arg, uint32_t events)
{
	int no = 0;
	socklen_t n = sizeof(no);

	getsockopt(reach.fd, SOL_SOCKET, SO_ERROR, &no, &n);
	if (!no && send(reach.fd, reach.tokens.far, DIRECT_TOKEN, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		no = errno;
	if (no) {
		give_up(strerror(no));
		return;
	}
	reach.connected = true;
	loop_fd_del(reach.watch);
	reach.watch = loop_fd(reach.loop, reach.fd, EPOLLIN, on_answer, NULL);
}

/* Returns a socket that is connecting, or -errno. Only numeric addresses: a lookup would block. */
static int
begin_connect(const char *address, uint16_t port, struct err *e)
{
	const struct addrinfo hints = {
	    .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	char number[sizeof("65535")];
	int fd;

	snprintf(number, sizeof(number), "%u", port);
	if (getaddrinfo(address, number, &hints, &found) != 0)
		return fail(e, EINVAL, "'%.100s' is no address", address);
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 ||
	    (connect(fd, found->ai_addr, found->ai_addrlen) < 0 && errno != EINPROGRESS)) {
		fail(e, errno, "%s: %s", reach.where, strerror(errno));
		if (fd >= 0)
			close(fd);
		fd = -e->no;
	}
	freeaddrinfo(found);
	return fd;
}

/* Splits an offer into its parts; the caller frees *variable. Returns false if it is malformed. */
static bool
parse(struct slice packet, uint16_t *port, char **variable)
{
	const unsigned char *p = (const unsigned char *)packet.p;

	if (packet.n < sizeof(*port) + sizeof(reach.tokens))
		return false;
	*port = (uint16_t)(p[0] | p[1] << CHAR_BIT);
	packet.p += sizeof(*port);
	packet.n -= sizeof(*port);
	memcpy(&reach.tokens, packet.p, sizeof(reach.tokens));
	*variable = xstrndup(packet.p + sizeof(reach.tokens), packet.n - sizeof(reach.tokens));
	return true;
}

void
direct_reach(struct loop *loop, struct line *l, struct slice packet)
{
	struct err e = {0};
	char *variable;
	const char *address;
	uint16_t port;

	stop();
	if (!parse(packet, &port, &variable))
		return;
	reach.loop = loop;
	reach.line = l;
	reach.connected = false;
	reach.said.n = 0;
	address = getenv(variable);
	free(reach.where);
	reach.where = xasprintf("%s port %u", address ? address : "-", port);
	if (!address)
		fail(&e, EINVAL, "%.100s, which has the address to connect to, is not set there",
		    variable);
	else
		reach.fd = begin_connect(address, port, &e);
	free(variable);
	if (e.no) {
		refuse(&e);
		return;
	}
	reach.watch = loop_fd(loop, reach.fd, EPOLLOUT, on_connected, NULL);
	reach.patience = loop_timer(loop, REACH_MS, on_late, NULL);
}
