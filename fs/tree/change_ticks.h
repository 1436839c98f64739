/* Reports changes in the groups to programs that watch the mount with inotify. */
#ifndef CHANGE_TICKS_H
#define CHANGE_TICKS_H

/* Installs the groups' hooks. Call once, before any group is created. */
void change_ticks_init(void);

#endif
