/* A queue of bytes to be sent on a socket. */
#ifndef NINEP_OUTPUT_H
#define NINEP_OUTPUT_H
#include "util.h"
#include <sys/queue.h>

struct chunk;
TAILQ_HEAD(chunk_list, chunk);

struct output {
	struct chunk_list chunks;
	size_t queued; /* bytes */
};

void output_init(struct output *o); /* starts empty */
void output_free(struct output *o);
/* Queues a copy of n bytes. */
void output_add(struct output *o, const void *p, size_t n);
/* Queues n bytes of a block from malloc, and takes ownership of the block. */
void output_give(struct output *o, char *block, size_t n);
/* Writes what fd accepts without blocking. Returns 0, or -errno if the connection is broken. */
int output_write(struct output *o, int fd);

#endif
