/* The settings of a group: one row each. */
#ifndef SETTINGS_H
#define SETTINGS_H
#include "group/group.h"

struct setting;

void settings_default(struct settings *s);
void settings_free(struct settings *s);

/* The setting of this name, NULL: there is none. */
const struct setting *settings_find(const char *name);
/* What `word[0] word[1] … word[n]` says. 0; -EINVAL: how it would be right; -EBUSY: not in this
 * state. */
int settings_set(const struct setting *v, struct group *g, char **word, int n, struct err *e);

/* All of them as the lines that set them. */
void settings_print(const struct group *g, struct buf *out);
/* What they mean, for README and man page. */
void settings_help(struct buf *out);
/* " size gpus …" */
void settings_names(struct buf *out);

#endif
