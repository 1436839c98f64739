/*
 * Lists of hosts and of how many ranks each has room for, as `hosts a:2 b:2`, a file and Slurm
 * write them. Pure functions, which ask no host.
 */
#ifndef HOSTLIST_H
#define HOSTLIST_H
#include "err.h"

enum { HOST_SLOTS = 2, HOST_SLOTS_MAX = 4096 }; /* where nobody says how many; the most */

struct host_slots {
	char *name;
	int slots;
};

struct hostlist {
	struct host_slots *host;
	size_t n;
};

struct hostlist_index;

/* Each function fills an empty list: 0, or -EINVAL, and then it is empty again. */

/* NAME[:SLOTS], divided by commas and blanks. */
int hostlist_words(const char *words, struct hostlist *out, struct err *e);
/* The lines `NAME [slots=N]` of a file; # begins a comment. path: for messages. */
int hostlist_text(const char *text, const char *path, struct hostlist *out, struct err *e);
/* SLURM_JOB_NODELIST, as n[1-3,7],m4, and SLURM_TASKS_PER_NODE, as 2(x3),1. NULL: not set. */
int hostlist_slurm(const char *nodes, const char *tasks, struct hostlist *out, struct err *e);
void hostlist_free(struct hostlist *l);
/* Finds the hosts of a list by their names, of which there may be thousands. The list lives as
 * long.
 */
struct hostlist_index *hostlist_index(const struct hostlist *l);
const struct host_slots *hostlist_find(const struct hostlist_index *x, const char *name);
void hostlist_index_free(struct hostlist_index *x);
/* As hostlist_words reads it back. */
void hostlist_print(const struct hostlist *l, struct buf *out);

#endif
