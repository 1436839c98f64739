/* The ranks' output as files that grow: a rank's stdout and stderr, and a cell's part of them. */
#ifndef OUTPUT_FILE_H
#define OUTPUT_FILE_H
#include "group/cell.h"
#include "tree/tree.h"

extern const struct file_ops output_file_stdout_ops, output_file_stderr_ops; /* rankK/… */
extern const struct file_ops output_file_cell_stdout_ops,
    output_file_cell_stderr_ops; /* cells/N/rankK/… */

#endif
