/* The table of launchers, and the commands built from it. */
#include "host/launcher.h"
#include "base/words.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HOST "{host}"

#define SRUN "srun -N1 -n1 -w " HOST " -u --overlap"

/* The command is `before`, the user's options, `behind`. direct: the launcher is too slow for bulk
 * data, which goes over a connection from the other host to the address in this variable there;
 * NULL: everything goes through the launcher. */
static const struct launcher {
	const char *name, *before, *behind, *direct;
} launchers[] = {
    /* asks no questions: a missing password or an unknown key is an error */
    {"ssh", "ssh -T -o BatchMode=yes", HOST, NULL},
    {"srun", SRUN, "sh -c", "SLURM_LAUNCH_NODE_IPADDR"},
    {"srun-only", SRUN, "sh -c", NULL},
    {"kubectl", "kubectl", "exec -i " HOST " -- sh -c", NULL},
    {"docker", "docker", "exec -i " HOST " sh -c", NULL},
    {"podman", "podman", "exec -i " HOST " sh -c", NULL},
};

static const struct launcher *
find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(launchers); i++)
		if (strcmp(launchers[i].name, name) == 0)
			return &launchers[i];
	return NULL;
}

int
launcher_check(const char *words, struct err *e)
{
	char *copy = xstrdup(words), *word[WORDS_MAX];
	int n = words_split(copy, word, WORDS_MAX, e), r = MIN(n, 0);
	bool names = false;

	for (int i = 0; i < n; i++)
		names |= strstr(word[i], HOST) != NULL;
	if (n == 0)
		r = fail(e, EINVAL,
		    "launcher: want ssh, srun, srun-only, kubectl, docker, podman, " LAUNCHER_HERE
		    ", or a command with " HOST);
	else if (n > 1 && strcmp(word[0], LAUNCHER_HERE) == 0)
		r = fail(e, EINVAL, "launcher: " LAUNCHER_HERE " takes no options");
	else if (n > 0 && find(word[0]) && names)
		r = fail(e, EINVAL,
		    "launcher: %s has a place for the host of its own: write options only, or the "
		    "whole command with its path",
		    word[0]);
	free(copy);
	return r;
}

/* Drops the brackets of an IPv6 address, which only lists need: ssh would take them as part of a
 * name. */
static void
add_host(const char *host, struct buf *out)
{
	for (; *host; host++)
		if (!strchr("[]", *host))
			buf_addc(out, *host);
}

/* Returns word with the host's name inserted; the caller frees it. */
static char *
with_host(const char *word, const char *host)
{
	struct buf b = {0};
	const char *at;

	for (; (at = strstr(word, HOST)); word = at + sizeof(HOST) - 1) {
		buf_add(&b, word, (size_t)(at - word));
		add_host(host, &b);
	}
	buf_adds(&b, word);
	return buf_take(&b);
}

const char *
launcher_direct(const char *words)
{
	char *name = xstrndup(words, strcspn(words, " \t"));
	const struct launcher *l = find(name);

	free(name);
	return l ? l->direct : NULL;
}

char **
launcher_argv(const char *words, const char *host)
{
	char *copy = xstrdup(words), *name = xstrndup(words, strcspn(words, " \t"));
	const struct launcher *l = find(name);
	char *line = l ? xasprintf("%s%s %s", l->before, words + strlen(name), l->behind) : copy;
	char **argv = xcalloc(2 * WORDS_MAX + 1, sizeof(*argv));
	struct err e;
	int n = words_split(line, argv, 2 * WORDS_MAX, &e);

	for (int i = 0; i < n; i++)
		argv[i] = with_host(argv[i], host);
	argv[MAX(n, 0)] = NULL;
	if (l)
		free(line);
	free(copy);
	free(name);
	return argv;
}

void
launcher_free(char **argv)
{
	for (size_t i = 0; argv[i]; i++)
		free(argv[i]);
	free(argv);
}
