/*
 * A rank's report of its variables, parsed once: rows sorted by name. Tables are immutable, so
 * listings, comparisons and other ranks share them by reference.
 */
#ifndef VAR_TABLE_H
#define VAR_TABLE_H
#include "util.h"

struct var_table;

/* The columns of a row, as engine/ddip_engine/data/table.py writes them. */
enum var_column { VAR_NAME, VAR_TYPE, VAR_DTYPE, VAR_SHAPE, VAR_BYTES, VAR_DEVICE, VAR_COLUMNS };

/* text: lines of columns separated by tabs. Lines that do not begin with a valid variable name are
 * dropped. O(n log n), or O(n) if the lines are sorted. */
struct var_table *var_table_new(struct slice text);
struct var_table *var_table_ref(struct var_table *t);
void var_table_unref(struct var_table *t); /* NULL-safe */
/* Was it made from exactly this text? */
bool var_table_is(const struct var_table *t, struct slice text);
size_t var_table_count(const struct var_table *t);
/* The i-th row and its name, in the order of names. Valid as long as the table. */
struct slice var_table_row(const struct var_table *t, size_t i);
struct slice var_table_name(const struct var_table *t, size_t i);
/* The row for a name; p is NULL if there is none. */
struct slice var_table_find(const struct var_table *t, const char *name);
/* A column of a row; empty if the row has fewer columns. */
struct slice var_row_column(struct slice row, enum var_column column);

/* Calls fn (unless NULL), in order, for each name that only one of the tables has; in_b: it is b.
 * Returns the number of these names. O(n). */
typedef void var_table_diff_fn(void *arg, bool in_b, struct slice name);
size_t var_table_diff(
    const struct var_table *a, const struct var_table *b, var_table_diff_fn *fn, void *arg);

#endif
