/* What runs in a group and what waits there, as users see it: `queue` lists it, `cancel` takes it
 * back. */
#ifndef QUEUE_LIST_H
#define QUEUE_LIST_H
#include "base/record.h"
#include "group/task.h"

/* The contents of `queue`: a record for each task that has not ended, in the order of submission.
 */
void queue_list(struct group *g, struct record *out);
/* Takes these tasks from the queue, or none of them: those who wait for them get ECANCELED. Returns
 * 0; -EBUSY if one has begun or has ended, -ENOENT if there is none of this name. */
int queue_list_cancel(struct group *g, char **ids, int n, struct err *e);
/* Appends who submitted the task: " of python3 train.py (pid 4711)"; nothing if that is not known.
 */
void queue_list_owner(const struct task *w, struct buf *out);

#endif
