/* A library that is already in the process wins, because two copies would not share any state. */
#define _GNU_SOURCE
#include "rank/library.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Where a library is looked for, in this order. */
enum place { PLACE_PROCESS, PLACE_FOLDERS, PLACE_SYSTEM, PLACES };

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

/* The library becomes the one in use if it has what is needed; otherwise it is closed. */
static int
use(struct library *l, void *handle, struct err *e)
{
	int r;

	l->handle = handle;
	r = fill(l, e);
	if (r == 0)
		r = l->describe(l->version, sizeof(l->version), e);
	if (r < 0) {
		dlclose(l->handle);
		l->handle = NULL;
	}
	return r;
}

/* Opens name as found in one of the places; NULL: it is not there. */
static void *
open_in(enum place place, const char *name, const char *folders)
{
	switch (place) {
	case PLACE_PROCESS:
		return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	case PLACE_FOLDERS:
		return in_folders(name, folders);
	default:
		return dlopen(name, RTLD_NOW | RTLD_LOCAL);
	}
}

/* Uses the first library of these names that can be used. Where one of the process can't, another
 * copy is not tried. */
static int
load_named(struct library *l, const char *folders, struct err *e)
{
	for (enum place place = 0; place < PLACES; place++) {
		for (size_t i = 0; i < l->names_count; i++) {
			void *handle = open_in(place, l->names[i], folders);
			struct err why = {0};

			if (!handle)
				continue;
			if (use(l, handle, &why) == 0)
				return 0;
			if (!e->no)
				*e = why;
		}
		if (place == PLACE_PROCESS && e->no)
			break;
	}
	return -e->no;
}

static int
load(struct library *l, const char *folders, struct err *e)
{
	const char *given = getenv(l->variable), *why;
	int r;

	if (given && *given) {
		void *handle = dlopen(given, RTLD_NOW | RTLD_LOCAL);

		r = handle ? use(l, handle, e) : 0;
	} else {
		r = load_named(l, folders, e);
	}
	if (l->handle || r < 0)
		return r;
	why = dlerror();
	return fail(e, EOPNOTSUPP, "%s", why ? why : l->names[0]);
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
