/* Parses the command line: options for ddipfs, options for FUSE, the mount point. */
#include "options.h"
#include "base/words.h"
#include "group/settings.h"
#include "host/ids.h"
#include "ninep/listener.h"
#include "tree/text.h"
#include "wire.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] =
    "usage: ddipfs [-f] [-d] [-o OPTION[,OPTION…]] [-s SOCKET] MOUNTPOINT\n"
    "       ddipfs [-f] [-d] [-o OPTION[,OPTION…]] -s SOCKET\n"
    "Mounts a PyTorch DDP group as a file system.\n"
    "\n"
    "  -f              stay in the foreground\n"
    "  -d              the same, with every request and message on stderr\n"
    "  -o NAME=VALUE   a setting of the group, as in its `ctl`: size=2, python=/opt/v/bin/python,\n"
    "                  backend=gloo, grace=10, 'gpus=3\\,1' …\n"
    "  -o umask=077, uid=, gid=   who may do what, with allow_other\n"
    "  -o OPTION       FUSE's own: allow_other, ro, fsname=…\n"
    "  -s SOCKET       serve the same files over 9P on a Unix socket\n"
    "  -h, --help      this text\n"
    "  -V, --version   version\n"
    "  --readme        what is in a mount: files, views, OPs, verbs of ctl\n"
    "  --skill         how a program or a coding agent drives a group\n"
    "\n"
    "Then: echo 'print(\"hello from\", rank)' > MOUNTPOINT/group/cell; cat "
    "MOUNTPOINT/group/rank1/stdout\n"
    "Unmount: umount MOUNTPOINT, fusermount3 -u MOUNTPOINT, or ddip umount. See ddipfs(1), "
    "ddipfs(4).\n";

_Noreturn static void
misused(const char *what, const char *which)
{
	fprintf(stderr, "ddipfs: %s%s\nTry: ddipfs --help\n", what, which);
	exit(2);
}

static bool
is_setting(const char *s, size_t n)
{
	char name[32];

	if (n >= sizeof(name))
		return false;
	memcpy(name, s, n);
	name[n] = '\0';
	return verb_find(&settings_table, name) != NULL;
}

/* A setting that is on or off: the name alone, as an option, means on. */
static bool
is_switch(const char *s)
{
	const struct verb *v = verb_find(&settings_table, s);

	return v && strcmp(v->args, "on|off") == 0;
}

static uid_t
user_id(const char *s)
{
	uid_t id;

	if (!ids_user(s, &id))
		misused("uid= is a user's name or number, as id(1) shows them, not ", s);
	return id;
}

static gid_t
group_id(const char *s)
{
	gid_t id;

	if (!ids_group(s, &id))
		misused("gid= is a group's name or number, as id(1) shows them, not ", s);
	return id;
}

static mode_t
umask_number(const char *s)
{
	char *end;
	unsigned long n = strtoul(s, &end, 8);

	if (!isdigit((unsigned char)*s) || *end || n > 0777)
		misused("umask= is an octal number up to 777, not ", s);
	return (mode_t)n;
}

/* Options that set the mount's owner and umask. Returns false for any other option. */
static bool
take_mode(struct mount_mode *m, const char *s)
{
	if (strncmp(s, "uid=", 4) == 0)
		m->uid = user_id(s + 4);
	else if (strncmp(s, "gid=", 4) == 0)
		m->gid = group_id(s + 4);
	else if (strncmp(s, "umask=", 6) == 0)
		m->umask = umask_number(s + 6);
	else
		return false;
	return true;
}

/* One option of -o: NAME=VALUE of our own settings becomes a line for ctl, the rest goes to
 * FUSE. */
static void
take_option(struct options *o, const char *s, struct buf *fuse)
{
	/* options that mount(8) and fstab add, and that concern only them */
	static const char *const ignored[] = {
	    "auto", "noauto", "user", "nouser", "users", "defaults", "_netdev", "nofail"};
	const char *eq = strchr(s, '=');

	for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
		if (strcmp(s, ignored[i]) == 0)
			return;
	if (strncmp(s, "x-", 2) == 0 || !*s || take_mode(&o->mode, s))
		return;
	if (eq ? is_setting(s, (size_t)(eq - s)) : is_switch(s)) {
		struct buf line = {0};

		buf_addf(&line, "%.*s ", (int)strcspn(s, "="), s);
		words_print(eq ? eq + 1 : "on", &line);
		o->settings = xrealloc(o->settings, (o->settings_count + 1) * sizeof(*o->settings));
		o->settings[o->settings_count++] = buf_take(&line);
		return;
	}
	if (!eq && is_setting(s, strlen(s)) && !is_switch(s))
		misused("a setting has a value, as in -o size=4, which is missing behind ", s);
	if (fuse->n)
		buf_addc(fuse, ',');
	for (; *s; s++) {
		if (*s == ',' || *s == '\\')
			buf_addc(fuse, '\\'); /* FUSE splits them again */
		buf_addc(fuse, *s);
	}
}

/* Splits at commas; a comma within a value is escaped with a backslash, as for FUSE. */
static void
take_options(struct options *o, const char *list, struct buf *fuse)
{
	struct buf one = {0};

	for (const char *s = list;; s++) {
		if (*s && *s != ',') {
			s += *s == '\\' && s[1];
			buf_addc(&one, *s);
			continue;
		}
		if (one.n)
			take_option(o, one.p, fuse);
		buf_clear(&one);
		if (!*s)
			break;
	}
	buf_free(&one);
}

/* A mount whose daemon is dead fails everything with ENOTCONN: unmounts it. */
static void
clear_dead(const char *path)
{
	pid_t pid;

	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		return;
	pid = fork();
	if (pid == 0) {
		execlp("fusermount3", "fusermount3", "-u", "-z", "-q", "--", path, (char *)NULL);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static bool
was_left(const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	bool was = listener_check(path) == 0;

	free(path);
	return was;
}

/* A socket that a killed daemon left there does not count. */
static bool
is_empty(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *de;
	bool empty = true;

	while (d && empty && (de = readdir(d)))
		empty = strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0 ||
			was_left(path, de->d_name);
	if (d)
		closedir(d);
	return empty;
}

static bool
is_ddipfs(const char *path)
{
	char *version = xasprintf("%s/version", path);
	struct buf b = {0};
	bool is = read_file(version, &b) == 0 && strncmp(b.p, "ddipfs ", 7) == 0;

	buf_free(&b);
	free(version);
	return is;
}

/* Where nothing could be mounted, `ddip mount` serves a socket in the directory. */
static void
die_if_served(const char *dir)
{
	char *socket = xasprintf("%s/ddip.sock", dir);

	if (listener_check(socket) == -EADDRINUSE)
		die("%s is served by a ddipfs already", socket);
	free(socket);
}

static char *
check_mountpoint(const char *path)
{
	char real[PATH_MAX];
	struct stat st;

	if (lstat(path, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED)) {
		fprintf(stderr, "ddipfs: %s: stale mount (its daemon is gone): unmounting\n", path);
		clear_dead(path);
	}
	if (stat(path, &st) < 0)
		die("%s: %s%s", path, strerror(errno), errno == ENOENT ? " (mkdir it first)" : "");
	if (!S_ISDIR(st.st_mode))
		die("%s is not a directory", path);
	if (!realpath(path, real))
		die("%s: %s", path, strerror(errno));
	if (access(real, R_OK | W_OK | X_OK) < 0)
		die("%s: %s (mount on a directory of your own)", real, strerror(errno));
	if (is_ddipfs(real))
		die("%s is a ddipfs already (umount it, or use it)", real);
	die_if_served(real);
	if (!is_empty(real))
		die("%s is not empty, and what is in it would be hidden: use an empty directory",
		    real);
	return xstrdup(real);
}

/* The absolute path of a file to be created in an existing directory. */
static char *
absolute(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
	char real[PATH_MAX], *whole;

	if (!realpath(dir, real))
		die("%s: %s", dir, strerror(errno));
	whole = xasprintf("%s/%s", real[1] ? real : "", slash ? slash + 1 : path);
	free(dir);
	return whole;
}

static void
need_fuse(void)
{
	if (access("/dev/fuse", R_OK | W_OK) == 0)
		return;
	note("/dev/fuse: %s%s; ddipfs -s SOCKET serves the same files without it", strerror(errno),
	    errno == ENOENT ? " (modprobe fuse; in a container: --device /dev/fuse)"
			    : " (who mounts must read and write it: chmod 666 /dev/fuse)");
	exit(EXIT_NO_MOUNT);
}

static void
take_mountpoint(struct options *o, int n, char **words)
{
	/* mount(8) calls `ddipfs SOURCE MOUNTPOINT -o …` by way of mount.fuse */
	bool by_mount = n == 2;

	if (n == 0 && o->socket) {
		o->mountpoint = xstrdup("");
		return;
	}
	if (n == 0 || n > 2)
		misused(n ? "too many words: " : "missing mount point", n ? words[2] : "");
	need_fuse();
	o->mountpoint = check_mountpoint(words[by_mount]);
}

void
options_parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
	    {"version", no_argument, NULL, 'V'}, {"readme", no_argument, NULL, 'R'},
	    {"skill", no_argument, NULL, 'S'}, {0}};
	struct buf fuse = {0};
	int c;

	o->mode = (struct mount_mode){geteuid(), getegid(), S_IRWXG | S_IRWXO};
	opterr = 0;
	while ((c = getopt_long(argc, argv, "fdo:s:hV", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			setenv("DDIP_DEBUG", "all", 0);
			/* fallthrough */
		case 'f':
			o->foreground = true;
			break;
		case 'o':
			take_options(o, optarg, &fuse);
			break;
		case 's':
			o->socket = absolute(optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		case 'V':
			printf("ddipfs %s wire %d\n", DDIP_VERSION, WIRE_VERSION);
			exit(0);
		case 'R':
			text_readme(NULL, &fuse, NULL);
			fwrite(fuse.p, 1, fuse.n, stdout);
			exit(0);
		case 'S':
			fputs(skill_text, stdout);
			exit(0);
		default:
			misused("no such option: ", argv[optind - 1]);
		}
	}
	take_mountpoint(o, argc - optind, argv + optind);
	o->fuse_opts = buf_take(&fuse);
}

void
options_free(struct options *o)
{
	for (size_t i = 0; i < o->settings_count; i++)
		free(o->settings[i]);
	free(o->settings);
	free(o->fuse_opts);
	free(o->mountpoint);
	free(o->socket);
}

/* folder/name if it is executable, else NULL. Owned by the caller. */
static char *
program_in(const char *folder, const char *name)
{
	char *path = xasprintf("%s/%s", folder, name);

	if (access(path, X_OK) == 0)
		return path;
	free(path);
	return NULL;
}

/* The interpreter of the virtual environment in which this program is installed, or NULL. */
static char *
own_python(void)
{
	char *folder = own_folder(), *mark = xasprintf("%s/../pyvenv.cfg", folder);
	char *found = access(mark, F_OK) == 0 ? program_in(folder, "python") : NULL;

	free(mark);
	free(folder);
	return found;
}

char *
options_python(void)
{
	const char *venv = getenv("VIRTUAL_ENV"), *path = getenv("PATH");
	char *copy, *save, *dir, *found = NULL;

	if (venv && *venv)
		found = program_in(venv, "bin/python");
	if (!found)
		found = own_python();
	copy = xstrdup(path ? path : "/usr/bin:/bin");
	for (dir = strtok_r(copy, ":", &save); dir && !found; dir = strtok_r(NULL, ":", &save))
		found = program_in(dir, "python3");
	free(copy);
	return found ? found : xstrdup("python3");
}
