/*
 * What exists once in a daemon: its loop, its directories, its defaults. main.c fills it before
 * anything runs.
 */
#ifndef DAEMON_H
#define DAEMON_H
#include "loop.h"
#include <sys/types.h>

/* Who the files of the mount belong to, and who may do what: as in other file systems. */
struct mount_mode {
	uid_t uid;
	gid_t gid;
	mode_t umask; /* taken off what the owner may do, which is offered to all */
};

struct daemon {
	struct loop *loop;
	char *mountpoint;   /* absolute; "": only a socket is served */
	char *state_dir;    /* spools and log of this mount, 0700 */
	char *engine;	    /* path of ddip-engine */
	char *python, *cwd; /* defaults of a new group */
	double mounted;	    /* wall time */
	struct mount_mode mode;
	bool ending; /* unmounting: nothing starts any more */
};

extern struct daemon daemon_;

#endif
