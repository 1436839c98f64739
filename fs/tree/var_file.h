/* Objects as files: opening (pull) and closing (push), removal and renaming. */
#ifndef VAR_FILE_H
#define VAR_FILE_H
#include "tree/tree.h"
#include "object/varname.h"

/* Is this file to be found now? 0, -ENOENT, or -EINVAL: the variable is there, but no such view. */
int var_find(const struct place *at, const char *name);
int var_remove(const struct place *at, struct err *e);
int var_rename(const struct place *from, const struct place *to, struct err *e);
/* Queues a push of size bytes of a memfd, which it takes over: a staged file that got a variable's
 * name. */
int var_push_file(const struct place *at, int memfd, uint64_t size, struct err *e);
/* Is such a push to this name under way? What is opened now waits for it. */
bool var_is_coming(const struct place *at, const char *name);

extern const struct file_ops var_ops_file;
extern const struct file_ops var_stack_ops; /* rankK/stack */

#endif
