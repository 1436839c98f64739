/* Live files that are streams of lines: `trace` and each group's `events`. */
#ifndef EVENT_FILE_H
#define EVENT_FILE_H
#include "tree/tree.h"

text_fn event_file_last; /* G/events.last */

extern const struct file_ops event_file_trace_ops, event_file_ops;

/* Is `trace` open? Only then are its lines worth formatting. */
bool event_file_tracing(void);
void event_file_trace(const char *fmt, ...) PRINTF(1, 2);
void event_file_init(void); /* from now on, wire messages go to `trace` */
/* Answers who waits for a line of `trace` with ENODEV. */
void event_file_answer(void);
/* Call when `trace` is no longer open over 9P. */
void event_file_stop(void);

#endif
