/* Readers of /proc. */
#include "proc.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { PATH_ROOM = 32, OCTAL = 8, DECIMAL = 10, HEX = 16 };

/* of /proc/PID/stat, as proc(5) counts */
enum { NAME_FIELD = 2, EXIT_CODE_FIELD = 52 };

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
	const char *state, *name;
	int r;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	r = read_file(path, &b);
	if (r == 0 && !b.n)
		r = -ENOENT;
	if (r == 0) {
		state = value_of(b.p, "State:");
		name = value_of(b.p, "Name:");
		*s = (struct proc_status){.process = (pid_t)number(b.p, "Tgid:", DECIMAL, 0),
		    .parent = (pid_t)number(b.p, "PPid:", DECIMAL, 0),
		    .state = state ? *state : '?',
		    .exiting = number(b.p, "FDSize:", DECIMAL, 1) == 0,
		    .dumping = number(b.p, "CoreDumping:", DECIMAL, 0) != 0,
		    .pending = number(b.p, "SigPnd:", HEX, 0) | number(b.p, "ShdPnd:", HEX, 0),
		    .blocked = number(b.p, "SigBlk:", HEX, 0),
		    .ignored = number(b.p, "SigIgn:", HEX, 0),
		    .caught = number(b.p, "SigCgt:", HEX, 0)};
		snprintf(s->name, sizeof(s->name), "%.*s", name ? (int)strcspn(name, "\n") : 0,
		    name ? name : "");
	}
	buf_free(&b);
	return r == -ESRCH ? -ENOENT : r; /* it ended between open and read */
}

int
proc_exit_signal(pid_t pid)
{
	char path[PATH_ROOM];
	struct buf b = {0};
	const char *p = NULL;
	unsigned code = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	/* the program's name, in brackets, may have blanks and brackets: count from its end */
	if (read_file(path, &b) == 0 && b.n)
		p = strrchr(b.p, ')');
	for (int field = NAME_FIELD; p && field < EXIT_CODE_FIELD; field++)
		p = strchr(p + 1, ' ');
	if (p)
		code = (unsigned)strtoul(p, NULL, DECIMAL);
	buf_free(&b);
	return WTERMSIG(code);
}

static bool
writes(pid_t pid, const char *fd, uint64_t ino)
{
	char path[PATH_ROOM + NAME_MAX];
	struct buf b = {0};
	bool does = false;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%s", (int)pid, fd);
	if (read_file(path, &b) == 0 && b.n)
		does = number(b.p, "ino:", DECIMAL, 0) == ino &&
		       (number(b.p, "flags:", OCTAL, 0) & O_ACCMODE) != O_RDONLY;
	buf_free(&b);
	return does;
}

int
proc_writes(pid_t pid, uint64_t ino, int most)
{
	char path[PATH_ROOM];
	struct dirent *de;
	int n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)pid);
	d = opendir(path);
	if (!d)
		return -errno;
	while (most >= 0 && (de = readdir(d)))
		if (de->d_name[0] != '.') {
			n += writes(pid, de->d_name, ino);
			most--;
		}
	closedir(d);
	return most < 0 ? -E2BIG : n;
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
