/* Listens for the far relay. */
#include "line/offer.h"
#include "line/line.h"
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	OFFER_MS = 10000, /* for the far side to connect */
	CALLERS = 8	  /* that have not said their token yet: the last ones */
};

struct caller {
	int fd;
	struct watch *watch; /* NULL: there is no caller */
	unsigned char said[OFFER_TOKEN];
	size_t n;
};

static struct {
	struct loop *loop;
	struct link *link;
	offer_fn *fn; /* NULL: there is no offer */
	int listener;
	struct watch *watch;
	struct timer *patience;
	struct offer_tokens tokens;
	struct caller callers[CALLERS];
	size_t next; /* index for the next one */
} offer;

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
offer_end(void)
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
	offer_fn *fn = offer.fn;

	offer_end();
	fn(why);
}

void
offer_refused(struct slice text)
{
	struct err e;

	if (!offer.fn)
		return;
	fail(&e, ECONNREFUSED, "%.*s", (int)MIN(text.n, (size_t)900), text.p);
	end_with(&e);
}

static void
on_patience(void *arg)
{
	struct err e;

	offer.patience = NULL;
	fail(&e, ETIMEDOUT, "no connection came from there for %d s", OFFER_MS / 1000);
	end_with(&e);
}

/* ---- callers ---- */

/* A stranger, or the far side with a connection that has ended: it may still connect. */
static void
refuse(struct caller *c, const char *why)
{
	note("a direct connection: %s", why);
	hang_up(c);
}

/* It is the far side. */
static void
move_to(struct caller *c)
{
	const unsigned char *token = offer.tokens.near;
	struct err e = {0};
	int fd;

	if (send(c->fd, token, OFFER_TOKEN, MSG_NOSIGNAL | MSG_DONTWAIT) != OFFER_TOKEN) {
		refuse(c, "it ended at once");
		return;
	}
	fd = c->fd;
	loop_fd_del(c->watch); /* fd belongs to the link from here on */
	c->watch = NULL;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	if (!link_attach_direct(offer.link, fd))
		fail(&e, ENOTCONN,
		    "the connection by the launcher broke just then, or no descriptor is free");
	end_with(&e);
}

static void
on_word(void *arg, uint32_t events)
{
	struct caller *c = arg;
	ssize_t n = recv(c->fd, c->said + c->n, sizeof(c->said) - c->n, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		refuse(c, n < 0 ? strerror(errno) : "the other side has closed it");
		return;
	}
	c->n += (size_t)n;
	if (c->n < sizeof(c->said))
		return;
	if (line_is_secret(c->said, offer.tokens.far, sizeof(c->said)))
		move_to(c);
	else
		refuse(c, "the other side does not know the token");
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
	c->watch = loop_fd(offer.loop, fd, EPOLLIN, on_word, c);
}

/* ---- the offer ---- */

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
	link_send(
	    offer.link, LINE_OFFER, false, (struct slice){head.p, head.n}, slice_text(variable));
	explicit_bzero(head.p, head.n);
	buf_free(&head);
}

void
offer_make(struct loop *loop, struct link *l, const char *variable, offer_fn *fn)
{
	struct err e = {0};
	uint16_t port = 0;

	offer_end();
	offer.loop = loop;
	offer.link = l;
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
	offer.patience = loop_timer(loop, OFFER_MS, on_patience, NULL);
	say_offer(port, variable);
}
