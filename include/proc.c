/*
 * Reads /proc: the status of a process, its exit signal, whether it has a file open for writing,
 * and the mounts.
 */
#include "proc.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 32, TEXT_BYTES = 16384, OCTAL = 8, DECIMAL = 10, HEX = 16 };

/* fields of /proc/PID/stat, numbered as in proc(5) */
enum { NAME_FIELD = 2, START_FIELD = 22, EXIT_CODE_FIELD = 52 };

/* Reads a file of /proc that the kernel writes as one record, so a short read is complete. These
 * are read at each close by each writer, so use as few calls as possible. Returns their number, or
 * -errno: -ENOENT if the process has exited in the meantime. */
static ssize_t
read_record(int dir, const char *path, char text[static TEXT_BYTES])
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	int no;

	if (fd < 0)
		return -errno;
	n = read(fd, text, TEXT_BYTES - 1);
	no = errno;
	close(fd);
	if (n > 0) {
		text[n] = '\0';
		return n;
	}
	return n == 0 || no == ESRCH ? -ENOENT : -no;
}

/* The text after `key` at the beginning of a line; NULL if there is no such line. */
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
	char path[PATH_BYTES], text[TEXT_BYTES];
	const char *state, *name;
	ssize_t r;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	r = fault("file.open", EMFILE) ? -EMFILE : read_record(AT_FDCWD, path, text);
	if (r < 0)
		return (int)r;
	state = value_of(text, "State:");
	name = value_of(text, "Name:");
	*s = (struct proc_status){.process = (pid_t)number(text, "Tgid:", DECIMAL, 0),
	    .parent = (pid_t)number(text, "PPid:", DECIMAL, 0),
	    .state = state ? *state : '?',
	    .exiting = number(text, "FDSize:", DECIMAL, 1) == 0,
	    .dumping = number(text, "CoreDumping:", DECIMAL, 0) != 0,
	    .pending = number(text, "SigPnd:", HEX, 0) | number(text, "ShdPnd:", HEX, 0),
	    .blocked = number(text, "SigBlk:", HEX, 0),
	    .ignored = number(text, "SigIgn:", HEX, 0),
	    .caught = number(text, "SigCgt:", HEX, 0)};
	snprintf(s->name, sizeof(s->name), "%.*s", name ? (int)strcspn(name, "\n") : 0,
	    name ? name : "");
	return 0;
}

int
proc_name(pid_t pid, char name[static PROC_NAME])
{
	char path[PATH_BYTES], text[TEXT_BYTES];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	n = read_record(AT_FDCWD, path, text);
	if (n < 0)
		return (int)n;
	snprintf(name, PROC_NAME, "%.*s", (int)strcspn(text, "\n"), text);
	return 0;
}

/* With these signals pending, a process counts as ended. */
static bool
has_ended(pid_t pid, uint64_t pending)
{
	struct proc_status s;
	int r = proc_status(pid, &s);

	/* another error, as for want of a descriptor, says nothing about it */
	if (r < 0)
		return r == -ENOENT || r == -ESRCH;
	return s.exiting || s.state == 'Z' || s.state == 'X' || s.pending & pending;
}

bool
proc_has_ended(pid_t pid)
{
	return has_ended(pid, 0);
}

bool
proc_is_ending(pid_t pid)
{
	return has_ended(pid, PROC_SIGNAL(SIGKILL));
}

/* A number in /proc/PID/stat; 0 if there is no such process. */
static uint64_t
stat_field(pid_t pid, int wanted)
{
	char path[PATH_BYTES], text[TEXT_BYTES];
	const char *p = NULL;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	/* the program's name is in parentheses, but may contain blanks and parentheses: start after
	 * it */
	if (read_record(AT_FDCWD, path, text) > 0)
		p = strrchr(text, ')');
	for (int field = NAME_FIELD; p && field < wanted; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p, NULL, DECIMAL) : 0;
}

uint64_t
proc_started(pid_t pid)
{
	return stat_field(pid, START_FIELD);
}

int
proc_exit_signal(pid_t pid)
{
	return WTERMSIG((unsigned)stat_field(pid, EXIT_CODE_FIELD));
}

static bool
writes(int fdinfo, const char *fd, uint64_t ino)
{
	char text[TEXT_BYTES];

	return read_record(fdinfo, fd, text) > 0 && number(text, "ino:", DECIMAL, 0) == ino &&
	       (number(text, "flags:", OCTAL, 0) & O_ACCMODE) != O_RDONLY;
}

/* Uses fdinfo, not the links in fd: reading those waits for an execve(2), which itself waits for
 * the reply to its FLUSH of close-on-exec files. */
int
proc_writes(pid_t pid, uint64_t ino, int most)
{
	char path[PATH_BYTES];
	struct dirent *de;
	bool found = false;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)pid);
	d = opendir(path);
	if (!d)
		return -errno;
	while (!found && most >= 0 && (de = readdir(d)))
		if (de->d_name[0] != '.') {
			found = writes(dirfd(d), de->d_name, ino);
			most--;
		}
	closedir(d);
	return found ? 1 : most < 0 ? -E2BIG : 0;
}

static bool
look(pid_t pid, const char *name, struct stat *st)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return stat(path, st) == 0;
}

bool
proc_has_descriptors(pid_t pid)
{
	struct stat st;

	return look(pid, "fd", &st) && st.st_size > 0;
}

bool
proc_has_one_thread(pid_t pid)
{
	struct stat st;

	/* a link for each, and two that each directory has */
	return look(pid, "task", &st) && st.st_nlink == 3;
}

bool
proc_is_process(pid_t pid)
{
	return syscall(SYS_tgkill, pid, pid, 0) == 0;
}

void
proc_begin(void)
{
	int fd;

	while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
		;
	if (fd >= 0)
		close(fd);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGXFSZ, SIG_IGN);
}

void
proc_close_from(int first)
{
	struct dirent *de;
	DIR *d;

	if (syscall(SYS_close_range, first, ~0U, 0) == 0 || !(d = opendir("/proc/self/fd")))
		return;
	while ((de = readdir(d))) {
		int fd = atoi(de->d_name); /* also 0 for "." and ".." */

		if (fd >= first && fd != dirfd(d))
			close(fd);
	}
	closedir(d);
}

uint64_t
proc_identity(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct stat st = {0};

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) < 0)
		st.st_ino = 0;
	close(fd);
	return st.st_ino;
}

pid_t
proc_parent(pid_t pid)
{
	struct proc_status s;

	return proc_status(pid, &s) == 0 ? s.parent : 0;
}

/* The children that a thread has begun. Returns 0, or -errno. */
static int
children_of(pid_t pid, const char *thread, proc_child_fn *fn, void *arg)
{
	char *path = xasprintf("/proc/%d/task/%s/children", (int)pid, thread), *end;
	struct buf list = {0};
	int r = read_file(path, &list);

	for (char *at = list.p; r >= 0 && at && *at; at = end) {
		pid_t child = (pid_t)strtol(at, &end, DECIMAL);

		if (end == at)
			break;
		fn(child, arg);
	}
	buf_free(&list);
	free(path);
	return MIN(r, 0);
}

int
proc_children(pid_t pid, proc_child_fn *fn, void *arg)
{
	char *path = xasprintf("/proc/%d/task", (int)pid);
	DIR *tasks = opendir(path);
	int result = tasks ? -ENOENT : -errno, missed = 0;

	free(path);
	for (struct dirent *d; tasks && (d = readdir(tasks));) {
		int r = d->d_name[0] == '.' ? -ENOENT : children_of(pid, d->d_name, fn, arg);

		if (r == 0)
			result = 0;
		else if (r != -ENOENT && r != -ESRCH) /* these: the thread has ended */
			missed = r;
	}
	if (tasks)
		closedir(tasks);
	return missed ? missed : result;
}

void
proc_mount_path(char *path)
{
	const char *in = path;

	while (*in) {
		if (*in == '\\' && strspn(in + 1, "01234567") >= 3) {
			*path++ = (char)((in[1] - '0') << 6 | (in[2] - '0') << 3 | (in[3] - '0'));
			in += 4;
		} else {
			*path++ = *in++;
		}
	}
	*path = '\0';
}

/* Extracts the fields that we want: ID PARENT DEVICE ROOT WHERE OPTIONS [TAG…] - TYPE SOURCE
 * OPTIONS. Returns false if the line has another format. */
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
	proc_mount_path(where);
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

/* Adds the last part of a path. */
static void
add_name(struct buf *b, const char *path)
{
	const char *slash = strrchr(path, '/');

	buf_addf(b, "%s%s", b->n ? " " : "", slash && slash[1] ? slash + 1 : path);
}

char *
proc_program(pid_t pid)
{
	char path[PATH_BYTES], words[TEXT_BYTES];
	struct buf name = {0};
	const char *p = words;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	n = read_record(AT_FDCWD, path, words);
	if (n > 0) {
		const char *end = words + n;

		add_name(&name, p);
		/* options of the interpreter, as in `python3 -u train.py` */
		do
			p += strlen(p) + 1;
		while (
		    p < end && *p == '-' && p[1] && strcmp(p, "-c") != 0 && strcmp(p, "-m") != 0);
		if (p < end && *p && *p != '-' && strncmp(name.p, "python", 6) == 0)
			add_name(&name, p);
	}
	return buf_take(&name);
}
