/* Connects to the near relay. */
#include "line/reach.h"
#include "line/line.h"
#include "line/offer.h"
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REACH_MS = 5000 }; /* for all of it */

static struct {
	struct loop *loop;
	struct link *link;
	struct watch *watch; /* NULL: no attempt is in progress */
	struct timer *patience;
	int fd;
	bool connected;
	struct offer_tokens tokens;
	unsigned char said[OFFER_TOKEN]; /* by the other side */
	size_t n;
	char *where; /* its destination, for messages */
} reach;

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
	link_send(reach.link, LINE_REFUSAL, false, slice_text(why->text), (struct slice){0});
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
on_patience(void *arg)
{
	char why[64];

	reach.patience = NULL;
	snprintf(why, sizeof(why), "%s for %d s",
	    reach.connected ? "the other side said nothing" : "nobody answered", REACH_MS / 1000);
	give_up(why);
}

static void
on_word(void *arg, uint32_t events)
{
	ssize_t n = recv(reach.fd, reach.said + reach.n, OFFER_TOKEN - reach.n, MSG_DONTWAIT);
	int fd;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		give_up(n < 0 ? strerror(errno) : "the other side has closed it");
		return;
	}
	reach.n += (size_t)n;
	if (reach.n < OFFER_TOKEN)
		return;
	if (!line_is_secret(reach.said, reach.tokens.near, OFFER_TOKEN)) {
		give_up("the other side does not know the token");
		return;
	}
	fd = take_socket();
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	link_attach_direct(reach.link, fd);
}

static void
on_connected(void *arg, uint32_t events)
{
	int no = 0;
	socklen_t n = sizeof(no);

	getsockopt(reach.fd, SOL_SOCKET, SO_ERROR, &no, &n);
	if (!no && send(reach.fd, reach.tokens.far, OFFER_TOKEN, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		no = errno;
	if (no) {
		give_up(strerror(no));
		return;
	}
	reach.connected = true;
	loop_fd_del(reach.watch);
	reach.watch = loop_fd(reach.loop, reach.fd, EPOLLIN, on_word, NULL);
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
parse(struct slice offer, uint16_t *port, char **variable)
{
	const unsigned char *p = (const unsigned char *)offer.p;

	if (offer.n < sizeof(*port) + sizeof(reach.tokens))
		return false;
	*port = (uint16_t)(p[0] | p[1] << CHAR_BIT);
	offer.p += sizeof(*port);
	offer.n -= sizeof(*port);
	memcpy(&reach.tokens, offer.p, sizeof(reach.tokens));
	*variable = xstrndup(offer.p + sizeof(reach.tokens), offer.n - sizeof(reach.tokens));
	return true;
}

void
reach_offered(struct loop *loop, struct link *l, struct slice offer)
{
	struct err e = {0};
	char *variable;
	const char *address;
	uint16_t port;

	stop();
	if (!parse(offer, &port, &variable))
		return;
	reach.loop = loop;
	reach.link = l;
	reach.connected = false;
	reach.n = 0;
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
	reach.patience = loop_timer(loop, REACH_MS, on_patience, NULL);
}
