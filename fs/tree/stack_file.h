/* rankK/stack: the Python stack of a rank. */
#ifndef STACK_FILE_H
#define STACK_FILE_H
#include "tree/tree.h"

extern const struct file_ops stack_file_ops, stack_file_all_ops;

#endif
