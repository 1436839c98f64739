/*
 * Wakes programs that watch files with inotify, through the watchdog. Ticks are coalesced. For
 * poll(2) see req_wake_pollers().
 */
#ifndef TICKS_H
#define TICKS_H
#include "util.h"

#include <sys/types.h>

enum tick_kind { TICK_MODIFY, TICK_CLOSE, TICK_CREATE, TICK_DELETE, TICK_KINDS };

/* Starts the watchdog for the daemon's mount. Returns 0 or -errno. */
int ticks_start(void);
/* Call for each child that has exited. If it was the watchdog, starts a new one and passes on what
 * the old one knew. False: it was another child. */
bool ticks_reaped(pid_t pid);
/* Tell the watchdog which device the mount has, and which agents must end with the daemon. */
void ticks_mounted(unsigned major, unsigned minor);
void ticks_agent(pid_t pid);
void ticks_agent_gone(pid_t pid);
void ticks_stop(void);
pid_t ticks_watchdog(void);
/* A file below the mount has changed; its path is formatted as in "group/status". */
void ticks_path(enum tick_kind kind, const char *fmt, ...) PRINTF(2, 3);
/* A directory below the mount is gone, and its watchers with it: drops all ticks in it. */
void ticks_forget(const char *fmt, ...) PRINTF(1, 2);
/* Number of CREATE and DELETE ticks that are still pending. */
size_t ticks_pending(void);
/* For a request by the watchdog in a vars directory: is it about to create (delete) this path? Each
 * tick is expected once: with done set, removes it. */
bool ticks_expects(enum tick_kind kind, const char *path, bool done);

#endif
