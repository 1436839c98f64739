/*
 * The framed socket: writes the frames of wire.h, and the descriptors that accompany some of them,
 * to a stream and reads them from it. It has no loop and no queue: conn.c, a rank's threads and
 * zygotes have their own.
 *
 * A descriptor is sent with the first byte of its frame, one per sendmsg(2). A receiver that has no
 * descriptor left gets the bytes without it (MSG_CTRUNC). Its place in the sequence is kept, so the
 * receiver knows which message lacks its descriptor, and all others keep theirs.
 */
#ifndef FRAME_H
#define FRAME_H
#include "wire.h"
#include <sys/types.h>

enum { FRAME_FDS = 256, FRAME_FD_CUT = -2 };

/* Received data that has not been taken yet. Zero-initialised is empty. */
struct frame_reader {
	struct buf bytes;
	int fds[FRAME_FDS]; /* of the frames in bytes, in order; or FRAME_FD_CUT */
	unsigned n_fds;
};

void frame_reader_free(struct frame_reader *r); /* closes descriptors not taken */
/* Is fd a socket, which can pass descriptors? */
bool frame_is_socket(int fd);
/* Reads what is available; with wait, at least one byte. Returns 1 if data arrived or may still
 * arrive (EAGAIN, EINTR), 0 at the end of the stream, or -errno. */
int frame_receive(struct frame_reader *r, int fd, bool is_socket, bool wait);
/* Takes the frame at `at` of bytes. Returns its length, 0 if it is incomplete, or -EBADMSG. m
 * points into bytes, which the caller drops. The caller owns m->fd, which is FRAME_FD_CUT if the
 * descriptor did not arrive. */
long frame_take(struct frame_reader *r, size_t at, struct msg *m, struct err *e);
/* Sends some of the n bytes, and the descriptor `with` (-1: none) with the first of them. Returns
 * the number of bytes sent, or -errno; -EAGAIN only without wait. */
ssize_t frame_send(int fd, bool is_socket, const char *p, size_t n, int with, bool wait);
/* The last frame of frames, at `at`, cannot be sent because no descriptor is left for it. Replaces
 * an R by an Rerror; removes a T and appends an Rerror for it to answers; leaves an N in place
 * without its descriptor. */
void frame_withdraw(struct buf *frames, size_t at, struct buf *answers);
/* Called for messages in both directions, on every connection on a loop of this process, for
 * `trace`. in: the message was received. NULL: off. */
typedef void frame_trace_fn(bool in, const struct msg *m);
void frame_trace(frame_trace_fn *fn);
/* Reports a message to the tracer and the debug log. frame_show_all does so for all whole frames in
 * these bytes, which are being sent. */
void frame_show(bool in, const struct msg *m);
void frame_show_all(const char *p, size_t n);
/* Sets e to EMFILE: this process cannot receive or duplicate the descriptor of a message. */
void frame_no_descriptor(struct err *e);

#endif
