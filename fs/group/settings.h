/*
 * The settings of a group: the verbs of `ctl` that set them. Only this module writes struct
 * settings.
 */
#ifndef SETTINGS_H
#define SETTINGS_H
#include "base/verb.h"
#include "group/group.h"

/* Acts on a group. -EBUSY: not while it is starting or started. */
extern const struct verb_table settings_table;

void settings_default(struct settings *s);
void settings_free(struct settings *s);
/* All of them as the lines that set them. */
void settings_print(const struct group *g, struct buf *out);

#endif
