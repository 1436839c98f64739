/* Objects as files: the grammar of names, opening (pull) and closing (push), removal and renaming. */
#ifndef VARS_H
#define VARS_H
#include "reduce.h"
#include "tree.h"

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
	bool writes;                   /* each rank takes its part (engine/over.py) */
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
/* Is this file to be found now? 0, -ENOENT, or -EINVAL: the variable is there, but no such view. */
int var_find(const struct place *at, const char *name);
int var_remove(const struct place *at, struct err *e);
int var_rename(const struct place *from, const struct place *to, struct err *e);
/* Queues a push of size bytes of a memfd, which it takes over: a staged file that got a variable's name. */
int var_push_file(const struct place *at, int memfd, uint64_t size, struct err *e);
/* Is such a push to this name under way? What is opened now waits for it. */
bool var_is_coming(const struct place *at, const char *name);

extern const struct file_ops var_ops_file;
extern const struct file_ops var_stack_ops; /* rankK/stack */

#endif
