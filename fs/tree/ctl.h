/* Runs a line of a `ctl` file: the verbs of a group, a rank and a cell. */
#ifndef CTL_H
#define CTL_H
#include "group/group.h"

/* For the state that was asked for; for ranks that work. */
enum ctl_wait { WAITS_FOR_NOTHING, WAITS_FOR_STATE, WAITS_FOR_START };

/* What an action leaves to wait for: a task (e.g. reset), or the group's state. */
struct ctl_result {
	enum ctl_wait waits;
	struct task *task;
};

/* One line: 0 or -errno; a verb that fails changes nothing. */
int ctl_line(struct group *g, const char *line, struct ctl_result *res, struct err *e);
/* The same for rankK/ctl, and for cells/N/ctl. */
int ctl_rank_line(struct rank *k, const char *line, struct err *e);
int ctl_cell_line(struct cell *c, const char *line, struct err *e);
/* The verbs with what they mean, for README and man page. */
void ctl_help(struct buf *out);

#endif
