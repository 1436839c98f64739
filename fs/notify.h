/* Waking who watches: inotify by the warden's hands, poll(2) through fuse.c. Coalesced. */
#ifndef NOTIFY_H
#define NOTIFY_H
#include "util.h"

struct group;
#include <sys/types.h>

enum notice_kind { NOTICE_MODIFY, NOTICE_CLOSE, NOTICE_CREATE, NOTICE_DELETE, NOTICE_KINDS };

/* Starts the warden for a mount; its notes go to the descriptor log. 0 or -errno. */
int notify_start(const char *self, const char *mountpoint, int log);
/* Tells it which device the mount has, and whose agent is to end with us. */
void notify_mounted(unsigned major, unsigned minor);
void notify_agent(pid_t pid);
void notify_stop(void);
pid_t notify_warden(void);
/* Something below the mount has changed: path as "group/status". */
void notify_path(enum notice_kind kind, const char *fmt, ...) PRINTF(2, 3);
/* The warden asks for `name` in a vars directory: is it about to make (delete) it? Each is expected
 * once: done takes it off. */
/* A rank's table of variables has changed: CREATE and DELETE in the vars directories. */
void notify_table(struct group *g, int rank, const char *old, const char *new);
bool notify_expects(enum notice_kind kind, const char *path, bool done);

#endif
