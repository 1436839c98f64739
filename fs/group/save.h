/*
 * `save DIR` and `load DIR`: the namespaces of all ranks to a directory, and back. Each is a cell
 * whose source is a line for the engine, `# ddip save: TOKEN DIR`
 * (engine/ddip_engine/cells/saved.py); within a cell that runs on all ranks it is steered, so that
 * all do it at one step.
 */
#ifndef SAVE_H
#define SAVE_H
#include "group/task.h"

/* Submits one. verb: "save" or "load". A directory that is not absolute is below the setting `cwd`.
 * Its task may have ended. Returns NULL with *e set: EINVAL, ESRCH if there is nothing to save, or
 * as cell_submit(). */
struct cell *save_submit(struct group *g, const char *verb, const char *dir, struct err *e);

#endif
