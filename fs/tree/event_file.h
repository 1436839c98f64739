/* Live files that are streams of lines: `trace` and each group's `events`. */
#ifndef EVENT_FILE_H
#define EVENT_FILE_H
#include "tree/tree.h"

extern const struct file_ops live_trace_ops, live_events_ops;

/* Somebody reads `trace`? Then lines are worth making. */
bool live_tracing(void);
void live_trace(const char *fmt, ...) PRINTF(1, 2);
void live_init(void); /* wire messages go to `trace` */
void live_stop(void);

#endif
