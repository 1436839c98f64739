/* Requests between the tree and their front end. */
#include "front/front.h"
#include "copy.h"
#include "group/journal.h"
#include "tree/event_file.h"
#include <errno.h>

enum { INLINE_COPY = 32 << 10 }; /* size limit of copies that the loop makes itself */

enum { KERNEL_OWN = 512 }; /* the first errno that only a kernel uses, ERESTARTSYS */

static void
unpark(struct req *r)
{
	if (!r->parked)
		return;
	r->parked = false;
	r->front->unpark(r);
}

void
front_journal(const struct node *n, const char *name, const struct err *e)
{
	struct buf b = {0};

	if (!e->text[0] || !n->at.g)
		return;
	tree_path(n, &b);
	if (name)
		buf_addf(&b, "/%s", name);
	journal_fail(n->at.g, e, b.p);
	buf_free(&b);
}

void
front_trace(
    const char *front, const char *op, const struct node *n, const char *name, const char *more)
{
	struct buf b = {0};

	if (!event_file_tracing() || n->row->ops == &event_file_trace_ops)
		return;
	tree_path(n, &b);
	event_file_trace(
	    "%s %s %s%s%s %s", front, op, b.n ? b.p : "/", name ? " " : "", name ? name : "", more);
	buf_free(&b);
}

static void
ignore(struct req *r)
{
}

static pid_t
no_process(const struct req *r)
{
	return 0;
}

static const struct front nobody = {.park = ignore, .unpark = ignore, .process = no_process};

void
req_of_nobody(struct req *r)
{
	r->front = &nobody;
}

bool
req_is_nobodys(const struct req *r)
{
	return r->front == &nobody;
}

void
req_done(struct req *r, int result)
{
	unpark(r);
	if (r->on_done && r->on_done(r, result))
		return;
	if (result < 0 && r->file)
		front_journal(r->file->node, NULL, &r->err);
	r->front->done(r, result);
}

void
req_data(struct req *r, const void *p, size_t n)
{
	unpark(r);
	r->front->data(r, p, n);
}

int
front_copy_errno(ssize_t result)
{
	return result == -ESRCH ? EHOSTDOWN : (int)-result;
}

int
front_errno(int no)
{
	if (no >= 0 && no < KERNEL_OWN && no != ENOSYS)
		return no;
	note("errno %d (%s) is not for a client: it gets EIO", no, err_name(no));
	return EIO;
}

void
req_copy(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	char p[INLINE_COPY];
	ssize_t k;

	unpark(r);
	if (n > sizeof(p)) {
		r->front->copy(r, s, offset, n);
		return;
	}
	k = copy_read(s, offset, p, n);
	if (k < 0)
		r->front->done(r, -front_copy_errno(k));
	else
		r->front->data(r, p, (size_t)k);
	if (s->sent)
		s->sent(s->sent_arg);
}

int
req_park(struct req *r, req_interrupt_fn *fn)
{
	r->on_interrupt = fn;
	if (!r->parked) {
		r->parked = true;
		r->front->park(r);
	}
	return PARKED;
}

void
front_tell(struct req *r, enum interrupt how)
{
	if (r->on_interrupt)
		r->on_interrupt(r, how);
	else
		req_done(r, -EINTR);
}

pid_t
req_process(const struct req *r)
{
	return r->front->process(r);
}

struct req_client
req_client(const struct req *r)
{
	return r->front->client(r);
}
