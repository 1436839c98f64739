/* Loads one of NVIDIA's libraries with dlopen and fills a table with its functions. */
#ifndef LIBRARY_H
#define LIBRARY_H
#include "err.h"
#include <pthread.h>

struct symbol {
	const char *name;
	void *to; /* a pointer to a function */
	bool needed;
};

/* A library that is loaded at most once; a failure is remembered. */
struct library {
	const char *title;    /* "CUDA" */
	const char *variable; /* environment variable that names the file */
	const char *const *names;
	size_t names_count;
	const struct symbol *symbols;
	size_t symbols_count;
	/* Writes the version to text. The symbols are already resolved. Returns 0, or -errno if the
	 * library can't work on this machine. */
	int (*describe)(char *text, size_t size, struct err *e);
	pthread_mutex_t lock; /* serializes open and close */
	void *handle;
	struct err why; /* why it could not be opened */
	char version[64];
};

/* Returns 0, or -errno with *e set (e may be NULL). Opens the file that the variable names. If the
 * variable is not set, looks for the names among the libraries already loaded, then in the folders
 * (each terminated by ':'; may be NULL), then in the system's search path. Uses the first that has
 * all needed functions and can describe itself.
 * -EOPNOTSUPP: there is no such library, and e names the last attempt; or none can be used, and e
 * says why the first one can't. */
int library_open(struct library *l, const char *folders, struct err *e);
bool library_is_open(struct library *l);
void library_close(struct library *l); /* undoes library_open() */

#endif
