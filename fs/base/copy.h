/* Sends bulk replies from copy threads: the loop never moves a megabyte itself. */
#ifndef COPY_H
#define COPY_H
#include "base/req.h"

/* n bytes of the source from offset on, into p: how many, or -errno. Usable on any thread. */
ssize_t copy_read(const struct source *s, uint64_t offset, char *p, size_t n);
void copy_start(void);
void copy_stop(void); /* after the last job */
/* Runs fn(arg, bytes, n or -errno) on a copy thread with what was read. */
void copy_later(const struct source *s, uint64_t offset, size_t n,
    void (*fn)(void *arg, const char *p, ssize_t n), void *arg);

#endif
