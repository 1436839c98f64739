/* Files that show the step of the running cell: a reader waits until its first rank has been asked.
 */
#ifndef STEPS_FILE_H
#define STEPS_FILE_H
#include "tree/tree.h"

extern const struct file_ops steps_file_ops; /* G/status, G/status.json */

#endif
