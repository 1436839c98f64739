/* How long a process that is asked may take to answer: its share of the processor counts, not the
 * time of a machine that is busy with others. */
#ifndef PATIENCE_H
#define PATIENCE_H
#include <stdint.h>
#include <sys/types.h>

struct patience; /* of one question */

/* Calls over(arg) once when the process has had 50 ms and has used as much of the processor, after
 * half a second at the latest. The patience is gone then. */
struct patience *patience_begin(pid_t pid, void (*over)(void *arg), void *arg);
void patience_end(struct patience *p); /* NULL-safe; over is not called any more */

#endif
