/* The warden process: touches the mount for inotify, and cleans up when the daemon is gone. */
#ifndef WARDEN_H
#define WARDEN_H

/* Runs until standard input ends, unmounts what is left, ends the agent. The exit status. */
int warden_main(const char *mountpoint);

#endif
