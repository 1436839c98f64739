/* Objects as files: opening one to read asks its ranks (pull), closing a written one changes it
 * (push).
 */
#ifndef VAR_FILE_H
#define VAR_FILE_H
#include "tree/tree.h"

extern const struct file_ops var_ops_file;

#endif
