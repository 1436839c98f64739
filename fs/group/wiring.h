/* Who hears of what within the room. */
#ifndef WIRING_H
#define WIRING_H

/* Fills the hooks of the room's own modules; once, before any group is made. */
void group_init(void);

#endif
