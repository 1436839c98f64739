/* What there is once in a daemon: its loop, its directories, its defaults. Filled by main.c before
 * anything runs. */
#ifndef DAEMON_H
#define DAEMON_H
#include "loop.h"

struct daemon {
	struct loop *loop;
	char *mountpoint;   /* absolute */
	char *state_dir;    /* spools and log of this mount, 0700 */
	char *engine;	    /* path of ddip-engine */
	char *python, *cwd; /* defaults of a new group */
	double mounted;	    /* wall time */
	bool ending;	    /* unmounting: nothing starts any more */
};

extern struct daemon daemon_;

#endif
