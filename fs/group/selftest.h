/*
 * A self-test of a group's process group: the ranks measure its collectives and check what they
 * receive (engine/ddip_engine/groups/selftest.py). G/selftest shows a table of their reports.
 */
#ifndef SELFTEST_H
#define SELFTEST_H
#include "group/group.h"

/* Creates the task of a self-test on all ranks with these sizes (n words such as 64K; n 0: the
 * usual sizes). The caller submits it; it frees itself when it ends. Returns NULL with *e set:
 * EINVAL, or EOPNOTSUPP if a rank is external. */
struct task *selftest_new(struct group *g, char **sizes, int n, struct err *e);
/* Appends the report of the last self-test that ended. */
void selftest_print(const struct group *g, struct buf *out);

#endif
