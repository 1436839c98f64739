/* The command line: options for ddipfs, options for FUSE, the mount point. */
#ifndef OPTIONS_H
#define OPTIONS_H
#include "base/daemon.h"

/* The program's exit status where nothing can be mounted at all, by nobody's mistake. */
enum { EXIT_NO_MOUNT = 3 };

struct options {
	bool foreground;
	char *mountpoint; /* absolute, exists, is an empty directory; "" none, for socket alone */
	char *socket;	  /* absolute: 9P is served there; NULL: it is not */
	char *fuse_opts;  /* comma-separated */
	char **settings;  /* lines of ctl: "size 2" */
	size_t settings_count;
	struct mount_mode mode;
};

/* Fills o, or says what is wrong and ends the program with 2 (0 for --help and --version). Clears a
 * dead mount. */
void options_parse(struct options *o, int argc, char **argv);
void options_free(struct options *o);
/* The default interpreter: $VIRTUAL_ENV's, else that of the environment that this program is
 * installed in, else the first python3 in PATH. Owned by the caller. */
char *options_python(void);

#endif
