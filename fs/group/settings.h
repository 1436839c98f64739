/*
 * The settings of a group, and the verbs of `ctl` that set them. Only this module writes struct
 * settings.
 */
#ifndef SETTINGS_H
#define SETTINGS_H
#include "base/verb.h"
#include "group/group.h"

/* The verbs act on a group. -EBUSY: not allowed while the group is starting or started. */
extern const struct verb_table settings_table;

void settings_default(struct settings *s);
void settings_free(struct settings *s);
/* The options of the mount, as lines of `ctl`: the settings that every group begins with. They are
 * borrowed for good. */
void settings_set_options(char **lines, size_t n);
/* Gives them to a new group. Calls bad() for each that cannot be set now. */
void settings_take_options(
    struct group *g, void (*bad)(struct group *g, const struct err *e, const char *line));
/* Appends all settings as the lines of `ctl` that set them. */
void settings_print(const struct group *g, struct buf *out);

#endif
