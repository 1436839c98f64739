/* ddipfs.log, which replaces stderr in the background. */
#ifndef LOG_H
#define LOG_H

/* Opens it in the mount's directory, and bounds it: what is older than the last LOG_MAX bytes or so
 * is moved to ddipfs.log.1, which replaces the one before. Returns its descriptor, or ends the
 * program. */
int log_open(void);

#endif
