/* Names in `vars`: their grammar, and the tables of views and OPs. */
#ifndef VARNAME_H
#define VARNAME_H
#include "err.h"
#include "reduce.h"

enum { VAR_NAME_SIZE = 256 }; /* with the NUL: the limit for file names */

enum { VAR_SCOPE_SIZE = 4096 };

/* A name below `vars`, parsed: NAME[.OP][.VIEW], or NAME.ATTRIBUTE….VIEW */
struct var_name {
	/* "frame 0:" or the like, then "NAME/KEY/…" of an object whose key it is; "": the namespace
	 * of cells */
	char scope[VAR_SCOPE_SIZE];
	char name[VAR_NAME_SIZE];
	char attribute[VAR_NAME_SIZE]; /* "b.c" in `a.b.c.dir`; "": none */
	const struct var_op *op;       /* NULL: none */
	const struct var_view *view;   /* never NULL */
};

struct var_view {
	const char *name;
	bool reads, writes;
	const char *help;
	bool of_attributes; /* also works on an attribute */
	bool as_it_lies;    /* of an array: may be a head, then its bytes as they are in memory */
};

struct var_op {
	const char *name, *help;
	const struct reduce_op *reads; /* NULL: write-only */
	bool writes;		       /* the ranks do what OP says with it (values.py) */
};

extern const struct var_view var_views[];
extern const size_t var_view_count;
extern const struct var_op var_ops[];
extern const size_t var_op_count;

/* group: in G/vars, where OPs are allowed. Returns 0 or -EINVAL. */
int var_parse(const char *s, bool group, struct var_name *v, struct err *e);
/* The same of KEY[.OP][.VIEW] in a directory NAME.d: whatever is no suffix belongs to the key, of
 * which only the rank knows whether it exists. */
void var_parse_key(const char *s, bool group, struct var_name *v);
/* The length of NAME in `NAME.d`; 0: it is no such name. */
size_t var_directory(const char *s);
/* Names of temporary files that programs write and then rename: `.name`, `name~`, `4913`. */
bool var_is_staging(const char *name);
/* Names of files that editors look for next to the one they edit, such as `x.swp` or `x.json.bak`:
 * that there is no such view is not an error to report. */
bool var_is_probe(const char *name);
/* May a variable have this name, as far as C can tell? Which letters beyond ASCII Python allows is
 * left to the rank. */
bool var_is_name(struct slice s);

#endif
