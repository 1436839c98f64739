/*
 * Wakes programs that watch files: inotify through the watchdog, poll(2) through the session. Ticks
 * are coalesced.
 */
#ifndef TICKS_H
#define TICKS_H
#include "util.h"

#include <sys/types.h>

enum tick_kind { TICK_MODIFY, TICK_CLOSE, TICK_CREATE, TICK_DELETE, TICK_KINDS };

/* Starts the watchdog for the daemon's mount; its notes go to the descriptor log. 0 or -errno. */
int ticks_start(int log);
/* A child has ended: if it was the watchdog, another one takes its place, and is told what that one
 * knew. False: it was another child. */
bool ticks_reaped(pid_t pid);
/* Tells it which device the mount has, and which agents are to end with us. */
void ticks_mounted(unsigned major, unsigned minor);
void ticks_agent(pid_t pid);
void ticks_agent_gone(pid_t pid);
void ticks_stop(void);
pid_t ticks_watchdog(void);
/* Something below the mount has changed: path as "group/status". */
void ticks_path(enum tick_kind kind, const char *fmt, ...) PRINTF(2, 3);
/* How many CREATE and DELETE are still out. */
size_t ticks_pending(void);
/* The watchdog asks for `name` in a vars directory: is it about to make (delete) it? Each is
 * expected once: done takes it off. */
bool ticks_expects(enum tick_kind kind, const char *path, bool done);

#endif
