/* Collects pieces in memfds. Each piece asks for memory, too: others may have taken it meanwhile.
 */
#include "blob.h"
#include "frame.h"
#include "memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>

#define WHAT "an object that was sent here"

struct blob {
	LIST_ENTRY(blob) link;
	uint32_t id;
	int fd;
	uint64_t size, got;
	struct err err; /* set if there is no room for it */
};

enum { BLOBS_MAX = 1 << 16 }; /* more than anybody has use for */

struct blobs {
	LIST_HEAD(, blob) list;
	unsigned n;
};

struct blobs *
blobs_new(void)
{
	struct blobs *b = xcalloc(1, sizeof(*b));

	LIST_INIT(&b->list);
	return b;
}

static void
drop(struct blobs *b, struct blob *x)
{
	b->n--;
	LIST_REMOVE(x, link);
	if (x->fd >= 0)
		close(x->fd);
	free(x);
}

void
blobs_free(struct blobs *b)
{
	while (b && !LIST_EMPTY(&b->list))
		drop(b, LIST_FIRST(&b->list));
	free(b);
}

bool
blobs_is(const struct msg *m)
{
	return m->type == Nblob || m->type == Nwith || m->type == Nforget;
}

static struct blob *
find(const struct blobs *b, uint32_t id)
{
	struct blob *x;

	LIST_FOREACH (x, &b->list, link)
		if (x->id == id)
			break;
	return x;
}

static struct blob *
begin(struct blobs *b, uint32_t id, uint64_t size)
{
	struct blob *x = xcalloc(1, sizeof(*x));

	*x = (struct blob){.id = id, .size = size};
	x->fd = fault("blob.memfd", EMFILE) ? -1 : memfd_create("ddip-blob", MFD_CLOEXEC);
	if (x->fd < 0 && (errno == EMFILE || errno == ENFILE))
		frame_no_descriptor(&x->err);
	else if (x->fd < 0 || ftruncate(x->fd, (off_t)size) < 0)
		fail_errno(&x->err, "no memory for %llu bytes", (unsigned long long)size);
	else
		memory_take(size, WHAT, &x->err);
	LIST_INSERT_HEAD(&b->list, x, link);
	b->n++;
	return x;
}

static int
take_piece(struct blobs *b, const struct msg *m, struct err *e)
{
	struct slice data;
	struct blob *x;
	uint64_t size, offset;
	uint32_t id;

	if (wire_unpack(m, Nblob, e, &id, &size, &offset, &data) < 0)
		return -e->no;
	x = find(b, id);
	if (!x && b->n >= BLOBS_MAX)
		return fail(e, EBADMSG, "wire: more than %d blobs", BLOBS_MAX);
	if (!x)
		x = begin(b, id, size);
	if (offset > x->size || data.n > x->size - offset)
		return fail(e, EBADMSG, "wire: blob %u is longer than it said", id);
	if (!x->err.no && memory_take(data.n, WHAT, &x->err) == 0 &&
	    pwrite_all("blob.write", x->fd, data.p, data.n, offset) < data.n)
		fail_errno(&x->err, "no memory for %llu bytes", (unsigned long long)x->size);
	if (x->err.no && x->fd >= 0 && ftruncate(x->fd, 0) < 0)
		debug("wire", "blob %u: its memory is not given back", id);
	x->got += data.n;
	return 0;
}

/* The message in m comes with the blob. */
static int
take_with(const struct blobs *b, const struct msg *m, struct msg *whole, struct err *e)
{
	const struct blob *x;
	struct slice frame;
	uint32_t id;
	long n;

	if (wire_unpack(m, Nwith, e, &id, &frame) < 0)
		return -e->no;
	x = find(b, id);
	if (!x || x->got < x->size)
		return fail(e, EBADMSG, "wire: a message came before its blob %u", id);
	n = wire_frame(frame.p, frame.n, whole, e);
	if (n < 0)
		return (int)n;
	if (n == 0 || (size_t)n != frame.n || blobs_is(whole) || whole->type == Nmany)
		return fail(e, EBADMSG, "wire: what came with blob %u is no message", id);
	whole->flags |= FLAG_FD;
	*e = x->err;
	if (!e->no)
		whole->fd = fault("blob.dup", EMFILE) ? -1 : fcntl(x->fd, F_DUPFD_CLOEXEC, 0);
	if (!e->no && whole->fd < 0)
		frame_no_descriptor(e);
	return 1;
}

int
blobs_take(struct blobs *b, const struct msg *m, struct msg *whole, struct err *e)
{
	struct blob *x;
	uint32_t id;

	if (m->type == Nblob)
		return take_piece(b, m, e);
	if (m->type == Nwith)
		return take_with(b, m, whole, e);
	if (wire_unpack(m, Nforget, e, &id) < 0)
		return -e->no;
	x = find(b, id);
	if (x)
		drop(b, x);
	return 0;
}
