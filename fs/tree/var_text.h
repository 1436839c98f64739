/* `names`: the ranks' tables of variables as one text. */
#ifndef VAR_TEXT_H
#define VAR_TEXT_H
#include "tree/tree.h"

int var_text_names(const struct place *at, struct buf *out, struct err *e);

#endif
