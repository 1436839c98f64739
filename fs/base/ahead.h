/*
 * Reads of one open file. What a reader in order will ask for next is copied before it asks.
 */
#ifndef AHEAD_H
#define AHEAD_H
#include "source.h"

struct ahead;

typedef void ahead_fn(void *arg, const char *p, ssize_t n);

/* Calls fn(arg, bytes, n or -errno) once: now, or on a copy thread, then the source's sent(). *a is
 * the state of the open file, NULL at first. Only sources that state their size are read ahead. */
void ahead_read(
    struct ahead **a, const struct source *s, uint64_t offset, size_t n, ahead_fn *fn, void *arg);
/* The clients may have learnt of a change: what was copied before is not used any more. */
void ahead_expire(void);
/* Another number after each ahead_expire(). */
uint64_t ahead_epoch(void);
/* Reads that wait are answered all the same. NULL-safe. */
void ahead_free(struct ahead *a);

#endif
