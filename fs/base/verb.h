/*
 * Verbs: the commands, one per line, of `ctl` files and mount options. All of them use one type of
 * table: a row per verb, and a check that runs first.
 */
#ifndef VERB_H
#define VERB_H
#include "base/words.h"

/* A line that is being executed. */
struct verb_call {
	const struct verb *verb;
	void *subject; /* what the verb acts on: a group, a rank, a cell */
	void *result;  /* result for the caller; its type is up to the table's users */
	char **word;   /* word[0] is the verb */
	int n;	       /* number of words after the verb */
	struct err *e;
};

enum verb_flags {
	VERB_ANYTIME = 1, /* a setting that may change while engines run */
	VERB_LACKING = 2, /* a setting that may change while the group lacks a host */
	VERB_FIRST = 4	  /* a setting to apply first: the meaning of others depends on it */
};

struct setting;

struct verb {
	const char *name, *args, *help;
	int min, max; /* number of words after the name */
	unsigned flags;
	int (*fn)(struct verb_call *c); /* 0 or -errno; a verb that fails changes nothing */
	const struct setting *setting;	/* what it sets (settings.c); NULL: it acts */
};

struct verb_table {
	const struct verb *verb;
	size_t n;
	/* May this verb run now? 0 or -errno. NULL: always. */
	int (*check)(const struct verb *v, const struct verb_call *c);
};

/* The verb of this name, or NULL. */
const struct verb *verb_find(const struct verb_table *t, const char *name);
/* Executes one line, with the first of the tables (NULL-terminated) that has its verb. Returns 0,
 * also for an empty line, or -errno with *e set. */
int verb_line(const struct verb_table *const *tables, const char *line, void *subject, void *result,
    struct err *e);
/* Appends a line for each verb: its name, arguments and help. A * is before those that the table's
 * check may refuse. */
void verb_help(const struct verb_table *t, struct buf *out);

#endif
