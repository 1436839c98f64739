/* What becomes of a failed or traced request: an errno, a line in `error` or `trace`. */
#include "front/front.h"
#include "group/journal.h"
#include "tree/event_file.h"
#include <errno.h>

enum { KERNEL_OWN = 512 }; /* the first errno that only a kernel uses, ERESTARTSYS */

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
front_failed(const struct req *r, int result)
{
	if (result < 0 && r->file)
		front_journal(r->file->node, NULL, &r->err);
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

int
front_errno(int no)
{
	if (no >= 0 && no < KERNEL_OWN && no != ENOSYS)
		return no;
	note("errno %d (%s) is not for a client: it gets EIO", no, err_name(no));
	return EIO;
}
