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
	if (*engine && engine[strlen(engine) - 1] == '/') {
		b->keep = engine;
	} else if (strcmp(engine, "auto") != 0) {
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

/* Runs $p, the program. */
static void
add_start(struct buf *t, const char *option, const char *value)
{
	buf_addf(t, "v=$(\"$p\" --version 2>&1) || e $p does not run there: $v; ");
	buf_addf(t, "exec \"$p\" far %s \"%s\"'", option, value);
}

/* Sets $@ to the directories in which the programs may be kept, the best first: some hosts have no
 * home, or one that is read-only, full, or mounted noexec. */
static void
add_places(struct buf *t, const struct bring *b)
{
	if (b->keep) {
		buf_addf(t, "set -- \"%sddipfs\"; ", b->keep);
		return;
	}
	buf_adds(t, "u=ddipfs-$(id -u); h=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}; "
		    "set -- ${h:+\"$h/ddipfs\"} ${TMPDIR:+\"$TMPDIR/$u\"} /var/tmp/$u /tmp/$u "
		    "/dev/shm/$u; ");
}

/* Defines functions; those that fail add the reason to $why. own DIR: does nobody else get in? sums
 * DIR: are the programs there? holds DIR: can they be written there, and run? For the last, a file
 * without #! will do: where nothing may run the kernel refuses it, elsewhere the shell runs it. */
static void
add_functions(struct buf *t, const struct bring *b, const char *const sums[])
{
	buf_adds(t, "no() { why=\"$why$*; \"; return 1; }; ");
	buf_adds(t,
	    "own() { o=$1; set -- $(ls -nd \"$1\" 2>&1); case $1 in drwx------*) [ \"$3\" = "
	    "\"$(id -u)\" ];; *) false;; esac || no \"$o: want a directory of yours that "
	    "nobody else may enter, mode 0700\"; }; ");
	buf_addf(t,
	    "sums() { { echo \"%s  $1/%s\"; echo \"%s  $1/%s\"; } | sha256sum -c "
	    ">/dev/null 2>&1; }; ",
	    sums[0], names[0], sums[1], names[1]);
	buf_addf(t,
	    "holds() { m=$(mkdir -p \"$1\" 2>&1) || { no \"$m\"; return; }; own \"$1\" || return; "
	    "t=$(mktemp -d \"$1/new.XXXXXX\" 2>&1) || { no \"$t\"; return; }; "
	    "m=$({ echo exit 0; head -c %zu /dev/zero; } 2>&1 >\"$t/try\" && chmod 700 \"$t/try\" "
	    "&& \"$t/try\" 2>&1) || no \"the programs were not written to $1, or cannot run "
	    "there: $m\"; set -- $? \"$t\"; rm -rf \"$2\"; return $1; }; ",
	    b->files[0].n + b->files[1].n);
}

/* Receives the programs in $c, writes them elsewhere and then renames them: another relay may be
 * doing the same on a file system that several hosts share. */
static void
add_receive(struct buf *t, const struct bring *b)
{
	buf_addf(t,
	    "echo \"%s%s $(uname -sm)\"; read go || e the launcher passes no standard input on; ",
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
	    "PIPE; ",
	    names[0], names[1]);
}

/* Sets $p to the program, which is copied there if necessary. */
static void
add_bring(struct buf *t, const struct bring *b)
{
	char sum[ARRAY_LEN(names)][SHA256_HEX + 1], both[2 * SHA256_HEX + 1], key[SHA256_HEX + 1];
	const char *const sums[] = {sum[0], sum[1]};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		sha256_hex(b->files[i].p, b->files[i].n, sum[i]);
	memcpy(both, sum[0], SHA256_HEX);
	memcpy(both + SHA256_HEX, sum[1], SHA256_HEX + 1);
	sha256_hex(both, strlen(both), key);
	add_functions(t, b, sums);
	buf_adds(t,
	    "for x in sha256sum head mktemp mv; do command -v $x >/dev/null || e there is no $x "
	    "there; done; ");
	add_places(t, b);
	buf_addf(t,
	    "p=; for c; do d=$c/%.16s; [ -d \"$d\" ] && own \"$c\" && own \"$d\" && sums \"$d\" && "
	    "\"$d/%s\" --version >/dev/null 2>&1 && p=$d/%s && break; done; ",
	    key, names[0], names[0]);
	buf_addf(t,
	    "[ \"$p\" ] || { why=; for c; do d=$c/%.16s; holds \"$c\" && p=$d/%s && break; done; "
	    "[ \"$p\" ] || e \"${why}name another directory by the setting engine: engine DIR/\"; "
	    "[ -d \"$d\" ] && { own \"$d\" || e \"$why\"; }; ",
	    key, names[0]);
	add_receive(t, b);
	buf_adds(t, "}; ");
}

char *
bring_text(const struct bring *b, const char *option, const char *value, struct err *e)
{
	struct buf t = {0};

	const char *const paths[] = {value, b->engine, b->keep};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		if (paths[i] && strpbrk(paths[i], SPECIAL)) {
			fail(e, EINVAL,
			    "'%s': a path over there must have no quotes, and none of \\ ` $ !",
			    paths[i]);
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
