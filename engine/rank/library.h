/* A library of NVIDIA's by dlopen: which one, and a table filled with its functions. */
#ifndef LIBRARY_H
#define LIBRARY_H
#include "err.h"
#include <pthread.h>

struct symbol {
	const char *name;
	void *to; /* a pointer to a function */
	bool needed;
};

/* One that is loaded once: a failure is remembered. */
struct library {
	const char *title;    /* "CUDA" */
	const char *variable; /* of the environment: names the file */
	const char *const *names;
	size_t names_count;
	const struct symbol *symbols;
	size_t symbols_count;
	int (*describe)(
	    char *text, size_t size, struct err *e); /* its version; it has its symbols */
	pthread_mutex_t lock;			     /* of open and close */
	void *handle;
	struct err why; /* it could not be opened because */
	char version[64];
};

/* 0, or -errno with e (may be NULL). Tries: the file that the variable names; else the names among
 * what is loaded already, in the folders (ended by ':' each, may be NULL), and as the system finds
 * them. Then fills the table. -EOPNOTSUPP: there is none, and e names what was tried last; or one
 * without a needed function. */
int library_open(struct library *l, const char *folders, struct err *e);
bool library_is_open(struct library *l);
void library_close(struct library *l); /* as if it had never been loaded */

#endif
