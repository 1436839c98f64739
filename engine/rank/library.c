/* A library that is already in the process wins: two of one kind would know nothing of each other.
 */
#define _GNU_SOURCE
#include "rank/library.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void *
in_folders(const char *name, const char *folders)
{
	void *found = NULL;

	for (const char *at = folders, *end; at && !found && (end = strchr(at, ':'));
	     at = end + 1) {
		char *path = xasprintf("%.*s/%s", (int)(end - at), at, name);

		found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		free(path);
	}
	return found;
}

void *
library_open(
    const char *variable, const char *const *names, size_t n, const char *folders, struct err *e)
{
	const char *given = getenv(variable), *why;
	void *found = NULL;

	if (given && *given) {
		found = dlopen(given, RTLD_NOW | RTLD_LOCAL);
	} else {
		for (size_t i = 0; i < n && !found; i++)
			found = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
		for (size_t i = 0; i < n && !found; i++)
			found = in_folders(names[i], folders);
		for (size_t i = 0; i < n && !found; i++)
			found = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	}
	if (found)
		return found;
	why = dlerror();
	fail(e, EOPNOTSUPP, "%s", why ? why : names[0]);
	return NULL;
}

int
library_symbols(
    void *library, const char *what, const struct symbol *table, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		void *p = dlsym(library, table[i].name);

		if (!p && table[i].needed)
			return fail(e, EOPNOTSUPP,
			    "%s has no %s: another library, or a version too old", what,
			    table[i].name);
		memcpy(table[i].to, &p, sizeof(p));
	}
	return 0;
}
