/* rankK/env: the environment for a process of another program that joins the group as this rank. */
#ifndef ENV_FILE_H
#define ENV_FILE_H
#include "tree/tree.h"

/* NAME=VALUE lines for the environment of that process. Returns 0; -ENODEV if the rank no longer
 * exists; or -ESRCH, -EBUSY or -EOPNOTSUPP, with the reason in e, if it cannot join now or at
 * all. */
text_fn env_file_text;

#endif
