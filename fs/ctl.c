/* The verbs of `ctl`: one row each. */
#include "ctl.h"
#include "daemon.h"
#include "cell.h"
#include "gpustat.h"
#include "queue.h"
#include "rank.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_HISTORY = 200, HISTORY_MAX = 1000000 };
enum { VERB_SETTING = 1, VERB_ANYTIME = 2, VERB_LATER = 4 };

struct call_ctx {
	struct group *g;
	char **word; /* word[0] is the verb */
	int n;       /* words behind it */
	struct ctl_result *res;
	struct err *e;
};

struct verb {
	const char *name, *args, *help;
	int min, max, flags;
	int (*fn)(struct call_ctx *c);
	void (*print)(const struct settings *s, struct buf *out); /* what `ctl` shows behind the name */
};

int
ctl_words(char *line, char **words, int max, struct err *e)
{
	char *in = line, *out;
	int n = 0;

	for (;;) {
		while (isspace((unsigned char)*in))
			in++;
		if (*in == '\0' || *in == '#')
			return n;
		if (n == max)
			return fail(e, EINVAL, "more than %d words in a line", max);
		words[n++] = out = in;
		while (*in && !isspace((unsigned char)*in)) {
			if (*in != '\'') {
				*out++ = *in++;
				continue;
			}
			for (in++; *in != '\'' || in[1] == '\''; in++) {
				if (*in == '\0')
					return fail(e, EINVAL, "a quote ' is not closed");
				if (*in == '\'')
					in++;
				*out++ = *in;
			}
			in++;
		}
		if (*in)
			in++;
		*out = '\0';
	}
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
}

static void
set_string(char **to, const char *s)
{
	free(*to);
	*to = xstrdup(s);
}

/* A whole number in min..max. */
static int
number(struct call_ctx *c, const char *s, long long min, long long max, long long *v)
{
	char *end;

	errno = 0;
	*v = strtoll(s, &end, 10);
	if (errno || end == s || *end || *v < min || *v > max)
		return fail(c->e, EINVAL, "%s: want a whole number %lld..%lld, not '%.80s'", c->word[0],
		    min, max, s);
	return 0;
}

/* Seconds, or off (-1). */
static int
seconds(struct call_ctx *c, double *v)
{
	char *end;
	double d = strtod(c->word[1], &end);

	if (strcmp(c->word[1], "off") == 0) {
		*v = -1;
		return 0;
	}
	if (end == c->word[1] || *end || !isfinite(d) || d < 0 || d > 1e9)
		return fail(c->e, EINVAL, "%s: want seconds (0 or more) or off, not '%.80s'", c->word[0],
		    c->word[1]);
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

/* A word as ctl_words reads it back. */
static void
print_word(const char *s, struct buf *out)
{
	if (*s && !strpbrk(s, " \t\n'#")) {
		buf_adds(out, s);
		return;
	}
	buf_addc(out, '\'');
	for (; *s; s++) {
		if (*s == '\'')
			buf_addc(out, '\'');
		buf_addc(out, *s);
	}
	buf_addc(out, '\'');
}

static int
do_size(struct call_ctx *c)
{
	long long v;
	int r = number(c, c->word[1], 1, MAX_RANKS, &v);

	if (r < 0)
		return r;
	c->g->set.size = (long)v;
	group_make_ranks(c->g);
	return 0;
}

static void
print_size(const struct settings *s, struct buf *out)
{
	if (s->size)
		buf_addf(out, "%ld", s->size);
}

static int
do_gpus(struct call_ctx *c)
{
	struct gpus chosen;
	struct buf words = {0};
	int r;

	for (int i = 1; i <= c->n; i++)
		buf_addf(&words, "%s%s", i > 1 ? "," : "", c->word[i]);
	r = gpustat_choose(words.p, &chosen, c->e);
	if (r == 0) {
		set_string(&c->g->set.gpus, words.p);
		group_make_ranks(c->g);
	}
	buf_free(&words);
	return r;
}

static void
print_gpus(const struct settings *s, struct buf *out)
{
	print_word(s->gpus, out);
}

static int
do_backend(struct call_ctx *c)
{
	static const char *const known[] = {"auto", "nccl", "gloo", "none"};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (strcmp(known[i], c->word[1]) == 0) {
			set_string(&c->g->set.backend, known[i]);
			return 0;
		}
	return fail(c->e, EINVAL, "backend: want auto, nccl, gloo or none, not '%.80s'", c->word[1]);
}

static void
print_backend(const struct settings *s, struct buf *out)
{
	print_word(s->backend, out);
}

static int
do_python(struct call_ctx *c)
{
	if (c->word[1][0] == '/' && access(c->word[1], X_OK) < 0)
		return fail_errno(c->e, "python: %.200s", c->word[1]);
	set_string(&c->g->set.python, c->word[1]);
	return 0;
}

static void
print_python(const struct settings *s, struct buf *out)
{
	print_word(s->python, out);
}

static int
do_cwd(struct call_ctx *c)
{
	struct stat st;
	const char *s = c->word[1];

	if (s[0] != '/')
		return fail(c->e, EINVAL, "cwd: want an absolute path, not '%.200s'", s);
	if (stat(s, &st) < 0)
		return fail_errno(c->e, "cwd: %.200s", s);
	if (!S_ISDIR(st.st_mode))
		return fail(c->e, EINVAL, "cwd: %.200s is not a directory", s);
	set_string(&c->g->set.cwd, s);
	return 0;
}

static void
print_cwd(const struct settings *s, struct buf *out)
{
	print_word(s->cwd, out);
}

/* env K=V: K is set anew, or taken away by `env K=` with nothing behind it. */
static int
do_env(struct call_ctx *c)
{
	const char *kv = c->word[1], *eq = strchr(kv, '=');
	char *old = c->g->set.env, *line, *save;
	struct buf b = {0};
	size_t k;

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
	c->g->set.env = buf_take(&b);
	return 0;
}

static int
do_preload(struct call_ctx *c)
{
	struct buf b = {0};

	for (int i = 1; i <= c->n; i++)
		buf_addf(&b, "%s%s", i > 1 ? " " : "", c->word[i]);
	free(c->g->set.preload);
	c->g->set.preload = buf_take(&b);
	return 0;
}

static void
print_preload(const struct settings *s, struct buf *out)
{
	buf_adds(out, s->preload);
}

#define SECONDS_VERB(field)                                                                        \
	static int do_##field(struct call_ctx *c)                                                  \
	{                                                                                          \
		return seconds(c, &c->g->set.field);                                               \
	}                                                                                          \
	static void print_##field(const struct settings *s, struct buf *out)                       \
	{                                                                                          \
		print_seconds(s->field, out);                                                      \
	}

SECONDS_VERB(timeout)
SECONDS_VERB(grace)
SECONDS_VERB(killafter)
SECONDS_VERB(stall)

static int
do_idle(struct call_ctx *c)
{
	int r = seconds(c, &c->g->set.idle);

	if (r == 0)
		group_idle(c->g);
	return r;
}

static void
print_idle(const struct settings *s, struct buf *out)
{
	print_seconds(s->idle, out);
}

static int
do_autogc(struct call_ctx *c)
{
	if (strcmp(c->word[1], "on") != 0 && strcmp(c->word[1], "off") != 0)
		return fail(c->e, EINVAL, "autogc: want on or off, not '%.80s'", c->word[1]);
	c->g->set.autogc = strcmp(c->word[1], "on") == 0;
	return 0;
}

static void
print_autogc(const struct settings *s, struct buf *out)
{
	buf_adds(out, s->autogc ? "on" : "off");
}

static int
do_history(struct call_ctx *c)
{
	long long v;
	int r = number(c, c->word[1], 1, HISTORY_MAX, &v);

	if (r == 0) {
		c->g->set.history = (long)v;
		cell_prune(c->g);
	}
	return r;
}

static void
print_history(const struct settings *s, struct buf *out)
{
	buf_addf(out, "%ld", s->history);
}

static int
do_spool(struct call_ctx *c)
{
	return number(c, c->word[1], 0, 1LL << 60, &c->g->set.spool);
}

static void
print_spool(const struct settings *s, struct buf *out)
{
	buf_addf(out, "%lld", s->spool);
}

static int
do_start(struct call_ctx *c)
{
	c->res->waits = true;
	return group_start(c->g, c->e);
}

static int
do_stop(struct call_ctx *c)
{
	c->res->waits = true;
	return group_stop(c->g, c->e);
}

static int
do_restart(struct call_ctx *c)
{
	c->res->waits = true;
	return group_restart(c->g, c->e);
}

/* The ranks named, or all, into which[]; how many, or -errno. */
static int
named_ranks(struct call_ctx *c, int *which)
{
	long long v;

	for (int i = 0; c->n == 0 && i < c->g->size; i++)
		which[i] = i;
	for (int i = 1; i <= c->n; i++) {
		int r = number(c, c->word[i], 0, c->g->size - 1, &v);

		if (r < 0)
			return r;
		which[i - 1] = (int)v;
	}
	if (c->g->state != G_READY && c->g->state != G_STARTING)
		return fail(c->e, ESRCH, "%s: no engine runs (echo start > %s/ctl)", c->word[0],
		    c->g->name);
	return c->n ? c->n : c->g->size;
}

static int
do_interrupt(struct call_ctx *c)
{
	int which[MAX_RANKS], n = named_ranks(c, which);

	for (int i = 0; i < n; i++) {
		struct job *j = queue_running(&c->g->ranks[which[i]]);
		bool before = false;

		for (int k = 0; j && k < i; k++) {
			const struct job *other = queue_running(&c->g->ranks[which[k]]);

			before |= other && other->w == j->w;
		}
		if (j && !before)
			work_interrupt(j->w);
	}
	return MIN(n, 0);
}

static int
do_kill(struct call_ctx *c)
{
	int which[MAX_RANKS], n = named_ranks(c, which);

	for (int i = 0; i < n; i++)
		group_kill_rank(&c->g->ranks[which[i]]);
	return MIN(n, 0);
}

static void
reset_ended(struct work *w)
{
	if (w->err.no)
		group_fail(w->g, &w->err, "reset");
	work_free(w);
}

/* The process group anew, namespaces kept. */
static int
do_recover(struct call_ctx *c)
{
	int all[MAX_RANKS], n = named_ranks(c, all);

	if (n < 0)
		return n;
	c->res->waits = true;
	c->g->rebuild = true;
	group_rebuild(c->g);
	return 0;
}

static void
free_ended(struct work *w)
{
	if (w->err.no)
		group_fail(w->g, &w->err, "free");
	for (int i = 0; i < w->n; i++)
		if (*w->jobs[i].value)
			group_event(w->g, "freed rank=%d %s", w->jobs[i].k->number, w->jobs[i].value);
	work_free(w);
}

/* A work for all ranks that the close of ctl waits for. */
static int
submit_for_all(struct call_ctx *c, enum work_kind kind, void (*ended)(struct work *w))
{
	int all[MAX_RANKS], n = named_ranks(c, all);

	if (n < 0)
		return n;
	c->res->work = work_new(c->g, kind, all, n);
	c->res->work->ended = ended;
	c->res->waits = true;
	work_submit(c->res->work);
	return 0;
}

static int
do_reset(struct call_ctx *c)
{
	return submit_for_all(c, WORK_RESET, reset_ended);
}

static int
do_free(struct call_ctx *c)
{
	return submit_for_all(c, WORK_FREE, free_ended);
}

static int
do_cancel(struct call_ctx *c)
{
	struct err e = {0};

	fail(&e, ECANCELED, "dropped from the queue by cancel");
	for (int i = 0; i < c->g->size; i++)
		queue_drop_queued(&c->g->ranks[i], &e);
	return 0;
}

static int
do_later(struct call_ctx *c)
{
	return fail(c->e, EOPNOTSUPP, "%s: this ddipfs serves the local host only and has no such verb",
	    c->word[0]);
}

/* clang-format off */
static const struct verb verbs[] = {
    {"size", "N", "how many ranks", 1, 1, VERB_SETTING, do_size, print_size},
    {"gpus", "all|none|3,1|UUID", "which GPUs, in this order; one twice: for two ranks", 1, WORDS_MAX, VERB_SETTING, do_gpus, print_gpus},
    {"backend", "auto|nccl|gloo|none", "of the process group", 1, 1, VERB_SETTING, do_backend, print_backend},
    {"python", "PATH", "the interpreter", 1, 1, VERB_SETTING, do_python, print_python},
    {"cwd", "DIR", "where the ranks work", 1, 1, VERB_SETTING, do_cwd, print_cwd},
    {"env", "NAME=VALUE", "a variable for the ranks; nothing behind = takes it away", 1, 1, VERB_SETTING, do_env, NULL},
    {"preload", "[MODULE…]", "what the zygote imports ahead", 0, WORDS_MAX, VERB_SETTING, do_preload, print_preload},
    {"timeout", "S|off", "seconds that a cell may take", 1, 1, VERB_ANYTIME, do_timeout, print_timeout},
    {"grace", "S|off", "seconds between a rank's failure and freeing the others", 1, 1, VERB_ANYTIME, do_grace, print_grace},
    {"killafter", "S|off", "seconds until a rank that can't be freed is killed", 1, 1, VERB_ANYTIME, do_killafter, print_killafter},
    {"stall", "S|off", "seconds without movement until it is told", 1, 1, VERB_ANYTIME, do_stall, print_stall},
    {"idle", "S|off", "seconds until an unused group is stopped", 1, 1, VERB_ANYTIME, do_idle, print_idle},
    {"autogc", "on|off", "give memory back after each cell", 1, 1, VERB_SETTING, do_autogc, print_autogc},
    {"history", "N", "how many ended cells are kept", 1, 1, VERB_ANYTIME, do_history, print_history},
    {"spool", "BYTES", "how much output is kept for each stream; 0: all", 1, 1, VERB_ANYTIME, do_spool, print_spool},
    {"start", "", "start the ranks", 0, 0, 0, do_start, NULL},
    {"stop", "", "end them", 0, 0, 0, do_stop, NULL},
    {"restart", "", "stop and start", 0, 0, 0, do_restart, NULL},
    {"interrupt", "[RANK…]", "interrupt the cells that run there", 0, WORDS_MAX, 0, do_interrupt, NULL},
    {"kill", "[RANK…]", "SIGKILL; new ranks take their places", 0, WORDS_MAX, 0, do_kill, NULL},
    {"reset", "", "empty the namespaces; the processes stay", 0, 0, 0, do_reset, NULL},
    {"cancel", "", "drop what is queued", 0, 0, 0, do_cancel, NULL},
    {"recover", "", "make the process group anew; the namespaces stay", 0, 0, 0, do_recover, NULL},
    {"free", "", "collect garbage, empty the GPU cache; events tell what came free", 0, 0, 0, do_free, NULL},
    {"hosts", "", "other hosts", 0, WORDS_MAX, VERB_LATER, do_later, NULL},
    {"launcher", "", "how to reach them", 0, WORDS_MAX, VERB_LATER, do_later, NULL},
    {"external", "", "a rank that is another process", 0, WORDS_MAX, VERB_LATER, do_later, NULL},
};
/* clang-format on */

static const struct verb *
find_verb(const char *word, struct err *e)
{
	struct buf all = {0};

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		if (strcmp(verbs[i].name, word) == 0)
			return &verbs[i];
		if (!(verbs[i].flags & VERB_LATER))
			buf_addf(&all, " %s", verbs[i].name);
	}
	fail(e, EINVAL, "no verb '%.80s'; want one of%s", word, all.p);
	buf_free(&all);
	return NULL;
}

bool
ctl_is_setting(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return (verbs[i].flags & (VERB_SETTING | VERB_ANYTIME)) != 0;
	return false;
}

int
ctl_line(struct group *g, const char *line, struct ctl_result *res, struct err *e)
{
	char *copy = xstrdup(line), *words[WORDS_MAX];
	struct call_ctx c = {.g = g, .word = words, .res = res, .e = e};
	const struct verb *v;
	int n = ctl_words(copy, words, WORDS_MAX, e), r = MIN(n, 0);

	*res = (struct ctl_result){0};
	c.n = n - 1;
	if (n <= 0)
		goto out;
	v = find_verb(words[0], e);
	if (!v)
		r = -EINVAL;
	else if (c.n < v->min || c.n > v->max)
		r = fail(e, EINVAL, "usage: %s%s%s", v->name, *v->args ? " " : "", v->args);
	else if ((v->flags & VERB_SETTING) && (g->state == G_STARTING || g->state == G_READY))
		r = fail(e, EBUSY, "%s can be set while the group is new or stopped (echo stop > %s/ctl)",
		    v->name, g->name);
	else
		r = v->fn(&c);
out:
	free(copy);
	return r;
}

void
ctl_print(const struct group *g, struct buf *out)
{
	char *env = xstrdup(g->set.env), *save, *line;
	struct buf value = {0};

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		if (!verbs[i].print)
			continue;
		buf_clear(&value);
		verbs[i].print(&g->set, &value);
		if (value.n || strcmp(verbs[i].name, "size") != 0)
			buf_addf(out, "%s%s%s\n", verbs[i].name, value.n ? " " : "", value.n ? value.p : "");
	}
	for (line = strtok_r(env, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		buf_adds(out, "env ");
		print_word(line, out);
		buf_addc(out, '\n');
	}
	buf_free(&value);
	free(env);
}

void
ctl_help(struct buf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!(verbs[i].flags & VERB_LATER))
			buf_addf(out, "  %-9s %-20s %s\n", verbs[i].name, verbs[i].args, verbs[i].help);
}

static int
rank_signal_verb(struct rank *k, const char *name, struct err *e)
{
	for (int s = 1; s < NSIG; s++) {
		const char *abbrev = sigabbrev_np(s);

		if (abbrev && (strcmp(abbrev, name) == 0 ||
				  (strncmp(name, "SIG", 3) == 0 && strcmp(abbrev, name + 3) == 0))) {
			rank_signal(k, s);
			return 0;
		}
	}
	return fail(e, EINVAL, "signal: no signal '%.80s' (want e.g. USR1)", name);
}

int
ctl_rank_line(struct rank *k, const char *line, struct err *e)
{
	char *copy = xstrdup(line), *words[WORDS_MAX];
	int n = ctl_words(copy, words, WORDS_MAX, e), r = MIN(n, 0);
	struct job *j = queue_running(k);

	if (n <= 0)
		goto out;
	if (k->slot == NO_SLOT)
		r = fail(e, ESRCH, "rank %d has no engine (echo start > %s/ctl)", k->number, k->g->name);
	else if (n == 1 && strcmp(words[0], "interrupt") == 0) {
		if (j)
			work_interrupt(j->w);
	} else if (n == 1 && strcmp(words[0], "kill") == 0)
		group_kill_rank(k);
	else if (n == 2 && strcmp(words[0], "signal") == 0)
		r = rank_signal_verb(k, words[1], e);
	else
		r = fail(e, EINVAL, "want interrupt, kill or signal NAME, not '%.80s'", words[0]);
out:
	free(copy);
	return r;
}
