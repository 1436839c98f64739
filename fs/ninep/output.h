/* Bytes that wait for a socket to take them. */
#ifndef OUTPUT_H
#define OUTPUT_H
#include "util.h"
#include <sys/queue.h>

struct chunk;
TAILQ_HEAD(chunk_list, chunk);

struct output {
	struct chunk_list chunks;
	size_t queued; /* bytes */
};

void output_init(struct output *o); /* empty */
void output_free(struct output *o);
/* A copy of n bytes. */
void output_add(struct output *o, const void *p, size_t n);
/* n bytes of a block that malloc gave, which is the output's from now on. */
void output_give(struct output *o, char *block, size_t n);
/* Writes what fd takes without waiting. 0, or -errno: nobody will read it. */
int output_write(struct output *o, int fd);

#endif
