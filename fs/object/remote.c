/* Asks a rank for the bytes of a range in pieces, all at once, and answers when the last is there.
 */
#include "object/remote.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 256 << 10 }; /* by one Tread: other messages go between two of them */

struct range {
	struct req *r; /* NULL: it was interrupted */
	size_t n;
	unsigned left; /* pieces that were asked for; and 1 while that goes on */
	struct err err;
	char bytes[];
};

struct piece {
	struct range *range;
	size_t at, n;
};

static void
release(struct range *x)
{
	if (--x->left > 0)
		return;
	if (x->r && x->err.no) {
		x->r->err = x->err;
		req_done(x->r, -x->err.no);
	} else if (x->r) {
		req_data(x->r, x->bytes, x->n);
	}
	free(x);
}

static void
on_piece(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct piece *p = arg;
	struct range *x = p->range;
	struct slice data = {0};

	if (!m)
		x->err = *e;
	else if (wire_unpack(m, &x->err, &data) == 0 && data.n != p->n)
		fail(&x->err, EBADMSG, "a rank gave %zu bytes in place of %zu", data.n, p->n);
	else if (!x->err.no)
		memcpy(x->bytes + p->at, data.p, data.n);
	free(p);
	release(x);
}

static void
ask(const struct remote *o, struct range *x, size_t at, uint64_t offset, size_t n)
{
	struct piece *p = xmalloc(sizeof(*p));

	*p = (struct piece){.range = x, .at = at, .n = n};
	x->left++;
	agent_send(o->agent, Tread, 0, o->slot, agent_tag(o->agent, o->slot, on_piece, p), -1,
	    o->handle, offset, (uint32_t)n);
}

/* The answers come all the same. */
static void
interrupted(struct req *r, enum interrupt how)
{
	struct range *x = r->waits_for;

	x->r = NULL;
	req_done(r, -EINTR);
}

void
remote_read(const struct remote *o, struct req *r, struct slice head, uint64_t offset, size_t n)
{
	struct range *x = xmalloc(sizeof(*x) + n);
	size_t skip = (size_t)MIN(offset, head.n), done = MIN(head.n - skip, n);

	*x = (struct range){.r = r, .n = n, .left = 1};
	memcpy(x->bytes, head.p + skip, done);
	r->waits_for = x;
	req_park(r, interrupted);
	offset = offset > head.n ? offset - head.n : 0;
	if (done < n && !agent_slot_lives(o->agent, o->slot))
		fail(&x->err, EHOSTDOWN, "the rank is gone");
	for (size_t k; !x->err.no && done < n; done += k, offset += k) {
		k = MIN(n - done, (size_t)PIECE);
		ask(o, x, done, offset, k);
	}
	release(x);
}
