/* Connects the hooks of this folder's modules (hooks.h). */
#ifndef WIRING_H
#define WIRING_H

/* Sets the hooks of the modules in fs/group. Call once, before any group is made. */
void group_init(void);

#endif
