/* Builds the command for the remote shell, and holds the files that it requests. */
#include "relay/bring.h"
#include "relay/sha256.h"
#include "relay/packet.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* Characters that must not occur in text that several nested shells take literally. */
#define SPECIAL "'\"\\`$!\n\r"

static const char *const names[] = {"ddip-engine", "ddip_engine.so"};

int
bring_open(struct bring *b, const char *engine, struct err *e)
{
	static const char *const places[] = {"", "../libexec/ddipfs/"};
	char *folder;

	*b = (struct bring){0};
	if (strcmp(engine, "auto") != 0) {
		b->engine = engine;
		return 0;
	}
	folder = own_folder();
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		int r = -ENOENT;

		for (size_t p = 0; p < ARRAY_LEN(places) && r < 0; p++) {
			char *path = xasprintf("%s/%s%s", folder, places[p], names[i]);

			r = read_file(path, &b->files[i]);
			free(path);
		}
		if (r < 0) {
			fail(e, -r, "%s/%s, which is to be sent to the host: %s", folder, names[i],
			    strerror(-r));
			break;
		}
	}
	free(folder);
	return -e->no;
}

void
bring_close(struct bring *b)
{
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		buf_free(&b->files[i]);
}

/* Runs $p, the program. */
static void
add_start(struct buf *t, const char *option, const char *value)
{
	buf_addf(t, "v=$(\"$p\" --version 2>&1) || e $p does not run there: $v; ");
	buf_addf(t, "exec \"$p\" far %s \"%s\"'", option, value);
}

/* Sets $p to the program, which is copied there if necessary. It is written elsewhere and then
 * renamed: another relay may be doing the same on a file system that several hosts share. */
static void
add_bring(struct buf *t, const struct bring *b)
{
	char sums[ARRAY_LEN(names)][SHA256_HEX + 1], both[2 * SHA256_HEX + 1], key[SHA256_HEX + 1];

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		sha256_hex(b->files[i].p, b->files[i].n, sums[i]);
	memcpy(both, sums[0], SHA256_HEX);
	memcpy(both + SHA256_HEX, sums[1], SHA256_HEX + 1);
	sha256_hex(both, strlen(both), key);
	buf_addf(t, "c=${XDG_CACHE_HOME:-$HOME/.cache}/ddipfs; d=$c/%.16s; ", key);
	buf_adds(t, "own() { set -- \"$1\" $(ls -nd \"$1\"); case $2 in drwx------*) [ \"$4\" = "
		    "\"$(id -u)\" ];; *) false;; esac || e \"$1: want a directory of yours that "
		    "nobody else may enter, mode 0700\"; }; ");
	buf_addf(t,
	    "sums() { { echo \"%s  $1/%s\"; echo \"%s  $1/%s\"; } | sha256sum -c "
	    ">/dev/null 2>&1; }; ",
	    sums[0], names[0], sums[1], names[1]);
	buf_adds(t,
	    "for x in sha256sum head mktemp mv; do command -v $x >/dev/null || e there is no $x "
	    "there; done; ");
	buf_adds(t, "m=$(mkdir -p \"$c\" 2>&1) || e $m; own \"$c\"; "
		    "if [ -e \"$d\" ]; then own \"$d\"; fi; ");
	buf_addf(t,
	    "sums \"$d\" || { echo \"%s%s $(uname -sm)\"; read go || e the launcher passes no "
	    "standard input on; ",
	    BANNER, BANNER_WANT);
	/* removes what others left unfinished over a day ago; without find(1) it stays */
	buf_adds(t, "find \"$c\" -maxdepth 1 -name \"new.*\" -mtime +0 -exec rm -rf {} + "
		    ">/dev/null 2>&1; ");
	buf_adds(t, "t=$(mktemp -d \"$c/new.XXXXXX\" 2>&1) || e $t; "
		    "clean() { rm -rf \"$t\"; exit 1; }; trap clean HUP TERM PIPE; ");
	buf_addf(t, "m=$(head -c %zu 2>&1 >\"$t/%s\") && m=$(head -c %zu 2>&1 >\"$t/%s\") && ",
	    b->files[0].n, names[0], b->files[1].n, names[1]);
	buf_addf(t,
	    "sums \"$t\" || { rm -rf \"$t\"; e the programs were not written to $c: ${m:-they "
	    "came out different}; }; chmod 700 \"$t/%s\"; ",
	    names[0]);
	buf_addf(t,
	    "mkdir -p \"$d\" && mv \"$t/%s\" \"$t/%s\" \"$d\"; rm -rf \"$t\"; trap - HUP TERM "
	    "PIPE; }; p=$d/%s; ",
	    names[0], names[1], names[0]);
}

char *
bring_text(const struct bring *b, const char *option, const char *value, struct err *e)
{
	struct buf t = {0};

	if (strpbrk(value, SPECIAL) || (b->engine && strpbrk(b->engine, SPECIAL))) {
		fail(e, EINVAL, "'%s': a path over there must have no quotes, and none of \\ ` $ !",
		    strpbrk(value, SPECIAL) ? value : b->engine);
		return NULL;
	}
	buf_addf(&t, "exec sh -c '%s=$(umask); export %s; umask 077; ", ENGINE_ENV_UMASK,
	    ENGINE_ENV_UMASK);
	buf_addf(&t, "e() { echo \"%s%s $*\"; exit 1; }; ", BANNER, BANNER_ERROR);
	if (b->engine)
		buf_addf(&t, "p=\"%s\"; ", b->engine);
	else
		add_bring(&t, b);
	add_start(&t, option, value);
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
