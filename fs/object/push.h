/*
 * An object being written: a program's bytes, in a memfd that ranks will map. Knows neither files
 * nor ranks. Each rank takes its part of NAME.cat in across_ranks.py.
 */
#ifndef PUSH_H
#define PUSH_H
#include "err.h"
#include <sys/types.h>

struct push {
	int memfd; /* -1: none */
	uint64_t size;
	bool shared; /* ranks map these pages: what is written next goes to others */
};

/* Empty. 0 or -errno; what names it in messages, here and below. */
int push_open(struct push *p, const char *what, struct err *e);
void push_close(struct push *p);
/* All n bytes, or -errno: EFBIG, ENOSPC … Never waits. After push_share() the bytes so far are
 * copied, if they are few: -EOPNOTSUPP if not. */
ssize_t push_write(
    struct push *p, const char *data, size_t n, uint64_t offset, const char *what, struct err *e);
int push_resize(struct push *p, uint64_t size, const char *what, struct err *e);
/* A descriptor for the ranks, the caller's, or -errno. The push goes on with the same bytes. */
int push_share(struct push *p, const char *what, struct err *e);

#endif
