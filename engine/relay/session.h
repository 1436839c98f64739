/* A session on the far side: its directory, its secret, and how a new connection finds it. */
#ifndef SESSION_H
#define SESSION_H
#include "loop.h"
#include "relay/packet.h"

struct session {
	char *dir; /* 0700, with all that the session's ranks write */
	char secret[SECRET_SIZE + 1];
	int lock, listener;
	struct loop *loop;
	struct watch *watch;
	void (*attached)(int rfd, int wfd, int waiter);
};

/* Does the command that led here pass both streams on? 0, or -errno: one is a file, or closed. */
int session_check_streams(struct err *e);
/* Makes it. Directories of sessions that died are removed. */
int session_open(struct session *s, struct err *e);
/* attached is called for each new connection that knows the secret, from now on: its streams, and a
 * descriptor that is to be closed when they end. All three are its own. */
void session_listen(
    struct session *s, struct loop *loop, void (*attached)(int rfd, int wfd, int waiter));
void session_remove(struct session *s); /* the directory */

/* The process that a connection is: gives its streams to the session in dir, and ends with them.
 * The exit status. */
int session_attach(const char *dir);
/* The same for a session that has them already: waits until it closes the other end of waiter, and
 * passes on the signals that may announce a preemption. */
int session_wait(int waiter);
/* In the session: the signal that this process was sent; 0: none, it has ended. */
int session_signal(int waiter);

#endif
