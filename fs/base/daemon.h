/*
 * Process-wide state of the daemon: its event loop, its directories, its defaults. main.c fills it
 * in before anything runs.
 */
#ifndef DAEMON_H
#define DAEMON_H
#include "loop.h"
#include <sys/types.h>

/* Owner and permissions of the mount's files, set by the options uid=, gid= and umask= as in other
 * file systems. */
struct mount_mode {
	uid_t uid;
	gid_t gid;
	mode_t umask; /* masks the owner's permissions, which group and others get too */
};

struct daemon {
	struct loop *loop;
	char *mountpoint;   /* absolute; "" if only a socket is served */
	char *state_dir;    /* spools and log of this mount, 0700 */
	char *engine;	    /* path of ddip-engine */
	char *python, *cwd; /* defaults of a new group */
	dev_t device;	    /* of the mount; 0: not known */
	double mounted;	    /* time of the mount, in seconds since 1970 */
	struct mount_mode mode;
	int log_fd;  /* for the messages of agents and of the watchdog */
	bool ending; /* unmounting: nothing new may start */
};

extern struct daemon daemon_;

#endif
