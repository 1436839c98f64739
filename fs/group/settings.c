/*
 * The settings of a group, and the verbs of `ctl` that set them. The verbs that act are in
 * tree/ctl.c.
 */
#include "group/settings.h"
#include "base/daemon.h"
#include "base/words.h"
#include "group/cell.h"
#include "group/events.h"
#include "group/external.h"
#include "group/host.h"
#include "group/hosts.h"
#include "group/journal.h"
#include "group/lifecycle.h"
#include "group/output.h"
#include "group/processes.h"
#include "group/rank.h"
#include "group/rank_request.h"
#include "group/start.h"
#include "host/launcher.h"
#include "host/path.h"
#include "signal_name.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_HISTORY = 200, HISTORY_MAX = 1000000 };

enum { LINGER_MAX = 86400, SECONDS_MAX = 1000000000 };

enum { HOSTS_FILE_MAX = 1 << 20 }; /* bytes */

#define SPOOL_MAX (1LL << 60)

#define DEFAULT_LAUNCHER "ssh"

/* In seconds. Slurm (KillWait) and Kubernetes give 30 by default between SIGTERM and SIGKILL. */
enum { DEFAULT_LINGER = 30, DEFAULT_SAVE = 20 };

/* A value in struct settings. Its verb's function reads and checks it. */
struct setting {
	void (*print)(const void *value, struct buf *out); /* as the words behind the verb */
	size_t at;					   /* its offset */
	long long least, most;
	void (*changed)(struct group *g); /* called after it was set; NULL: nothing is to be done */
};

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
	    .on_preempt = {0, xstrdup(""), DEFAULT_SAVE},
	    .hosts = {xstrdup(""), xstrdup(DEFAULT_LAUNCHER), xstrdup(""), xstrdup(""),
		DEFAULT_LINGER},
	    .timeout = -1,
	    .grace = 5,
	    .killafter = 30,
	    .stall = 60,
	    .idle = -1,
	    .history = DEFAULT_HISTORY,
	    .rank = {.autogc = true, .clock = CLOCKS}};
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
	free(s->on_preempt.save);
	free(s->hosts.names);
	free(s->hosts.launcher);
	free(s->hosts.engine);
	free(s->hosts.master_addr);
}

/* ---- values of one kind: how they are read and printed ---- */

static void *
value_of(const struct verb_call *c)
{
	return (char *)&group_of(c)->set + c->verb->setting->at;
}

static int
changed(const struct verb_call *c)
{
	if (c->verb->setting->changed)
		c->verb->setting->changed(group_of(c));
	return 0;
}

static bool
are_seconds(const char *word, double most, double *out)
{
	char *end;

	*out = strtod(word, &end);
	return end != word && !*end && isfinite(*out) && *out >= 0 && *out <= most;
}

/* -1 stands for off, where that is allowed. */
static int
set_seconds(struct verb_call *c)
{
	long long most = c->verb->setting->most;
	double *value = value_of(c), d;
	bool may_be_off = strcmp(c->verb->args, "S|off") == 0;

	if (may_be_off && strcmp(c->word[1], "off") == 0) {
		*value = -1;
		return changed(c);
	}
	if (!are_seconds(c->word[1], (double)most, &d))
		return fail(c->e, EINVAL, "%s: want seconds, 0..%lld%s, not '%.80s'", c->word[0],
		    most, may_be_off ? ", or off" : "", c->word[1]);
	*value = d;
	return changed(c);
}

static void
print_seconds(const void *value, struct buf *out)
{
	const double *d = value;

	if (*d < 0)
		buf_adds(out, "off");
	else
		buf_addf(out, "%g", *d);
}

static int
set_number(struct verb_call *c)
{
	const struct setting *s = c->verb->setting;

	if (words_number(c->word[0], c->word[1], s->least, s->most, value_of(c), c->e) < 0)
		return -c->e->no;
	return changed(c);
}

static void
print_number(const void *value, struct buf *out)
{
	buf_addf(out, "%lld", *(const long long *)value);
}

static int
set_switch(struct verb_call *c)
{
	bool on = strcmp(c->word[1], "on") == 0;

	if (!on && strcmp(c->word[1], "off") != 0)
		return fail(
		    c->e, EINVAL, "%s: want on or off, not '%.80s'", c->word[0], c->word[1]);
	*(bool *)value_of(c) = on;
	return changed(c);
}

static void
print_switch(const void *value, struct buf *out)
{
	buf_adds(out, *(const bool *)value ? "on" : "off");
}

static void
print_word(const void *value, struct buf *out)
{
	words_print(*(char *const *)value, out);
}

/* Words, quoted as they need to be. */
static void
print_words(const void *value, struct buf *out)
{
	buf_adds(out, *(char *const *)value);
}

static void
print_or_auto(const void *value, struct buf *out)
{
	words_print(**(char *const *)value ? *(char *const *)value : "auto", out);
}

/* ---- values of their own ---- */

/* 0, which nobody can set, stands for one per GPU. */
static void
print_size(const void *value, struct buf *out)
{
	if (*(const long long *)value)
		print_number(value, out);
}

static void
print_hosts(const void *value, struct buf *out)
{
	buf_adds(out, **(char *const *)value ? *(char *const *)value : "local");
}

static void
print_external(const void *value, struct buf *out)
{
	rank_set_print(value, out);
}

static void
print_preempt(const void *value, struct buf *out)
{
	const struct preempt_settings *s = value;

	buf_adds(out, s->signo ? signal_name(s->signo) : "off");
	if (*s->save) {
		buf_adds(out, " save ");
		words_print(s->save, out);
		buf_addf(out, " %g", s->within);
	}
}

static int
do_backend(struct verb_call *c)
{
	static const char *const known[] = {"auto", "nccl", "gloo", "none"};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (strcmp(known[i], c->word[1]) == 0) {
			xreplace(&group_of(c)->set.backend, known[i]);
			return 0;
		}
	return fail(
	    c->e, EINVAL, "backend: want auto, nccl, gloo or none, not '%.80s'", c->word[1]);
}

/* Returns the words after the verb as one string, with sep between them; the caller frees it. */
static char *
words_of(const struct verb_call *c, const char *sep)
{
	struct buf b = {0};

	for (int i = 1; i <= c->n; i++)
		buf_addf(&b, "%s%s", i > 1 ? sep : "", c->word[i]);
	return buf_take(&b);
}

static int
do_gpus(struct verb_call *c)
{
	char *words = words_of(c, ",");
	struct nvml_gpu *own;
	struct gpus gpus;
	int r = host_choose_gpus(group_of(c)->hosts.list[0], words, &gpus, &own, c->e);

	free(own);
	if (r == 0) {
		xreplace(&group_of(c)->set.gpus, words);
		start_make_ranks(group_of(c));
	}
	free(words);
	return r;
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
	xreplace(&group_of(c)->set.python, c->word[1]);
	return 0;
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
	xreplace(&group_of(c)->set.cwd, s);
	group_of(c)->set.cwd_is_set = true;
	return 0;
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
		xreplace(&group_of(c)->set.env, "");
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
	free(group_of(c)->set.preload);
	group_of(c)->set.preload = words_of(c, " ");
	return 0;
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
tell_autogc(struct group *g)
{
	for (int i = 0; i < g->size; i++)
		rank_set_autogc(&g->ranks[i]);
}

/* The names of the clocks, in the order of enum clock. */
static const char *
clock_name(int clock)
{
	return clock == CLOCKS ? "auto" : task_clock((enum clock)clock);
}

static void
print_clock(const void *value, struct buf *out)
{
	buf_adds(out, clock_name(*(const int *)value));
}

static void
tell_clock(struct group *g)
{
	for (int i = 0; i < g->size; i++)
		rank_set_clock(&g->ranks[i]);
}

static int
do_clock(struct verb_call *c)
{
	int clock = 0;

	while (clock <= CLOCKS && strcmp(clock_name(clock), c->word[1]) != 0)
		clock++;
	if (clock > CLOCKS)
		return fail(c->e, EINVAL,
		    "clock: want auto, optimizer, forward or collective, not '%.80s'", c->word[1]);
	*(int *)value_of(c) = clock;
	return changed(c);
}

static int
set_preempt(struct preempt_settings *set, char **word, int n, struct err *e)
{
	int signo = n ? signal_name_find(word[0]) : 0;
	const int *known = signal_preempts;
	double within = DEFAULT_SAVE;

	while (*known && *known != signo)
		known++;
	if (!n || (!*known && strcmp(word[0], "off") != 0))
		return fail(e, EINVAL,
		    "on_preempt: want USR1, USR2, XCPU, PWR, TERM or off, not '%.80s'",
		    n ? word[0] : "");
	if (n > 1 && (n < 3 || n > 4 || strcmp(word[1], "save") != 0 || !*word[2] || !*known ||
			 (n == 4 && !are_seconds(word[3], SECONDS_MAX, &within))))
		return fail(e, EINVAL,
		    "on_preempt: want SIGNAL alone, or SIGNAL save DIR and, if not %d, the seconds "
		    "that it may take",
		    DEFAULT_SAVE);
	set->signo = *known;
	xreplace(&set->save, n > 1 ? word[2] : "");
	set->within = within;
	return 0;
}

/* A mount option passes all words as one. */
static int
do_on_preempt(struct verb_call *c)
{
	char *copy = xstrdup(c->word[1]), *word[WORDS_MAX];
	int n = c->n == 1 ? words_split(copy, word, WORDS_MAX, c->e) : c->n;

	if (n >= 0)
		n = set_preempt(
		    &group_of(c)->set.on_preempt, c->n == 1 ? word : c->word + 1, n, c->e);
	free(copy);
	return n;
}

/* ---- where ranks run: a list of hosts is read once, when it is set; later changes of a file have
 * no effect ---- */

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
	if (!S_ISREG(st.st_mode) || st.st_size > HOSTS_FILE_MAX)
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

static int
do_hosts(struct verb_call *c)
{
	struct group *g = group_of(c);
	char *words = words_of(c, " ");
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
quote_words(char **word, int n, struct buf *out)
{
	buf_adds(out, "");
	for (int i = 0; i < n; i++) {
		buf_adds(out, i ? " " : "");
		words_print(word[i], out);
	}
}

/* A mount option passes all words as one, with any quoting. */
static int
do_launcher(struct verb_call *c)
{
	struct group *g = group_of(c);
	char *copy = xstrdup(c->word[1]), *word[WORDS_MAX];
	struct buf words = {0};
	int n = c->n == 1 ? words_split(copy, word, WORDS_MAX, c->e) : c->n, r = MIN(n, 0);

	quote_words(c->n == 1 ? word : c->word + 1, n, &words);
	free(copy);
	if (r == 0)
		r = launcher_check(words.p, c->e);
	if (r == 0)
		xreplace(&g->set.hosts.launcher, words.p);
	buf_free(&words);
	return r;
}

static int
do_engine(struct verb_call *c)
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

static int
do_master_addr(struct verb_call *c)
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

/* ---- the table ---- */

#define SETTING(show, field, ...)                                                                  \
	(&(const struct setting){                                                                  \
	    .print = (show), .at = offsetof(struct settings, field), __VA_ARGS__})
#define SECONDS_OR_OFF(field, ...)                                                                 \
	set_seconds, SETTING(print_seconds, field, .most = SECONDS_MAX, __VA_ARGS__)
#define NUMBER(show, field, from, to, fn)                                                          \
	set_number, SETTING(show, field, .least = (from), .most = (to), .changed = (fn))
#define SWITCH(field, ...) set_switch, SETTING(print_switch, field, __VA_ARGS__)

/* clang-format off */
static const struct verb verbs[] = {
    {"size", "N", "the number of ranks", 1, 1, 0, NUMBER(print_size, size, 1, MAX_RANKS, start_make_ranks)},
    {"hosts", "a:2 b:2|FILE|slurm|local", "hosts of the ranks, and how many ranks on each; a file has lines NAME slots=N", 1, WORDS_MAX, VERB_LACKING | VERB_FIRST, do_hosts, SETTING(print_hosts, hosts.names)},
    {"launcher", "ssh|srun|CMD...", "the command that runs programs on {host}; here: on this machine, for trials", 1, WORDS_MAX, VERB_FIRST, do_launcher, SETTING(print_words, hosts.launcher)},
    {"engine", "PATH|DIR/|auto", "the path of ddip-engine on the hosts, or where a copy is kept; auto: it is copied there", 1, 1, 0, do_engine, SETTING(print_or_auto, hosts.engine)},
    {"master_addr", "ADDR|auto", "the address at which all hosts reach rank 0's host", 1, 1, VERB_LACKING, do_master_addr, SETTING(print_or_auto, hosts.master_addr)},
    {"linger", "S", "seconds that ranks outlive the connection to their host", 1, 1, 0, set_seconds, SETTING(print_seconds, hosts.linger, .most = LINGER_MAX)},
    {"on_preempt", "SIGNAL [save DIR [S]]|off", "the signal before a preemption: saves within S seconds, raises ddip.Preempted in cells", 1, 4, 0, do_on_preempt, SETTING(print_preempt, on_preempt)},
    {"gpus", "all|none|3,1|UUID", "the GPUs, in this order; one named twice serves two ranks", 1, WORDS_MAX, 0, do_gpus, SETTING(print_word, gpus)},
    {"backend", "auto|nccl|gloo|none", "the backend of the process group", 1, 1, 0, do_backend, SETTING(print_word, backend)},
    {"python", "PATH", "the Python interpreter", 1, 1, 0, do_python, SETTING(print_word, python)},
    {"cwd", "DIR", "the working directory of the ranks", 1, 1, 0, do_cwd, SETTING(print_word, cwd)},
    {"env", "[NAME=VALUE]", "an environment variable; an empty value unsets it, env alone all", 0, 1, 0, do_env, NULL},
    {"preload", "[MODULE...]", "modules to import before ranks are forked", 0, WORDS_MAX, 0, do_preload, SETTING(print_words, preload)},
    {"external", "[K...|none]", "ranks that are processes of other programs; rankK/env shows how they join", 0, WORDS_MAX, 0, do_external, SETTING(print_external, external)},
    {"timeout", "S|off", "seconds that a cell may take", 1, 1, VERB_ANYTIME, SECONDS_OR_OFF(timeout)},
    {"grace", "S|off", "seconds that others have after a rank's failure, if they can end", 1, 1, VERB_ANYTIME, SECONDS_OR_OFF(grace)},
    {"killafter", "S|off", "seconds until a rank that runs no Python is killed", 1, 1, VERB_ANYTIME, SECONDS_OR_OFF(killafter)},
    {"stall", "S|off", "report a stall after this long without progress", 1, 1, VERB_ANYTIME, SECONDS_OR_OFF(stall)},
    {"idle", "S|off", "seconds until an unused group is stopped", 1, 1, VERB_ANYTIME, SECONDS_OR_OFF(idle, .changed = event_rested)},
    {"autogc", "on|off", "release memory after each cell", 1, 1, VERB_ANYTIME, SWITCH(rank.autogc, .changed = tell_autogc)},
    {"clock", "auto|optimizer|forward|collective", "what counts the steps of the next cells, for steer and watch", 1, 1, VERB_ANYTIME, do_clock, SETTING(print_clock, rank.clock, .changed = tell_clock)},
    {"history", "N", "number of ended cells to keep", 1, 1, VERB_ANYTIME, NUMBER(print_number, history, 1, HISTORY_MAX, cell_prune)},
    {"spool", "BYTES", "bytes of output to keep for each stream; 0: all", 1, 1, VERB_ANYTIME, NUMBER(print_number, spool, 0, SPOOL_MAX, output_trim)},
    {"quiet", "on|off", "say nothing on the standard error of those who write what fails", 1, 1, VERB_ANYTIME, SWITCH(quiet)},
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

		if (!v->setting)
			continue;
		buf_clear(&value);
		v->setting->print((const char *)&g->set + v->setting->at, &value);
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
