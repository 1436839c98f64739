/*
 * The names in a vars directory: what the rank reported last, what is queued to change it, what is
 * open for writing and, while a cell runs, what the rank says.
 */
#ifndef VAR_NAMES_H
#define VAR_NAMES_H
#include "object/varname.h"
#include "tree/tree.h"

/* An open file that will be pushed to a name: the name is there from now on. */
struct var_writer {
	const struct place *at; /* of its node */
	char name[VAR_NAME_SIZE];
	TAILQ_ENTRY(var_writer) link;
};

void var_names_open(struct var_writer *w);
void var_names_close(struct var_writer *w);

/* Is this file to be found, as far as it is known here? 0, -ENOENT, or -EINVAL: the variable is
 * there, but no such view. As find in struct part. */
int var_names_find(struct place *at, const char *name);
/* As next in struct part: what was there when the listing began. */
bool var_names_next(const struct place *at, struct part_cursor *c, struct place *child, char *name);
/* May a name that was not found be one that only the rank knows: made by the cell that runs, or
 * private? */
bool var_names_may_ask(const struct place *at, const char *name);
/* Asks it for at->name. PARKED, or what var_names_find() would say. It is answered soon: by what
 * was known before if the rank is slow. */
int var_names_ask(const struct place *at, struct req *r);

/* Is something under way that changes what this name holds, and nobody waits for it? It ends soon:
 * what waits behind a running cell does not count. */
bool var_names_settling(const struct place *at, const char *name);

#endif
