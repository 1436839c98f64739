/* The user's frames of a rank: rankK/frames, and the directories of what they hold, `locals`. */
#ifndef FRAME_FILE_H
#define FRAME_FILE_H
#include "object/varname.h"
#include "tree/tree.h"

extern const struct file_ops frame_file_ops;

/* The parts `locals`, `locals.F` (of the frame F) and, in them, NAME: see struct part. */
int frame_file_find_locals(struct place *at, const char *name);
bool frame_file_next_locals(
    const struct place *at, struct part_cursor *c, struct place *child, char *name);
int frame_file_find_numbered(struct place *at, const char *name);
void frame_file_print(const struct place *at, struct buf *out);
/* Prints the directory of an object, `NAME.d/KEY.d`. */
void frame_file_print_inside(const struct place *at, struct buf *out);
/* Writes the next name that the frame has, as the text of the directory says. */
bool frame_file_next_name(
    const struct place *at, struct part_cursor *c, struct place *child, char *name);
/* Writes the scope of the names in the place, "frame 0:NAME/" or the like, to
 * scope[VAR_SCOPE_SIZE]. */
void frame_file_scope(const struct place *at, char *scope);

#endif
