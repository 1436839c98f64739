/*
 * The framed socket: writes frames of wire.h, and the descriptors that come with some of them, to a
 * stream and reads them from it. It has no loop and no queue: conn.c, a rank's threads and zygotes
 * have their own.
 *
 * A descriptor goes with the first byte of its frame, one in each sendmsg(2). A receiver that has
 * no descriptor left gets the bytes without it (MSG_CTRUNC); its place is kept, so it is known
 * which message lacks one, and all others keep theirs.
 */
#ifndef FRAME_H
#define FRAME_H
#include "wire.h"
#include <sys/types.h>

enum { FRAME_FDS = 256, FRAME_FD_CUT = -2 };

/* What has come and was not taken yet. Zero-initialised is empty. */
struct frame_reader {
	struct buf bytes;
	int fds[FRAME_FDS]; /* of frames that are in bytes, in their order; FRAME_FD_CUT */
	unsigned n_fds;
};

void frame_reader_free(struct frame_reader *r); /* closes what nobody took */
/* Is fd a socket, over which descriptors can go? */
bool frame_is_socket(int fd);
/* Reads what is there, with wait at least one byte. 1: something came, or may come (EAGAIN, EINTR);
 * 0: the end; -errno. */
int frame_receive(struct frame_reader *r, int fd, bool is_socket, bool wait);
/* The whole frame at `at` of bytes: its length, 0 if more must come, or -EBADMSG. m points into
 * bytes, which the caller drops; m->fd is the caller's, FRAME_FD_CUT if it did not arrive. */
long frame_take(struct frame_reader *r, size_t at, struct msg *m, struct err *e);
/* Sends some of the n bytes, and the descriptor with (-1: none) with the first of them. How many,
 * or -errno: -EAGAIN only without wait. */
ssize_t frame_send(int fd, bool is_socket, const char *p, size_t n, int with, bool wait);
/* The last frame of frames, at `at`, can't go without the descriptor that it lacks: it becomes an
 * Rerror, or (a T) leaves one in answers, or (an N) goes without. */
void frame_withdraw(struct buf *frames, size_t at, struct buf *answers);
/* Both directions of every connection on a loop of this process, for `trace`: in is true for what
 * comes. NULL: off. */
typedef void frame_trace_fn(bool in, const struct msg *m);
void frame_trace(frame_trace_fn *fn);
/* Tells of a message, to whoever traces; of all whole frames in these bytes, which go out. */
void frame_show(bool in, const struct msg *m);
void frame_show_all(const char *p, size_t n);
/* EMFILE: this process can't take, or copy, the descriptor of a message. */
void frame_no_descriptor(struct err *e);

#endif
