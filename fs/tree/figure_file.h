/* cells/N/rankK/figureF.png: the figures that a cell has displayed on a rank. */
#ifndef FIGURE_FILE_H
#define FIGURE_FILE_H
#include "tree/tree.h"

int figure_file_find(struct place *at, const char *name);
bool figure_file_next(
    const struct place *at, struct part_cursor *c, struct place *child, char *name);
void figure_file_print(const struct place *at, struct buf *out);
text_fn figure_file_text;

#endif
