/* Runs a line of a `ctl` file: the verbs of groups, ranks and cells. */
#ifndef CTL_H
#define CTL_H
#include "group/group.h"

/* WAITS_FOR_STATE: for the requested state; WAITS_FOR_START: for the ranks to be ready. */
enum ctl_wait { WAITS_FOR_NOTHING, WAITS_FOR_STATE, WAITS_FOR_START };

/* What the close of `ctl` must wait for after a verb: a task (e.g. reset), or the group's state. */
struct ctl_result {
	enum ctl_wait waits;
	struct task *task;
};

/* Runs one line. Returns 0 or -errno; a verb that fails changes nothing. */
int ctl_line(struct group *g, const char *line, struct ctl_result *res, struct err *e);
/* The same for rankK/ctl, and for cells/N/ctl. */
int ctl_rank_line(struct rank *k, const char *line, struct err *e);
int ctl_cell_line(struct cell *c, const char *line, struct err *e);
/* Prints the verbs and their meanings, for the README and the man page. */
void ctl_help(struct buf *out);

#endif
