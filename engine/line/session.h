/* A session on the far side: its directory, its secret, and how a new connection finds it. */
#ifndef SESSION_H
#define SESSION_H
#include "loop.h"
#include "line/line.h"

struct session {
	char *dir; /* 0700; holds all that the session's ranks write */
	char secret[SECRET_SIZE + 1];
	int lock, listener;
	struct loop *loop;
	struct watch *watch;
	void (*attached)(int rfd, int wfd, int waiter);
};

/* Does the command that led here pass on both streams? 0, or -errno if one is a file or closed. */
int session_check_streams(struct err *e);
/* Creates the session. Removes the directories of sessions that died. */
int session_open(struct session *s, struct err *e);
/* From now on, calls attached for each new connection that knows the secret, with its streams and a
 * descriptor to be closed when they end. The callee owns all three. */
void session_listen(
    struct session *s, struct loop *loop, void (*attached)(int rfd, int wfd, int waiter));
void session_remove(struct session *s); /* removes the directory */

/* The process behind a connection: passes its streams to the session in dir, and exits when they
 * end. Returns the exit status. */
int session_attach(const char *dir);
/* The same for a session that already has the streams: waits until the session closes the other end
 * of waiter, and passes on the signals that may announce a preemption. */
int session_wait(int waiter);
/* In the session: the signal that this process received; 0: none, it has exited. */
int session_signal(int waiter);

#endif
