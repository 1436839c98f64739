/*
 * Memory for pushes that is used again: a program that writes an object again and again need not
 * wait until the kernel has found and cleared new pages each time. On the loop, except where said.
 *
 * A push's memfd is kept for a few seconds, as long as memory is plentiful. It is handed out again
 * if no rank, nor any process that a rank has forked, has it open or mapped any more. The kernel
 * knows: it grants a write lease only to the last open file (fcntl(2), F_SETLEASE), so ranks must
 * never get the open file that is kept, but one of their own. It does not know of pages that are in
 * a pipe or a socket without a copy (vmsplice(2), MSG_ZEROCOPY): as with memory of malloc(3), who
 * gives some up must have waited for these.
 */
#ifndef PAGES_H
#define PAGES_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

enum { PAGES_LEAST = 4 << 20 }; /* bytes of a push whose memory is worth keeping */

struct pages {
	int fd;		/* of the memfd */
	uint64_t size;	/* bytes; they have memory */
	char *map;	/* all of them */
	uint64_t ready; /* of the map: bytes from its beginning on that take no page fault */
	uint64_t until; /* in ns */
	TAILQ_ENTRY(pages) link;
};

/* Pages that nobody uses; the caller's. Their bytes are those of an older object. NULL: none. */
struct pages *pages_take(void);
/* Those of a memfd, which they own from now on. NULL: there is no descriptor for that. */
struct pages *pages_new(int fd, uint64_t size);
/* Keeps them, or drops them if there is too little memory. */
void pages_keep(struct pages *p);
/* Give their memory back: now, or a little later. */
void pages_free(struct pages *p);
void pages_drop(struct pages *p);
/* Another open file of the memfd, for ranks. Returns -1 if there cannot be one. */
int pages_open(int fd);
/* The memfd ends at `size` from now on: what was behind it is gone. Returns 0, or -1 with errno. */
int pages_end(struct pages *p, uint64_t size);
/* Gives back, now, what has been kept longest. False: nothing is kept. */
bool pages_release(void);

/* Writes n bytes into the memory of p, if that is possible without an error. On any thread. */
bool pages_write(struct pages *p, const char *data, size_t n, uint64_t offset);

#endif
