/*
 * The watchdog process: touches files in the mount to raise inotify events, and cleans up when the
 * daemon is gone.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

/* Runs until end of file on standard input, then unmounts what is left and ends the agents. Returns
 * the exit status. */
int watchdog_main(const char *mountpoint);

#endif
