/* Sends bulk replies from copy threads: the loop never moves a megabyte itself. */
#ifndef COPY_H
#define COPY_H
#include "err.h"
#include <sys/types.h>

/* Where bytes of a reply come from, so that bulk needs no copy in the daemon's own memory. */
enum source_kind { SOURCE_MEMORY, SOURCE_FD, SOURCE_PROCESS };

struct source {
	enum source_kind kind; /* of what follows the head; SOURCE_MEMORY: nothing does */
	const char *head;
	uint64_t head_n;
	int fd; /* SOURCE_FD: from its beginning on */
	/* SOURCE_PROCESS: process_vm_readv from addr on. The pidfd was opened while the process
	 * lived: it tells whether the pid is still that process's. */
	pid_t pid;
	int pidfd;
	uint64_t addr;
	/* Called when the bytes of a req_copy have been read, on any thread; NULL: nobody wants to
	 * know. */
	void (*sent)(void *arg);
	void *sent_arg;
};

/* n bytes of the source from offset on, into p: how many, or -errno. Usable on any thread. */
ssize_t copy_read(const struct source *s, uint64_t offset, char *p, size_t n);
void copy_start(void);
void copy_stop(void); /* after the last job */
/* Runs fn(arg, bytes, n or -errno) on a copy thread with what was read. */
void copy_later(const struct source *s, uint64_t offset, size_t n,
    void (*fn)(void *arg, const char *p, ssize_t n), void *arg);

#endif
