/*
 * The settings of a group, and the verbs of `ctl` that set them. Only this module, host_settings.c
 * and external.c write struct settings.
 */
#ifndef SETTINGS_H
#define SETTINGS_H
#include "base/verb.h"
#include "group/group.h"

/* The verbs act on a group. -EBUSY: not allowed while the group is starting or started. */
extern const struct verb_table settings_table;

void settings_default(struct settings *s);
void settings_free(struct settings *s);
/* Appends all settings as the lines of `ctl` that set them. */
void settings_print(const struct group *g, struct buf *out);

#endif
