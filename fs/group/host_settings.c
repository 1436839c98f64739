/* Sets where ranks run. A list of hosts is read once, when it is set: later changes of a file have
 * no effect. */
#include "group/host_settings.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/processes.h"
#include "group/rank.h"
#include "group/start.h"
#include "host/launcher.h"
#include "host/path.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 20 };

static struct group *
group_of(const struct verb_call *c)
{
	return c->subject;
}

/* Returns the words after the verb as one string, which the caller frees. */
static char *
words_of(const struct verb_call *c)
{
	struct buf b = {0};

	for (int i = 1; i <= c->n; i++)
		buf_addf(&b, "%s%s", i > 1 ? " " : "", c->word[i]);
	return buf_take(&b);
}

/* Reads a file of hosts. Refuses a pipe or a file in a mount, which would block the daemon. */
static int
read_hosts(const char *path, struct hostlist *out, struct err *e)
{
	struct buf text = {0};
	struct stat st;
	int r = path_check_outside("hosts", path, e);

	if (r < 0)
		return r;
	if (stat(path, &st) < 0)
		return fail_errno(e, "hosts: %.200s", path);
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
		return fail(e, EINVAL, "hosts: %.200s is not a file with lines NAME slots=N", path);
	r = read_file(path, &text);
	if (r == 0)
		r = hostlist_text(text.n ? text.p : "", path, out, e);
	else
		r = fail(e, -r, "hosts: %.200s: %s", path, strerror(-r));
	buf_free(&text);
	return r;
}

static int
parse(const char *words, struct hostlist *out, struct err *e)
{
	*out = (struct hostlist){0};
	if (strcmp(words, "local") == 0)
		return 0;
	if (strcmp(words, "slurm") == 0)
		return hostlist_slurm(
		    getenv("SLURM_JOB_NODELIST"), getenv("SLURM_TASKS_PER_NODE"), out, e);
	return *words == '/' ? read_hosts(words, out, e) : hostlist_words(words, out, e);
}

int
host_settings_hosts(struct verb_call *c)
{
	struct group *g = group_of(c);
	char *words = words_of(c);
	struct hostlist list;
	struct buf kept = {0};
	int r = parse(words, &list, c->e);

	free(words);
	if (r < 0)
		return r;
	hostlist_print(&list, &kept);
	if (g->hosts.lacking || !rank_any_process(g))
		r = hosts_set(g, &list, c->e);
	else
		hosts_set_later(g);
	if (r == 0) {
		xreplace(&g->set.hosts.names, kept.n ? kept.p : "");
		start_make_ranks(g);
		journal_changed(g);
		if (g->hosts.lacking)
			processes_place(g);
	}
	buf_free(&kept);
	hostlist_free(&list);
	return r;
}

static void
print_words(char **word, int n, struct buf *out)
{
	buf_adds(out, "");
	for (int i = 0; i < n; i++) {
		buf_adds(out, i ? " " : "");
		words_print(word[i], out);
	}
}

/* A mount option passes all words as one, with any quoting. */
int
host_settings_launcher(struct verb_call *c)
{
	struct group *g = group_of(c);
	char *copy = xstrdup(c->word[1]), *word[WORDS_MAX];
	struct buf words = {0};
	int n = c->n == 1 ? words_split(copy, word, WORDS_MAX, c->e) : c->n, r = MIN(n, 0);

	print_words(c->n == 1 ? word : c->word + 1, n, &words);
	free(copy);
	if (r == 0)
		r = launcher_check(words.p, c->e);
	if (r == 0)
		xreplace(&g->set.hosts.launcher, words.p);
	buf_free(&words);
	return r;
}

int
host_settings_engine(struct verb_call *c)
{
	const char *path = c->word[1];
	bool automatic = strcmp(path, "auto") == 0;

	if (!automatic && *path != '/')
		return fail(c->e, EINVAL,
		    "engine: want the absolute path of ddip-engine over there, that of the "
		    "directory where a copy shall be kept, with a / at its end, or auto, not "
		    "'%.200s'",
		    path);
	xreplace(&group_of(c)->set.hosts.engine, automatic ? "" : path);
	return 0;
}

int
host_settings_master_addr(struct verb_call *c)
{
	const char *address = c->word[1];
	bool automatic = strcmp(address, "auto") == 0;

	if (strspn(
		address, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:%") !=
		strlen(address) ||
	    !*address || *address == '-')
		return fail(c->e, EINVAL,
		    "master_addr: want a name or an address that the hosts reach, or auto, not "
		    "'%.200s'",
		    address);
	xreplace(&group_of(c)->set.hosts.master_addr, automatic ? "" : address);
	return 0;
}
