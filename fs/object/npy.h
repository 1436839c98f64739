/* What is known of an .npy file without asking the rank that would make it. */
#ifndef NPY_H
#define NPY_H
#include "util.h"

/* The size of the .npy of a variable, by its row of the rank's table (var_table.h). False: it has
 * none, or its size is known to NumPy alone. */
bool npy_size(struct slice row, uint64_t *size);

#endif
