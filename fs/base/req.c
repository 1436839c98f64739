/* A client's request: what it is answered by, and when. */
#include "base/req.h"
#include "base/ahead.h"
#include <errno.h>

/* Larger copies are made by the copy threads, and so are those that may wait. */
enum { INLINE_COPY = 32 << 10 };

static void (*wake_pollers)(void);
static int open_files;

void
req_count_file(int step)
{
	open_files += step;
}

/* The memory of a rank may map another open file: to read it there may then need this thread. */
static bool
may_wait(const struct source *s)
{
	return s->kind == SOURCE_MAKER || (s->kind == SOURCE_PROCESS && open_files > 1);
}

static void
unpark(struct req *r)
{
	if (!r->parked)
		return;
	r->parked = false;
	r->ops->unpark(r);
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

static const struct req_ops nobody = {.park = ignore, .unpark = ignore, .process = no_process};

void
req_of_nobody(struct req *r)
{
	r->ops = &nobody;
	r->uid = (uid_t)-1;
}

bool
req_is_nobodys(const struct req *r)
{
	return r->ops == &nobody;
}

void
req_done(struct req *r, int result)
{
	ahead_expire(); /* it may tell of a change */
	unpark(r);
	if (r->on_done && r->on_done(r, result))
		return;
	r->ops->done(r, result);
}

void
req_data(struct req *r, const void *p, size_t n)
{
	unpark(r);
	r->ops->data(r, p, n);
}

int
req_copy_errno(ssize_t result)
{
	return result == -ESRCH ? EHOSTDOWN : (int)-result;
}

static void
copy(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	char p[INLINE_COPY];
	ssize_t k;

	unpark(r);
	if (n > sizeof(p) || may_wait(s)) {
		r->ops->copy(r, s, offset, n);
		return;
	}
	k = source_copy(s, offset, p, n);
	if (k < 0)
		r->ops->done(r, -req_copy_errno(k));
	else
		r->ops->data(r, p, (size_t)k);
	if (s->sent)
		s->sent(s->sent_arg);
}

static void
on_bytes(struct range *x, const struct source *bytes, const struct err *e)
{
	struct req *r = x->arg;

	if (bytes) {
		copy(r, bytes, 0, (size_t)bytes->head_n);
		return;
	}
	r->err = *e;
	req_done(r, -e->no);
}

static void
read_interrupted(struct req *r, enum interrupt how)
{
	range_cancel(&r->range);
	req_done(r, -EINTR);
}

void
req_copy(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	if (s->kind != SOURCE_PROVIDER) {
		copy(r, s, offset, n);
		return;
	}
	r->range = (struct range){.done = on_bytes, .arg = r};
	req_park(r, read_interrupted);
	source_read(s, &r->range, offset, n);
}

int
req_park(struct req *r, req_interrupt_fn *fn)
{
	r->on_interrupt = fn;
	if (!r->parked) {
		r->parked = true;
		r->ops->park(r);
	}
	return PARKED;
}

void
req_interrupt(struct req *r, enum interrupt how)
{
	if (r->on_interrupt)
		r->on_interrupt(r, how);
	else
		req_done(r, -EINTR);
}

void
req_on_wake(void (*wake)(void))
{
	wake_pollers = wake;
}

void
req_wake_pollers(void)
{
	if (wake_pollers)
		wake_pollers();
}

pid_t
req_process(const struct req *r)
{
	return r->ops->process(r);
}

struct req_client
req_client(const struct req *r)
{
	return r->ops->client(r);
}
