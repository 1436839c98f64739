/* Connects the hooks of this folder's modules (hooks.h). */
#ifndef WIRING_H
#define WIRING_H

/* Fills the hooks of the room's own modules; once, before any group is made. */
void group_init(void);

#endif
