/* rankK/stdin: passes the bytes written to it on to input() and pdb on that rank. */
#include "tree/stdin_file.h"
#include "group/external.h"
#include "group/rank.h"
#include "host/agent.h"
#include <errno.h>

/* The most bytes that may be pending for a rank. */
enum { STDIN_MAX = 1 << 20 };

static int
stdin_open(struct file *f, struct req *r)
{
	struct rank *k = place_rank(&f->node->at, &r->err);

	if (!k || external_refuse(k, &r->err) < 0)
		return -r->err.no;
	if (k->slot == NO_SLOT)
		return fail(&r->err, ESRCH, "rank %d has no engine", f->node->at.rank);
	return 0;
}

static ssize_t
stdin_write(struct file *f, const char *p, size_t n, uint64_t offset, struct err *e)
{
	struct rank *k = place_rank(&f->node->at, e);

	if (!k)
		return -e->no;
	if (k->slot == NO_SLOT)
		return fail(e, ESRCH, "rank %d has no engine", f->node->at.rank);
	/* a blocked write could not be interrupted: a program that writes too much must retry */
	if (k->input.unread >= STDIN_MAX)
		return fail(e, EAGAIN,
		    "rank %d has not read the %zu bytes of its standard input that wait: write on "
		    "when it has",
		    k->number, k->input.unread);
	n = MIN(n, STDIN_MAX - k->input.unread);
	k->input.unread += n;
	agent_send(rank_agent(k), Nstdin, 0, k->slot, 0, -1, ((struct slice){p, n}));
	return (ssize_t)n;
}

const struct file_ops stdin_file_ops = {.open = stdin_open, .write = stdin_write};
