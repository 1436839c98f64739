/* Tells programs that watch the mount with inotify what changes in the groups. */
#ifndef CHANGE_TICKS_H
#define CHANGE_TICKS_H

/* Listens to the groups' hooks; once, before any group is made. */
void change_ticks_init(void);

#endif
