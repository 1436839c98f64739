/* `names`: the ranks' tables of variables as one text, generated in pieces so that other requests
 * are served in between. */
#ifndef VAR_TEXT_H
#define VAR_TEXT_H
#include "tree/tree.h"

extern const struct file_ops var_text_names_ops;

#endif
