/*
 * The names in a vars directory: those that the rank last reported, corrected by queued changes and
 * by files open for writing; while a cell runs, the rank is asked as well.
 */
#ifndef VAR_NAMES_H
#define VAR_NAMES_H
#include "object/varname.h"
#include "tree/tree.h"

/* An open file that will be pushed to a name. The name exists from now on. */
struct var_writer {
	const struct place *at; /* its node's */
	char name[VAR_NAME_SIZE];
	TAILQ_ENTRY(var_writer) link;
};

void var_names_open(struct var_writer *w);
void var_names_close(struct var_writer *w);

/* Parses the name of a file in the directory of at, as var_parse() or var_parse_key(); "" stands
 * for the object of the directory itself. */
int var_names_parse(const struct place *at, const char *name, struct var_name *v, struct err *e);
/* The length of the name of an object in the name of its directory, `NAME.d` or `KEY.d`, in the
 * directory of at; 0: it is no such name. */
size_t var_names_directory(const struct place *at, const char *name);

/* Does this file exist, as far as is known here? Returns 0, -ENOENT, or -EINVAL if the variable
 * exists but the view does not. As find in struct part. */
int var_names_find(struct place *at, const char *name);
/* As next in struct part: lists the names that existed when the listing began. */
bool var_names_next(const struct place *at, struct part_cursor *c, struct place *child, char *name);
/* A name that was looked for in the inside of an object is made: that is no failure. */
void var_names_made(const struct place *at, const char *name);
/* Could a name that was not found be known only to the rank: created by the running cell, or
 * private? */
bool var_names_may_ask(const struct place *at, const char *name);
/* Is this inside of an object known to be there? It, or something in it, is the last thing for
 * which a rank was asked, a moment ago, and no client has been answered anything since that could
 * tell of a change. */
bool var_names_known(const struct place *at);
/* Asks the rank for at->name, or for the inside of the object of at. Returns PARKED; r gets what
 * var_names_find() would return. The answer comes soon: if the rank is slow, it is -ENOENT, or
 * -EAGAIN where nobody else knows. Returns that if the rank is known to be slow. */
int var_names_ask(const struct place *at, struct req *r);

/* Is a change of this name under way that no request waits for? It ends soon: changes queued behind
 * a running cell do not count. */
bool var_names_settling(const struct place *at, const char *name);

#endif
