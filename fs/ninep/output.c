/* A queue of blocks: small replies share one, large ones are not copied. */
#include "ninep/output.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BLOCK = 16 << 10 };

struct chunk {
	char *p;
	size_t at, n, capacity; /* first byte not sent, end of the data, size of the block */
	TAILQ_ENTRY(chunk) link;
};

void
output_init(struct output *o)
{
	*o = (struct output){0};
	TAILQ_INIT(&o->chunks);
}

static void
drop_first(struct output *o)
{
	struct chunk *k = TAILQ_FIRST(&o->chunks);

	TAILQ_REMOVE(&o->chunks, k, link);
	free(k->p);
	free(k);
}

void
output_free(struct output *o)
{
	while (!TAILQ_EMPTY(&o->chunks))
		drop_first(o);
	o->queued = 0;
}

static struct chunk *
append(struct output *o, char *block, size_t n, size_t capacity)
{
	struct chunk *k = xmalloc(sizeof(*k));

	*k = (struct chunk){.p = block, .n = n, .capacity = capacity};
	TAILQ_INSERT_TAIL(&o->chunks, k, link);
	return k;
}

void
output_add(struct output *o, const void *p, size_t n)
{
	struct chunk *k = TAILQ_LAST(&o->chunks, chunk_list);

	if (!k || k->capacity - k->n < n) {
		size_t capacity = MAX(n, (size_t)BLOCK);

		k = append(o, xmalloc(capacity), 0, capacity);
	}
	memcpy(k->p + k->n, p, n);
	k->n += n;
	o->queued += n;
}

void
output_give(struct output *o, char *block, size_t n)
{
	append(o, block, n, n);
	o->queued += n;
}

int
output_write(struct output *o, int fd)
{
	struct chunk *k;

	while ((k = TAILQ_FIRST(&o->chunks))) {
		ssize_t n = fault("ninep.write", EPIPE)
				? -1
				: send(fd, k->p + k->at, k->n - k->at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		k->at += (size_t)n;
		o->queued -= (size_t)n;
		if (k->at < k->n)
			return 0;
		drop_first(o);
	}
	return 0;
}
