/*
 * The settings of a group, and the verbs of `ctl` that set them. The verbs that act are in
 * tree/ctl.c.
 */
#include "group/settings.h"
#include "base/daemon.h"
#include "base/words.h"
#include "group/cell.h"
#include "group/external.h"
#include "group/host_settings.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/output.h"
#include "group/rank.h"
#include "group/rank_request.h"
#include "group/start.h"
#include "host/gpustat.h"
#include "host/path.h"
#include "signal_name.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_HISTORY = 200, HISTORY_MAX = 1000000 };

#define DEFAULT_LAUNCHER "ssh"

enum { DEFAULT_LINGER = 30 }; /* seconds */

/* The group that a call is for. */
static struct group *
group_of(const struct verb_call *c)
{
	return c->subject;
}

void
settings_default(struct settings *s)
{
	*s = (struct settings){.gpus = xstrdup("all"),
	    .backend = xstrdup("auto"),
	    .python = xstrdup(daemon_.python),
	    .cwd = xstrdup(daemon_.cwd),
	    .preload = xstrdup(""),
	    .env = xstrdup(""),
	    .hosts = {xstrdup(""), xstrdup(DEFAULT_LAUNCHER), xstrdup(""), xstrdup(""),
		DEFAULT_LINGER},
	    .timeout = -1,
	    .grace = 5,
	    .killafter = 30,
	    .stall = 60,
	    .idle = -1,
	    .history = DEFAULT_HISTORY,
	    .autogc = true};
}

void
settings_free(struct settings *s)
{
	free(s->gpus);
	free(s->backend);
	free(s->python);
	free(s->cwd);
	free(s->preload);
	free(s->env);
	free(s->hosts.names);
	free(s->hosts.launcher);
	free(s->hosts.engine);
	free(s->hosts.master_addr);
}

static void
set_string(char **to, const char *s)
{
	free(*to);
	*to = xstrdup(s);
}

/* Parses seconds, or off (-1). */
static int
seconds(struct verb_call *c, double *v)
{
	char *end;
	double d = strtod(c->word[1], &end);

	if (strcmp(c->word[1], "off") == 0) {
		*v = -1;
		return 0;
	}
	if (end == c->word[1] || *end || !isfinite(d) || d < 0 || d > 1e9)
		return fail(c->e, EINVAL, "%s: want seconds (0 or more) or off, not '%.80s'",
		    c->word[0], c->word[1]);
	*v = d;
	return 0;
}

static void
print_seconds(double v, struct buf *out)
{
	if (v < 0)
		buf_adds(out, "off");
	else
		buf_addf(out, "%g", v);
}

static int
do_size(struct verb_call *c)
{
	long long v;
	int r = words_number(c->word[0], c->word[1], 1, MAX_RANKS, &v, c->e);

	if (r < 0)
		return r;
	group_of(c)->set.size = (long)v;
	start_make_ranks(group_of(c));
	return 0;
}

static void
print_size(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	if (s->size)
		buf_addf(out, "%ld", s->size);
}

static int
do_gpus(struct verb_call *c)
{
	struct gpus chosen;
	struct buf words = {0};
	int r;

	for (int i = 1; i <= c->n; i++)
		buf_addf(&words, "%s%s", i > 1 ? "," : "", c->word[i]);
	/* only other hosts know which GPUs they have */
	r = hosts_named(group_of(c)) ? gpus_far_check(words.p, c->e)
				     : gpustat_choose(words.p, &chosen, c->e);
	if (r == 0) {
		set_string(&group_of(c)->set.gpus, words.p);
		start_make_ranks(group_of(c));
	}
	buf_free(&words);
	return r;
}

static void
print_gpus(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	words_print(s->gpus, out);
}

static int
do_backend(struct verb_call *c)
{
	static const char *const known[] = {"auto", "nccl", "gloo", "none"};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (strcmp(known[i], c->word[1]) == 0) {
			set_string(&group_of(c)->set.backend, known[i]);
			return 0;
		}
	return fail(
	    c->e, EINVAL, "backend: want auto, nccl, gloo or none, not '%.80s'", c->word[1]);
}

static void
print_backend(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	words_print(s->backend, out);
}

static int
do_python(struct verb_call *c)
{
	struct stat st;

	if (!c->word[1][0])
		return fail(c->e, EINVAL, "python: want a path, or a name that is in PATH, not ''");
	if (c->word[1][0] == '/' && hosts_here(group_of(c))) {
		int r = path_check_outside("python", c->word[1], c->e);

		if (r < 0)
			return r;
		if (access(c->word[1], X_OK) < 0)
			return fail_errno(c->e, "python: %.200s", c->word[1]);
		if (stat(c->word[1], &st) == 0 && S_ISDIR(st.st_mode))
			return fail(c->e, EINVAL, "python: %.200s is a directory", c->word[1]);
	}
	set_string(&group_of(c)->set.python, c->word[1]);
	return 0;
}

static void
print_python(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	words_print(s->python, out);
}

static int
do_cwd(struct verb_call *c)
{
	struct stat st;
	const char *s = c->word[1];
	int r;

	if (s[0] != '/')
		return fail(c->e, EINVAL, "cwd: want an absolute path, not '%.200s'", s);
	r = hosts_here(group_of(c)) ? path_check_outside("cwd", s, c->e) : 0;
	if (r < 0)
		return r;
	if (hosts_here(group_of(c)) && stat(s, &st) < 0)
		return fail_errno(c->e, "cwd: %.200s", s);
	if (hosts_here(group_of(c)) && !S_ISDIR(st.st_mode))
		return fail(c->e, EINVAL, "cwd: %.200s is not a directory", s);
	set_string(&group_of(c)->set.cwd, s);
	group_of(c)->set.cwd_is_set = true;
	return 0;
}

static void
print_cwd(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	words_print(s->cwd, out);
}

/* `env K=V` sets or replaces K, `env K=` removes it, and `env` alone removes all variables. */
static int
do_env(struct verb_call *c)
{
	const char *kv = c->n ? c->word[1] : "", *eq = strchr(kv, '=');
	char *old = group_of(c)->set.env, *line, *save;
	struct buf b = {0};
	size_t k;

	if (c->n == 0) {
		set_string(&group_of(c)->set.env, "");
		return 0;
	}
	if (!eq || eq == kv || isdigit((unsigned char)kv[0]) ||
	    strspn(kv, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") !=
		(size_t)(eq - kv))
		return fail(c->e, EINVAL, "env: want NAME=VALUE, not '%.80s'", kv);
	k = (size_t)(eq - kv) + 1;
	for (line = strtok_r(old, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (strncmp(line, kv, k) != 0)
			buf_addf(&b, "%s\n", line);
	if (eq[1])
		buf_addf(&b, "%s\n", kv);
	free(old);
	group_of(c)->set.env = buf_take(&b);
	return 0;
}

static int
do_preload(struct verb_call *c)
{
	struct buf b = {0};

	for (int i = 1; i <= c->n; i++)
		buf_addf(&b, "%s%s", i > 1 ? " " : "", c->word[i]);
	free(group_of(c)->set.preload);
	group_of(c)->set.preload = buf_take(&b);
	return 0;
}

static void
print_preload(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	buf_adds(out, s->preload);
}

/* Sets which ranks are started by others, replacing the whole list. */
static int
do_external(struct verb_call *c)
{
	struct group *g = group_of(c);
	long size = g->set.size ? g->set.size : MAX_RANKS; /* start checks the real size */
	struct rank_set ranks = {0};

	if ((c->n != 1 || strcmp(c->word[1], "none") != 0) &&
	    rank_set_parse(&ranks, c->word + 1, c->n, (int)size, c->e) < 0)
		return -c->e->no;
	g->set.external = ranks;
	journal_changed(g);
	return 0;
}

static void
print_external(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	rank_set_print(&s->external, out);
}

#define SECONDS_VERB(field)                                                                        \
	static int do_##field(struct verb_call *c)                                                 \
	{                                                                                          \
		return seconds(c, &group_of(c)->set.field);                                        \
	}                                                                                          \
	static void print_##field(const void *settings, struct buf *out)                           \
	{                                                                                          \
		const struct settings *s = settings;                                               \
                                                                                                   \
		print_seconds(s->field, out);                                                      \
	}

SECONDS_VERB(timeout)
SECONDS_VERB(grace)
SECONDS_VERB(killafter)
SECONDS_VERB(stall)

static int
do_idle(struct verb_call *c)
{
	int r = seconds(c, &group_of(c)->set.idle);

	if (r == 0)
		lifecycle_rested(group_of(c));
	return r;
}

static void
print_idle(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	print_seconds(s->idle, out);
}

static int
on_or_off(struct verb_call *c, bool *v)
{
	if (strcmp(c->word[1], "on") != 0 && strcmp(c->word[1], "off") != 0)
		return fail(
		    c->e, EINVAL, "%s: want on or off, not '%.80s'", c->word[0], c->word[1]);
	*v = strcmp(c->word[1], "on") == 0;
	return 0;
}

static int
do_autogc(struct verb_call *c)
{
	int r = on_or_off(c, &group_of(c)->set.autogc);

	for (int i = 0; i < group_of(c)->size; i++)
		rank_set_autogc(&group_of(c)->ranks[i]);
	return r;
}

static void
print_autogc(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	buf_adds(out, s->autogc ? "on" : "off");
}

static int
do_quiet(struct verb_call *c)
{
	return on_or_off(c, &group_of(c)->set.quiet);
}

static void
print_quiet(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	buf_adds(out, s->quiet ? "on" : "off");
}

static int
do_on_preempt(struct verb_call *c)
{
	int signo = signal_name_find(c->word[1]);
	const int *known = signal_preempts;

	while (*known && *known != signo)
		known++;
	if (!*known && strcmp(c->word[1], "off") != 0)
		return fail(c->e, EINVAL,
		    "on_preempt: want USR1, USR2, XCPU, PWR, TERM or off, not '%.80s'", c->word[1]);
	group_of(c)->set.on_preempt = *known;
	return 0;
}

static void
print_on_preempt(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	buf_adds(out, s->on_preempt ? signal_name(s->on_preempt) : "off");
}

static int
do_history(struct verb_call *c)
{
	long long v;
	int r = words_number(c->word[0], c->word[1], 1, HISTORY_MAX, &v, c->e);

	if (r == 0) {
		group_of(c)->set.history = (long)v;
		cell_prune(group_of(c));
	}
	return r;
}

static void
print_history(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	buf_addf(out, "%ld", s->history);
}

static int
do_spool(struct verb_call *c)
{
	int r = words_number(c->word[0], c->word[1], 0, 1LL << 60, &group_of(c)->set.spool, c->e);

	if (r == 0)
		output_trim(group_of(c));
	return r;
}

static void
print_spool(const void *settings, struct buf *out)
{
	const struct settings *s = settings;

	buf_addf(out, "%lld", s->spool);
}

/* clang-format off */
static const struct verb verbs[] = {
    {"size", "N", "the number of ranks", 1, 1, 0, do_size, print_size},
    {"hosts", "a:2 b:2|FILE|slurm|local", "hosts of the ranks, and how many ranks on each; a file has lines NAME slots=N", 1, WORDS_MAX, VERB_LACKING | VERB_FIRST, host_settings_hosts, host_settings_print_hosts},
    {"launcher", "ssh|srun|CMD...", "the command that runs programs on {host}; here: on this machine, for trials", 1, WORDS_MAX, VERB_FIRST, host_settings_launcher, host_settings_print_launcher},
    {"engine", "PATH|DIR/|auto", "the path of ddip-engine on the hosts, or where a copy is kept; auto: it is copied there", 1, 1, 0, host_settings_engine, host_settings_print_engine},
    {"master_addr", "ADDR|auto", "the address at which all hosts reach rank 0's host", 1, 1, VERB_LACKING, host_settings_master_addr, host_settings_print_master_addr},
    {"linger", "S", "seconds that ranks outlive the connection to their host", 1, 1, 0, host_settings_linger, host_settings_print_linger},
    {"on_preempt", "SIGNAL|off", "the signal before a preemption: raises ddip.Preempted in cells", 1, 1, 0, do_on_preempt, print_on_preempt},
    {"gpus", "all|none|3,1|UUID", "the GPUs, in this order; one named twice serves two ranks", 1, WORDS_MAX, 0, do_gpus, print_gpus},
    {"backend", "auto|nccl|gloo|none", "the backend of the process group", 1, 1, 0, do_backend, print_backend},
    {"python", "PATH", "the Python interpreter", 1, 1, 0, do_python, print_python},
    {"cwd", "DIR", "the working directory of the ranks", 1, 1, 0, do_cwd, print_cwd},
    {"env", "[NAME=VALUE]", "an environment variable; an empty value unsets it, env alone all", 0, 1, 0, do_env, NULL},
    {"preload", "[MODULE...]", "modules to import before ranks are forked", 0, WORDS_MAX, 0, do_preload, print_preload},
    {"external", "[K...|none]", "ranks that are processes of other programs; rankK/env shows how they join", 0, WORDS_MAX, 0, do_external, print_external},
    {"timeout", "S|off", "seconds that a cell may take", 1, 1, VERB_ANYTIME, do_timeout, print_timeout},
    {"grace", "S|off", "seconds between a rank's failure and unblocking the others", 1, 1, VERB_ANYTIME, do_grace, print_grace},
    {"killafter", "S|off", "seconds until a rank that runs no Python is killed", 1, 1, VERB_ANYTIME, do_killafter, print_killafter},
    {"stall", "S|off", "report a stall after this long without progress", 1, 1, VERB_ANYTIME, do_stall, print_stall},
    {"idle", "S|off", "seconds until an unused group is stopped", 1, 1, VERB_ANYTIME, do_idle, print_idle},
    {"autogc", "on|off", "release memory after each cell", 1, 1, VERB_ANYTIME, do_autogc, print_autogc},
    {"history", "N", "number of ended cells to keep", 1, 1, VERB_ANYTIME, do_history, print_history},
    {"spool", "BYTES", "bytes of output to keep for each stream; 0: all", 1, 1, VERB_ANYTIME, do_spool, print_spool},
    {"quiet", "on|off", "say nothing on the standard error of those who write what fails", 1, 1, VERB_ANYTIME, do_quiet, print_quiet},
};

/* clang-format on */

static int
check(const struct verb *v, const struct verb_call *c)
{
	const struct group *g = group_of(c);

	if (v->flags & VERB_LACKING && g->hosts.lacking)
		return 0;
	if (v->flags & VERB_ANYTIME || (g->life.state != G_STARTING && g->life.state != G_READY))
		return 0;
	return fail(c->e, EBUSY,
	    "%s can be set while the group is new, stopping, restarting or stopped (echo stop > "
	    "%s/ctl)",
	    v->name, g->name);
}

const struct verb_table settings_table = {verbs, ARRAY_LEN(verbs), check};

static char **options;
static size_t option_count;

void
settings_set_options(char **lines, size_t n)
{
	options = lines;
	option_count = n;
}

/* Is this line a setting on which others depend, whatever their order? */
static bool
is_first(const char *line)
{
	char *name = xstrndup(line, strcspn(line, " "));
	const struct verb *v = verb_find(&settings_table, name);

	free(name);
	return v && v->flags & VERB_FIRST;
}

void
settings_take_options(
    struct group *g, void (*bad)(struct group *g, const struct err *e, const char *line))
{
	static const struct verb_table *const tables[] = {&settings_table, NULL};

	for (size_t i = 0; i < 2 * option_count; i++) {
		const char *line = options[i % option_count];
		struct err e = {0};

		if (is_first(line) == (i < option_count) &&
		    verb_line(tables, line, g, NULL, &e) < 0)
			bad(g, &e, line);
	}
}

void
settings_print(const struct group *g, struct buf *out)
{
	char *env = xstrdup(g->set.env), *save, *line;
	struct buf value = {0};

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		const struct verb *v = &verbs[i];

		if (!v->print)
			continue;
		buf_clear(&value);
		v->print(&g->set, &value);
		if (value.n || v->min == 0) /* else it has its default, which no value stands for */
			buf_addf(
			    out, "%s%s%s\n", v->name, value.n ? " " : "", value.n ? value.p : "");
	}
	buf_adds(out, "env\n"); /* clears the variables of a group that reads these settings */
	for (line = strtok_r(env, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		buf_adds(out, "env ");
		words_print(line, out);
		buf_addc(out, '\n');
	}
	buf_free(&value);
	free(env);
}
