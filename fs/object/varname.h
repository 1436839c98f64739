/* Names in `vars`: their grammar, and the tables of views and OPs. */
#ifndef VARNAME_H
#define VARNAME_H
#include "err.h"
#include "reduce.h"

enum { VAR_NAME_SIZE = 256 }; /* of a name with its NUL: what a file name may have */

/* A name below `vars`, taken apart: NAME[.OP][.VIEW], or NAME.ATTRIBUTE….VIEW */
struct var_name {
	char name[VAR_NAME_SIZE];
	char attribute[VAR_NAME_SIZE]; /* "b.c" in `a.b.c.dir`; "": none */
	const struct var_op *op;       /* NULL: none */
	const struct var_view *view;   /* never NULL */
};

struct var_view {
	const char *name;
	bool reads, writes;
	const char *help;
	bool of_attributes; /* it can be asked of an attribute, too */
};

struct var_op {
	const char *name, *help;
	const struct reduce_op *reads; /* NULL: only written */
	bool writes;		       /* the ranks make of it what OP says (values.py) */
};

extern const struct var_view var_views[];
extern const size_t var_view_count;
extern const struct var_op var_ops[];
extern const size_t var_op_count;

/* group: at G/vars, where OPs are allowed. 0 or -EINVAL. */
int var_parse(const char *s, bool group, struct var_name *v, struct err *e);
/* Names of files that programs write aside and rename: `.name`, `name~`, `4913`. */
bool var_is_staging(const char *name);
/* Names of files that editors look for beside the one they edit, as `x.swp`, `x.json.bak`: that
 * there is no such view is no mistake of anybody's. */
bool var_is_probe(const char *name);
/* May a variable have this name? As far as C can tell: which letters beyond ASCII Python takes is
 * left to the rank. */
bool var_is_name(struct slice s);

#endif
