/*
 * The watchdog process: touches the mount to raise inotify events, and cleans up when the daemon is
 * gone.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

/* Runs until standard input ends, unmounts what is left, ends the agent. The exit status. */
int watchdog_main(const char *mountpoint);

#endif
