/* G/stall: which ranks wait for which, sampled when the file is opened. */
#ifndef STALL_FILE_H
#define STALL_FILE_H
#include "tree/tree.h"

extern const struct file_ops stall_file_ops, stall_file_json_ops;

#endif
