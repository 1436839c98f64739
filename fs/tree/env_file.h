/* rankK/env: how another program's process joins the group as this rank. */
#ifndef ENV_FILE_H
#define ENV_FILE_H
#include "tree/tree.h"

/* NAME=VALUE lines for the environment of that process. 0; -ENODEV: no such rank; -ESRCH, -EBUSY,
 * -EOPNOTSUPP: it cannot join now, or never, with the reason in e. */
text_fn env_file_text;

#endif
