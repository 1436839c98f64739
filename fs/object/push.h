/*
 * An object being written: a program's bytes, in a memfd that ranks will map. Knows neither files
 * nor ranks. For NAME.cat each rank takes its part in across_ranks.py.
 */
#ifndef PUSH_H
#define PUSH_H
#include "base/req.h"
#include <sys/types.h>

struct push {
	int memfd; /* -1: none; see push_fd() */
	uint64_t size;
	uint64_t filled;     /* bytes from the beginning on that were written, without a gap */
	struct pages *pages; /* memory of an older object that memfd has; NULL: none */
	bool shared;	     /* ranks map these pages: later writes go to new ones */
	bool
	    same_file; /* they have the same open file, so that no lease tells when they have not */
	int failed;    /* errno of a write that was made behind; 0: none */
};

/* Starts an empty one. Returns 0 or -errno. what: its name in messages, here and below. */
int push_open(struct push *p, const char *what, struct err *e);
void push_close(struct push *p);
/* Writes all n bytes, or returns -errno: EFBIG, ENOSPC (no object is larger than the memory that is
 * available) … Waits for the write-behind before it, some 100 µs. After push_share() the bytes so
 * far are copied if there are few, else it fails with -EOPNOTSUPP. If a write-behind has failed, so
 * do all later calls, until the size is set to 0. */
ssize_t push_write(
    struct push *p, const char *data, size_t n, uint64_t offset, const char *what, struct err *e);
int push_resize(struct push *p, uint64_t size, const char *what, struct err *e);
/* Returns a descriptor for the ranks, which the caller closes, or -errno. The push continues with
 * the same bytes. */
int push_share(struct push *p, const char *what, struct err *e);
/* Waits for a write-behind. Returns 0, or -errno if one of this object's has failed. */
int push_settle(const struct push *p, const char *what, struct err *e);
/* Answers r with the bytes that have been written. */
void push_read(const struct push *p, const char *what, struct req *r);
/* The memfd, with all bytes that have been written. */
int push_fd(const struct push *p);

#endif
