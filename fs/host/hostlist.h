/*
 * Lists of hosts and the number of ranks each has room for, in the forms used by `hosts a:2 b:2`,
 * host files and Slurm. Pure functions that contact no host.
 */
#ifndef HOSTLIST_H
#define HOSTLIST_H
#include "err.h"

enum { HOST_SLOTS = 2, HOST_SLOTS_MAX = 4096 }; /* the default; the maximum */

struct host_slots {
	char *name;
	int slots;
};

struct hostlist {
	struct host_slots *host;
	size_t n;
};

struct hostlist_index;

/* The next three fill *out. They return 0, or -EINVAL with *out empty. */

/* NAME[:SLOTS], separated by commas and blanks. */
int hostlist_words(const char *words, struct hostlist *out, struct err *e);
/* The lines of a file, `NAME [slots=N]`; # begins a comment. path: for messages. */
int hostlist_text(const char *text, const char *path, struct hostlist *out, struct err *e);
/* SLURM_JOB_NODELIST, as n[1-3,7],m4, and SLURM_TASKS_PER_NODE, as 2(x3),1. NULL: not set. */
int hostlist_slurm(const char *nodes, const char *tasks, struct hostlist *out, struct err *e);
void hostlist_free(struct hostlist *l);
/* An index of the hosts of a list by name: there may be thousands. The list must outlive it. */
struct hostlist_index *hostlist_index(const struct hostlist *l);
const struct host_slots *hostlist_find(const struct hostlist_index *x, const char *name);
void hostlist_index_free(struct hostlist_index *x);
/* In the form that hostlist_words reads. */
void hostlist_print(const struct hostlist *l, struct buf *out);

#endif
