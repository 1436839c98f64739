/*
 * A self-test of a group's process group: the ranks measure its collectives and check what they
 * receive (engine/ddip_engine/selftest.py); the table of G/selftest is made of what they say.
 */
#ifndef SELFTEST_H
#define SELFTEST_H
#include "group/group.h"

/* The task for one on all ranks with these sizes (n words such as 64K; none: the usual ones), to be
 * submitted; it frees itself at its end. NULL with e: EINVAL, EOPNOTSUPP (a rank is external). */
struct task *selftest_new(struct group *g, char **sizes, int n, struct err *e);
/* What the last one that ended found. */
void selftest_print(const struct group *g, struct buf *out);

#endif
