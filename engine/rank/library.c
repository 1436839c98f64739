/* A library that is already in the process wins, because two copies would not share any state. */
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

static void *
find(const struct library *l, const char *folders, struct err *e)
{
	const char *given = getenv(l->variable), *why;
	void *found = NULL;

	if (given && *given) {
		found = dlopen(given, RTLD_NOW | RTLD_LOCAL);
	} else {
		for (size_t i = 0; i < l->names_count && !found; i++)
			found = dlopen(l->names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
		for (size_t i = 0; i < l->names_count && !found; i++)
			found = in_folders(l->names[i], folders);
		for (size_t i = 0; i < l->names_count && !found; i++)
			found = dlopen(l->names[i], RTLD_NOW | RTLD_LOCAL);
	}
	if (found)
		return found;
	why = dlerror();
	fail(e, EOPNOTSUPP, "%s", why ? why : l->names[0]);
	return NULL;
}

static int
fill(const struct library *l, struct err *e)
{
	for (size_t i = 0; i < l->symbols_count; i++) {
		void *p = dlsym(l->handle, l->symbols[i].name);

		if (!p && l->symbols[i].needed)
			return fail(e, EOPNOTSUPP,
			    "%.*s has no %s: another library, or a version too old",
			    (int)strcspn(l->names[0], "."), l->names[0], l->symbols[i].name);
		memcpy(l->symbols[i].to, &p, sizeof(p));
	}
	return 0;
}

static int
load(struct library *l, const char *folders, struct err *e)
{
	int r;

	l->handle = find(l, folders, e);
	if (!l->handle)
		return -e->no;
	r = fill(l, e);
	if (r == 0)
		r = l->describe(l->version, sizeof(l->version), e);
	if (r < 0) {
		dlclose(l->handle);
		l->handle = NULL;
	}
	return r;
}

int
library_open(struct library *l, const char *folders, struct err *e)
{
	struct err why = {0};
	int r = 0;

	pthread_mutex_lock(&l->lock);
	if (!l->handle && !l->why.no && load(l, folders, &why) < 0)
		fail(&l->why, why.no, "%s: %s", l->title, why.text);
	r = l->handle ? 0 : -l->why.no;
	if (r < 0 && e)
		*e = l->why;
	pthread_mutex_unlock(&l->lock);
	return r;
}

bool
library_is_open(struct library *l)
{
	bool is;

	pthread_mutex_lock(&l->lock);
	is = l->handle != NULL;
	pthread_mutex_unlock(&l->lock);
	return is;
}

void
library_close(struct library *l)
{
	pthread_mutex_lock(&l->lock);
	if (l->handle)
		dlclose(l->handle);
	l->handle = NULL;
	l->why.no = 0;
	l->version[0] = '\0';
	pthread_mutex_unlock(&l->lock);
}
