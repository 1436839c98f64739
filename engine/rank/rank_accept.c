/*
 * What torch's listeners accept: gloo's in a rank, the TCPStore's in the process that serves it.
 *
 * Whoever connects to gloo first and sends a sequence number is taken for the rank that has it, and
 * what arrives may be unpickled. So a connection within this machine must be of this user, and one
 * of another machine must come from a host of the group.
 */
#define _GNU_SOURCE
#include "rank/peer.h"
#include "rank/rank.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WHO_BYTES = 80 };

static struct {
	pthread_mutex_t lock;
	char *addresses; /* of the group's hosts; NULL: none */
} others = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
rank_accept_from(struct slice addresses)
{
	pthread_mutex_lock(&others.lock);
	free(others.addresses);
	others.addresses = slice_dup(addresses);
	pthread_mutex_unlock(&others.lock);
}

static bool
is_host_of_group(int fd)
{
	bool is;

	pthread_mutex_lock(&others.lock);
	is = others.addresses && peer_is_among(fd, others.addresses);
	pthread_mutex_unlock(&others.lock);
	return is;
}

/* Tells the daemon, which logs it, of the first connection of each kind. */
static void
tell(enum peer kind, const char *who)
{
	static atomic_flag told[PEER_UNKNOWN + 1];
	const char *how = kind == PEER_UNKNOWN ? "unchecked" : "refused";
	struct buf b = {0};
	struct msg m;

	debug("cell", "a connection is %s: %s", how, who);
	if (atomic_flag_test_and_set(&told[kind]))
		return;
	wire_pack(&b, Nstranger, 0, 0, 0, slice_text(how), slice_text(who));
	if (wire_frame(b.p, b.n, &m, NULL) > 0)
		rank_link_send(&m);
	buf_free(&b);
}

static bool
is_welcome(int fd)
{
	char who[WHO_BYTES];
	enum peer kind = peer_of(fd, who, sizeof(who));

	if (kind == PEER_REMOTE && !is_host_of_group(fd))
		kind = PEER_STRANGER;
	if (kind == PEER_STRANGER || kind == PEER_UNKNOWN)
		tell(kind, who);
	return kind != PEER_STRANGER && kind != PEER_GONE;
}

/* A caller of accept on a blocking socket wants a connection: gets one that is closed already, of
 * which nothing can be read. Returns false if fd must be closed instead. */
static bool
is_enough(int listener, int fd)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

	return !(fcntl(listener, F_GETFL) & O_NONBLOCK) &&
	       connect(fd, &nobody, sizeof(nobody)) == 0;
}

int
rank_accept4(int listener, struct sockaddr *address, socklen_t *len, int flags)
{
	const socklen_t room = len ? *len : 0;
	socklen_t n = room;
	int fd;

	while ((fd = accept4(listener, address, address ? &n : NULL, flags)) >= 0 &&
	       !is_welcome(fd) && !is_enough(listener, fd)) {
		close(fd);
		n = room;
	}
	if (len)
		*len = n;
	rank_unblock_remember(fd);
	return fd;
}

int
rank_accept(int listener, struct sockaddr *address, socklen_t *len)
{
	return rank_accept4(listener, address, len, 0);
}
