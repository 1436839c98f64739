/* Objects as files: opening one for reading asks its ranks for it (pull); closing one after writing
 * changes it (push). */
#ifndef VAR_FILE_H
#define VAR_FILE_H
#include "tree/tree.h"

extern const struct file_ops var_ops_file;
/* Those of a frame, which can only be read. */
extern const struct file_ops var_ops_local;

#endif
