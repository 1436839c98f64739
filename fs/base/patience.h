/* Limits how long a queried process may take to answer: by its CPU time, because elapsed time means
 * little on a busy machine. */
#ifndef PATIENCE_H
#define PATIENCE_H
#include <stdint.h>
#include <sys/types.h>

struct patience; /* one per query */

/* Calls over(arg) once, when the process has run for 50 ms and has used that much CPU time, but
 * after half a second at the latest. The patience is freed then. */
struct patience *patience_begin(pid_t pid, void (*over)(void *arg), void *arg);
void patience_end(struct patience *p); /* NULL-safe; over will not be called */

#endif
