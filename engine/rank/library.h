/* A library of NVIDIA's by dlopen: which one, and a table filled with its functions. */
#ifndef LIBRARY_H
#define LIBRARY_H
#include "err.h"

struct symbol {
	const char *name;
	void *to; /* a pointer to a function */
	bool needed;
};

/* Tries: the file that the variable names; else the names among what is loaded already, in the
 * folders (ended by ':' each, may be NULL), and as the system finds them. NULL with e, which names
 * what was tried last. */
void *library_open(
    const char *variable, const char *const *names, size_t n, const char *folders, struct err *e);
/* Fills the table. -EOPNOTSUPP: one that is needed is not there. */
int library_symbols(
    void *library, const char *what, const struct symbol *table, size_t n, struct err *e);

#endif
