/*
 * Verbs: lines of words that act, as in `ctl` files and mount options. All use one type of table: a
 * row for each verb, and a check that runs first.
 */
#ifndef VERB_H
#define VERB_H
#include "base/words.h"

/* A line that is done. */
struct verb_call {
	void *subject; /* what the verb acts on: a group, a rank, a cell */
	void *result;  /* what it leaves to its caller; of the table's users */
	char **word;   /* word[0] is the verb */
	int n;	       /* words behind it */
	struct err *e;
};

enum verb_flags {
	VERB_HIDDEN = 1,  /* known, not told: refused here */
	VERB_ANYTIME = 2, /* a setting that may be set while engines run */
	VERB_FIRST = 8,	  /* of several settings the first: what others mean depends on it */
	VERB_LACKING = 4  /* one that may be set while the group lacks a host */
};

struct verb {
	const char *name, *args, *help;
	int min, max; /* words behind the name */
	unsigned flags;
	int (*fn)(struct verb_call *c); /* 0 or -errno; a verb that fails changes nothing */
	/* Of a setting: the words behind its name that say how it is. NULL: not shown. */
	void (*print)(const void *settings, struct buf *out);
};

struct verb_table {
	const struct verb *verb;
	size_t n;
	/* May this verb be done now? 0 or -errno. NULL: always. */
	int (*check)(const struct verb *v, const struct verb_call *c);
};

/* The verb of this name, NULL: there is none. */
const struct verb *verb_find(const struct verb_table *t, const char *name);
/* Does one line, by the first of the tables (ended by NULL) that has its verb. 0, also of an empty
 * line, or -errno with e. */
int verb_line(const struct verb_table *const *tables, const char *line, void *subject, void *result,
    struct err *e);
/* A line for each verb that is not hidden: its name, its arguments, what it means. */
void verb_help(const struct verb_table *t, struct buf *out);

#endif
