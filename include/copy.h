/* Sends bulk replies from copy threads: the loop never moves a megabyte itself. */
#ifndef COPY_H
#define COPY_H
#include "err.h"
#include <sys/types.h>

/* Where the bytes of a reply come from. Bulk data needs no copy in the daemon's own memory. */
enum source_kind { SOURCE_MEMORY, SOURCE_FD, SOURCE_PROCESS };

struct source {
	enum source_kind kind; /* of the data after the head; SOURCE_MEMORY: there is none */
	const char *head;
	uint64_t head_n;
	int fd; /* SOURCE_FD: read from offset 0 */
	/* SOURCE_PROCESS: process_vm_readv from addr on. The pidfd was opened while the process was
	 * alive: it shows whether the pid still belongs to that process. */
	pid_t pid;
	int pidfd;
	uint64_t addr;
	/* Called on any thread when the bytes of a req_copy have been read. NULL: no callback. */
	void (*sent)(void *arg);
	void *sent_arg;
};

/* Reads n bytes of the source at offset into p. Returns the number read, or -errno. May be called
 * on any thread. */
ssize_t copy_read(const struct source *s, uint64_t offset, char *p, size_t n);
/* Starts the copy threads, at least one. Returns -errno with *e set if there can be none. */
int copy_start(struct err *e);
void copy_stop(void); /* call after the last job */
/* Reads on a copy thread, then calls fn(arg, bytes, n or -errno) there; at once if no descriptor is
 * left. The source's fd may be closed after the call. */
void copy_later(const struct source *s, uint64_t offset, size_t n,
    void (*fn)(void *arg, const char *p, ssize_t n), void *arg);

#endif
