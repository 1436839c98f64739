/* The inside of objects as directories: NAME.d, and KEY.d in it. */
#ifndef INSIDE_DIR_H
#define INSIDE_DIR_H
#include "tree/tree.h"

extern const struct file_ops inside_dir_ops;

/* The parts NAME.d and KEY: see struct part. Only the rank knows them: nothing is found here. */
int inside_dir_find(struct place *at, const char *name);
bool inside_dir_next(
    const struct place *at, struct part_cursor *c, struct place *child, char *name);
bool inside_dir_next_key(
    const struct place *at, struct part_cursor *c, struct place *child, char *name);

#endif
