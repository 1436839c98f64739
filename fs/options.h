/* The command line: options for ddipfs, options for FUSE, the mount point. */
#ifndef OPTIONS_H
#define OPTIONS_H
#include "base/daemon.h"

/* The exit status if nothing can be mounted here, through no fault of the user. */
enum { EXIT_NO_MOUNT = 3 };

struct options {
	bool foreground;
	char *mountpoint; /* absolute, an existing empty directory; "": none, only a socket */
	char *socket;	  /* absolute; 9P is served on it; NULL: no 9P */
	char *fuse_opts;  /* comma-separated */
	char **settings;  /* lines for ctl: "size 2" */
	size_t settings_count;
	struct mount_mode mode;
};

/* Fills in o, or reports the mistake and exits with status 2 (0 for --help and --version). Unmounts
 * a stale mount. */
void options_parse(struct options *o, int argc, char **argv);
void options_free(struct options *o);
/* The default interpreter: that of $VIRTUAL_ENV, else that of the environment in which this program
 * is installed, else the first python3 in PATH. Owned by the caller. */
char *options_python(void);

#endif
