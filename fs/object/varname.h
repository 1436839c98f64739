/* Names below `vars`: their grammar, the tables of views and OPs, what the ranks reported. */
#ifndef VARNAME_H
#define VARNAME_H
#include "err.h"
#include "object/reduce.h"

/* A name below `vars`, taken apart: NAME[.OP][.VIEW] */
struct var_name {
	char name[256];
	const struct var_op *op;     /* NULL: none */
	const struct var_view *view; /* never NULL */
};

struct var_view {
	const char *name;
	bool reads, writes;
	const char *help;
};

struct var_op {
	const char *name, *help;
	const struct reduce_op *reads; /* NULL: only written */
	bool writes;		       /* each rank takes its part (across_ranks.py) */
};

extern const struct var_view var_views[];
extern const size_t var_view_count;
extern const struct var_op var_ops[];
extern const size_t var_op_count;

/* group: at G/vars, where OPs are allowed. 0 or -EINVAL. */
int var_parse(const char *s, bool group, struct var_name *v, struct err *e);
/* Names of files that programs write aside and rename: `.name`, `name~`, `4913`. */
bool var_is_staging(const char *name);
/* The row of a rank's table that tells about a name: a slice of it, empty if there is none. */
struct slice var_row(const char *table, const char *name);
/* The i-th name of a table; false: no more. */
bool var_name_at(const char *table, size_t i, char *name, size_t size);

#endif
