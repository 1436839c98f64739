/*
 * Reads /proc/meminfo and the files of memory cgroups: see Documentation/admin-guide/cgroup-v2.rst
 * and cgroup-v1/memory.rst of Linux.
 */
#include "memory.h"
#include "util.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The names of what both versions have. In version 1, memory and swap have a limit together. */
struct version {
	const char *top, *limit, *usage, *swap_limit, *swap_usage, *inactive, *active, *events;
	bool together;
};

static const struct version v2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
    "memory.swap.max", "memory.swap.current", "inactive_file", "active_file", "memory.events",
    false};
static const struct version v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
    "memory.usage_in_bytes", "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes",
    "total_inactive_file", "total_active_file", "memory.oom_control", true};

/* The number behind a key at the beginning of a line. */
static bool
find_number(const char *text, const char *key, uint64_t *v)
{
	size_t n = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && line[n] == ' ') {
			*v = strtoull(line + n, NULL, 10);
			return true;
		}
	}
	return false;
}

static uint64_t
number_of(const char *text, const char *key)
{
	uint64_t v = 0;

	find_number(text, key, &v);
	return v;
}

/* A file of a directory, with its '\0'. Returns false if it cannot be read. */
static bool
read_in(const char *dir, const char *name, struct buf *b)
{
	char *path = xasprintf("%s/%s", dir, name);
	bool ok;

	buf_clear(b);
	ok = read_file(path, b) == 0 && b->n > 0;
	free(path);
	return ok;
}

/* The number that a file holds. UINT64_MAX: there is no such file, or it says that there is no
 * limit: "max", or in version 1 the largest multiple of a page. */
static uint64_t
read_number(const char *dir, const char *name)
{
	enum { LIMIT_BITS = 62 };
	struct buf b = {0};
	uint64_t v = UINT64_MAX;

	if (read_in(dir, name, &b) && *b.p >= '0' && *b.p <= '9')
		v = strtoull(b.p, NULL, 10);
	buf_free(&b);
	return v >> LIMIT_BITS ? UINT64_MAX : v;
}

/* The path of its memory cgroup in a line of /proc/self/cgroup, "4:memory:/a/b" or "0::/a/b"; NULL:
 * the line is about something else. */
static const char *
path_in(char *line, const struct version **v)
{
	char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
	char *save = NULL;

	if (!path)
		return NULL;
	*path++ = '\0';
	*v = &v2;
	if (!names[1])
		return path;
	*v = &v1;
	for (char *one = strtok_r(names + 1, ",", &save); one; one = strtok_r(NULL, ",", &save))
		if (strcmp(one, "memory") == 0)
			return path;
	return NULL;
}

typedef bool level_fn(const struct version *v, const char *dir, void *arg);

/* Calls fn for each of its memory cgroups that can be seen, from its own upwards, until it returns
 * false. In a container, what is mounted may be one of them, under the name of the root. */
static void
each_level(const char *root, level_fn *fn, void *arg)
{
	struct buf b = {0};
	const struct version *v;
	char *save = NULL;
	bool more = true;

	if (read_in(root, "proc/self/cgroup", &b)) {
		for (char *line = strtok_r(b.p, "\n", &save); line && more;
		     line = strtok_r(NULL, "\n", &save)) {
			const char *path = path_in(line, &v);
			char *dir = path ? xasprintf("%s%s%s", root, v->top, path) : NULL;
			size_t top = strlen(root) + (path ? strlen(v->top) : 0);

			for (; dir && more; *strrchr(dir, '/') = '\0') {
				more = fn(v, dir, arg);
				if (strlen(dir) <= top)
					break;
			}
			free(dir);
		}
	}
	buf_free(&b);
}

struct left {
	uint64_t bytes, swap; /* swap: that is free on the machine */
};

static uint64_t
minus(uint64_t a, uint64_t b)
{
	return a == UINT64_MAX ? a : a - MIN(a, b);
}

static uint64_t
plus(uint64_t a, uint64_t b)
{
	return a + MIN(b, UINT64_MAX - a);
}

static bool
take_left(const struct version *v, const char *dir, void *arg)
{
	struct left *l = arg;
	uint64_t limit = read_number(dir, v->limit), usage = read_number(dir, v->usage);
	uint64_t swap = minus(read_number(dir, v->swap_limit), read_number(dir, v->swap_usage));
	uint64_t cache = 0, left;
	struct buf b = {0};

	if (limit == UINT64_MAX || usage == UINT64_MAX)
		return true;
	if (read_in(dir, "memory.stat", &b))
		cache = number_of(b.p, v->inactive) + number_of(b.p, v->active);
	buf_free(&b);
	left = minus(limit, minus(usage, cache));
	if (v->together)
		left = MIN(plus(left, l->swap), plus(swap, cache));
	else
		left = plus(left, MIN(swap, l->swap));
	l->bytes = MIN(l->bytes, left);
	return true;
}

uint64_t
memory_available(const char *root)
{
	enum { KIB = 1024 };
	struct left l = {.bytes = UINT64_MAX};
	struct buf b = {0}, mode = {0};
	uint64_t here, limit;

	if (read_in(root, "proc/meminfo", &b) && find_number(b.p, "MemAvailable:", &here)) {
		l.swap = number_of(b.p, "SwapFree:") * KIB;
		l.bytes = here * KIB + l.swap;
		/* where the kernel promises no more than it has, a promise counts, used or not */
		if (read_in(root, "proc/sys/vm/overcommit_memory", &mode) && *mode.p == '2' &&
		    find_number(b.p, "CommitLimit:", &limit))
			l.bytes = MIN(l.bytes, minus(limit, number_of(b.p, "Committed_AS:")) * KIB);
	}
	buf_free(&b);
	buf_free(&mode);
	each_level(root, take_left, &l);
	return l.bytes;
}

static bool
take_killed(const struct version *v, const char *dir, void *arg)
{
	struct buf b = {0};
	bool found = read_in(dir, v->events, &b) && find_number(b.p, "oom_kill", arg);

	buf_free(&b);
	return !found;
}

uint64_t
memory_killed(const char *root)
{
	uint64_t n = 0;

	each_level(root, take_killed, &n);
	return n;
}

static bool
take_limit(const struct version *v, const char *dir, void *arg)
{
	uint64_t *least = arg;

	*least = MIN(*least, read_number(dir, v->limit));
	return true;
}

uint64_t
memory_limit(const char *root)
{
	uint64_t least = UINT64_MAX;

	each_level(root, take_limit, &least);
	return least;
}

int
memory_take(uint64_t bytes, const char *what, struct err *e)
{
	/* KEPT: for what else happens meanwhile, and for few bytes, which are not worth a look */
	enum { STEP = 64 << 20, KEPT = 16 << 20, FEW = 4 << 20 };

	static uint64_t room, until; /* bytes that may be taken without a look */
	uint64_t now = now_ns(), there;

	if (now >= until)
		room = MIN(room, (uint64_t)FEW);
	if (bytes > room) {
		there = memory_available("");
		there -= MIN(there, (uint64_t)KEPT);
		if (bytes > there)
			return fail(e, ENOSPC,
			    "no room for %s: it needs %llu bytes more, and %llu are available",
			    what, (unsigned long long)bytes, (unsigned long long)there);
		room = bytes + MIN((uint64_t)STEP, there - bytes);
		until = now + NS_PER_S;
	}
	room -= bytes;
	return 0;
}
