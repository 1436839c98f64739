/* A stay is the life of a line's far end, which outlives its connections: its directory, its
 * secret, and how a new connection finds it. */
#ifndef STAY_H
#define STAY_H
#include "loop.h"
#include "line/line.h"

struct stay {
	char *dir; /* 0700; holds all that its ranks write */
	char secret[SECRET_SIZE + 1];
	int lock, listener;
	struct loop *loop;
	struct watch *watch;
	void (*attached)(int rfd, int wfd, int waiter);
};

/* Does the command that led here pass on both streams? 0, or -errno if one is a file or closed. */
int stay_check_streams(struct err *e);
/* Creates the stay. Removes the directories of stays that died. */
int stay_open(struct stay *s, struct err *e);
/* From now on, calls attached for each new connection that knows the secret, with its streams and a
 * descriptor to be closed when they end. The callee owns all three. */
void stay_listen(struct stay *s, struct loop *loop, void (*attached)(int rfd, int wfd, int waiter));
void stay_remove(struct stay *s); /* removes the directory */

/* The process behind a connection: passes its streams to the far end in dir, and exits when they
 * end. Returns the exit status. */
int stay_attach(const char *dir);
/* The same for a far end that already has the streams: waits until it closes the other end of
 * waiter, and passes on the signals that may announce a preemption. */
int stay_wait(int waiter);
/* In the far end: the signal that this process received; 0: none, it has exited. */
int stay_signal(int waiter);
/* Parses how long a stay lasts without a connection, in seconds, into *ms. Returns false if it is
 * invalid. */
bool stay_linger(const char *seconds, uint64_t *ms);

#endif
