/* Readers of /proc. */
#include "proc.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_ROOM = 32, DECIMAL = 10, HEX = 16 };

/* The text behind `key` at the beginning of a line, NULL: there is no such line. */
static const char *
value_of(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *line = text; line && *line;) {
		if (strncmp(line, key, n) == 0)
			return line + n + strspn(line + n, " \t");
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return NULL;
}

static uint64_t
number(const char *text, const char *key, int base, uint64_t otherwise)
{
	const char *value = value_of(text, key);

	return value ? strtoull(value, NULL, base) : otherwise;
}

int
proc_status(pid_t pid, struct proc_status *s)
{
	char path[PATH_ROOM];
	struct buf b = {0};
	const char *state;
	int r;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	r = read_file(path, &b);
	if (r == 0 && !b.n)
		r = -ENOENT;
	if (r == 0) {
		state = value_of(b.p, "State:");
		*s = (struct proc_status){.process = (pid_t)number(b.p, "Tgid:", DECIMAL, 0),
		    .parent = (pid_t)number(b.p, "PPid:", DECIMAL, 0),
		    .state = state ? *state : '?',
		    .exiting = number(b.p, "FDSize:", DECIMAL, 1) == 0,
		    .dumping = number(b.p, "CoreDumping:", DECIMAL, 0) != 0,
		    .pending = number(b.p, "SigPnd:", HEX, 0) | number(b.p, "ShdPnd:", HEX, 0),
		    .blocked = number(b.p, "SigBlk:", HEX, 0),
		    .ignored = number(b.p, "SigIgn:", HEX, 0),
		    .caught = number(b.p, "SigCgt:", HEX, 0)};
	}
	buf_free(&b);
	return r == -ESRCH ? -ENOENT : r; /* it ended between open and read */
}

pid_t
proc_parent(pid_t pid)
{
	struct proc_status s;

	return proc_status(pid, &s) == 0 ? s.parent : 0;
}

/* The fields that we want: ID PARENT DEVICE ROOT WHERE OPTIONS [TAG…] - TYPE SOURCE OPTIONS. False:
 * the line is of another form. */
static bool
split(char *line, struct proc_mount *m)
{
	char *word, *save, *where = NULL;
	int i = 0;

	*m = (struct proc_mount){0};
	for (word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save), i++) {
		if (i == 2)
			m->device = word;
		else if (i == 4)
			m->where = where = word;
		else if (i > 5 && strcmp(word, "-") == 0)
			break;
	}
	m->type = word ? strtok_r(NULL, " ", &save) : NULL;
	if (!m->type)
		return false;
	mountinfo_path(where);
	return true;
}

int
proc_mounts(proc_mount_fn *fn, void *arg)
{
	struct buf b = {0};
	struct proc_mount m;
	char *line, *save;
	int r = read_file("/proc/self/mountinfo", &b);
	bool found = false;

	for (line = r == 0 && b.n ? strtok_r(b.p, "\n", &save) : NULL; line && !found;
	     line = strtok_r(NULL, "\n", &save))
		found = split(line, &m) && fn(&m, arg);
	buf_free(&b);
	return r < 0 ? r : found;
}
