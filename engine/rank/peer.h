/* Who is at the other end of a TCP connection: a process of this user, or a stranger. */
#ifndef PEER_H
#define PEER_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

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

#endif
