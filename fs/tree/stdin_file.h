/* rankK/stdin: a rank's standard input. */
#ifndef STDIN_FILE_H
#define STDIN_FILE_H
#include "tree/tree.h"

extern const struct file_ops stdin_file_ops;

#endif
