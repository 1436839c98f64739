/* Connects to the near relay. */
#include "relay/reach.h"
#include "relay/packet.h"
#include "relay/proof.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct {
	struct link *link;
	struct proof *proof; /* NULL: no attempt is in progress */
	char *where;	     /* its destination, for messages */
} reach;

static void
refuse(const struct err *why)
{
	link_send(reach.link, PACKET_REFUSAL, false, slice_text(why->text), (struct slice){0});
}

static void
on_proof(void *arg, struct proof *p, int fd, const struct err *why)
{
	struct err e;

	reach.proof = NULL;
	if (fd < 0) {
		fail(&e, why->no, "%s: %.900s", reach.where, why->text);
		refuse(&e);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	link_move(reach.link, fd);
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
parse(struct slice offer, uint16_t *port, unsigned char secret[PROOF_SECRET], char **variable)
{
	uint64_t v;

	if (!wire_get('2', &offer.p, &offer.n, &v, NULL) || offer.n < PROOF_SECRET)
		return false;
	*port = (uint16_t)v;
	memcpy(secret, offer.p, PROOF_SECRET);
	*variable = xstrndup(offer.p + PROOF_SECRET, offer.n - PROOF_SECRET);
	return true;
}

void
reach_offered(struct loop *loop, struct link *l, struct slice offer)
{
	unsigned char secret[PROOF_SECRET];
	struct err e = {0};
	char *variable;
	const char *address;
	uint16_t port;
	int fd = -1;

	if (!parse(offer, &port, secret, &variable))
		return;
	proof_end(reach.proof);
	reach.proof = NULL;
	reach.link = l;
	address = getenv(variable);
	free(reach.where);
	reach.where = xasprintf("%s port %u", address ? address : "-", port);
	if (!address)
		fail(&e, EINVAL, "%.100s, which has the address to connect to, is not set there",
		    variable);
	else
		fd = begin_connect(address, port, &e);
	if (fd >= 0)
		reach.proof = proof_start(loop, fd, PROOF_CALLER, secret, on_proof, NULL, &e);
	if (e.no)
		refuse(&e);
	explicit_bzero(secret, sizeof(secret));
	free(variable);
}
