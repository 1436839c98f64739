/* Builds the command for the remote shell, and holds the files that it requests. */
#include "line/bring.h"
#include "line/line.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Characters that must not occur in text that several nested shells take literally. */
#define SPECIAL "'\"\\`$!\n\r"

enum { KEY_PART = 8 }; /* digits of each sum in the name of the directory */

static const char *const names[] = {"ddip-engine", "ddip_engine.so"};

static bool
is_copied(const char *engine)
{
	return !strcmp(engine, "auto") || (*engine && engine[strlen(engine) - 1] == '/');
}

static int
read_programs(struct bring *b, struct err *e)
{
	static const char *const places[] = {"", "../libexec/ddipfs/"};
	char *folder = own_folder();
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(names) && r == 0; i++) {
		r = -ENOENT;
		for (size_t p = 0; p < ARRAY_LEN(places) && r < 0; p++) {
			char *path = xasprintf("%s/%s%s", folder, places[p], names[i]);

			r = read_file(path, &b->files[i]);
			free(path);
		}
		if (r < 0)
			fail(e, -r, "%s/%s, which is to be sent to the host: %s", folder, names[i],
			    strerror(-r));
	}
	free(folder);
	return r;
}

/* A file with these bytes, which commands inherit; or -errno. */
static int
file_of(const struct buf *b, struct err *e)
{
	int fd = memfd_create("program", 0), r;

	if (fd < 0)
		return fail_errno(e, "memfd_create");
	r = write_all(fd, b->p, b->n);
	if (r < 0) {
		close(fd);
		return fail(e, -r, "memfd: %s", strerror(-r));
	}
	return fd;
}

/* The sum of what was read, by the program that checks it over there. */
static int
take_sum(const struct buf *b, char sum[BRING_SUM + 1], struct err *e)
{
	int fd = file_of(b, e), n = 0;
	char *command;
	FILE *f;

	if (fd < 0)
		return fd;
	command = xasprintf("sha256sum /proc/self/fd/%d", fd);
	f = popen(command, "re");
	if (f)
		n = fscanf(f, "%64[0-9a-f]", sum);
	if (f)
		pclose(f);
	free(command);
	close(fd);
	if (n == 1 && strlen(sum) == BRING_SUM)
		return 0;
	return fail(e, ENOEXEC,
	    "sha256sum, which is needed for sending the programs there, does not run here");
}

int
bring_open(struct bring *b, const char *engine, struct err *e)
{
	*b = (struct bring){.engine = engine};
	if (!is_copied(engine))
		return 0;
	if (read_programs(b, e) < 0)
		return -e->no;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (take_sum(&b->files[i], b->sums[i], e) < 0)
			return -e->no;
	return 0;
}

char *
bring_text(const struct bring *b, const char *option, const char *value, struct err *e)
{
	const char *const paths[] = {value, b->engine};
	struct buf t = {0};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		if (strpbrk(paths[i], SPECIAL)) {
			fail(e, EINVAL,
			    "'%s': a path over there must have no quotes, and none of \\ ` $ !",
			    paths[i]);
			return NULL;
		}
	buf_addf(&t, "exec sh -c '%s' ddipfs '%s' %s '%s'", bring_script, b->engine, option, value);
	if (is_copied(b->engine))
		buf_addf(&t, " %.*s%.*s", KEY_PART, b->sums[0], KEY_PART, b->sums[1]);
	for (size_t i = 0; i < ARRAY_LEN(names) && is_copied(b->engine); i++)
		buf_addf(&t, " %zu %s", b->files[i].n, b->sums[i]);
	return buf_take(&t);
}

int
bring_fits(const char *machine, struct err *e)
{
	struct utsname here = {0};
	char *ours;

	uname(&here);
	ours = xasprintf("%s %s", here.sysname, here.machine);
	if (strcmp(machine, ours) != 0)
		fail(e, ENOEXEC,
		    "it is a %s, and the programs here are for %s: install ddipfs there, and say "
		    "where by `engine PATH`",
		    machine, ours);
	free(ours);
	return -e->no;
}
