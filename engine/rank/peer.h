/* Who is at the other end of a TCP connection: a process of this user, or a stranger. */
#ifndef PEER_H
#define PEER_H
#include "util.h"

enum peer {
	PEER_OURS,
	PEER_STRANGER, /* a process of another user */
	PEER_GONE,     /* it has closed the connection, so nobody knows whose it was */
	PEER_REMOTE,   /* on another machine, or in a network namespace of its own */
	PEER_UNKNOWN   /* on this machine, whose kernel does not say whose it is */
};

/* Finds out for a connected socket fd. who: a text for messages of at most n bytes with its NUL,
 * unless the peer is ours. Thread-safe, blocks for no other process. */
enum peer peer_of(int fd, char *who, size_t n);

/* Appends the addresses of this machine, except those of the loopback, separated by commas: an IPv4
 * address, or the network of 64 bits of an IPv6 address, which may change in it. Returns 0 or
 * -errno. */
int peer_addresses(struct buf *out);
/* Is the other end of this connection one of these addresses? ANYWHERE: it is. */
bool peer_is_among(int fd, const char *addresses);
#define PEER_ANYWHERE "*"

#endif
