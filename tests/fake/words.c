/* clang-format off */
/*
 * What a fake rank does with a cell, line by line.
 *
 *   @K WORDS       on rank K only
 *   value TEXT     the cell's result
 *   raise TEXT, syntax, exit N
 *   print TEXT, err TEXT, flood N   (N bytes)
 *   sleep S        ended by Nintr: KeyboardInterrupt (Nsignalled raised=1)
 *   handle S       waits for Nintr; `except KeyboardInterrupt` then runs for S seconds, and it goes on
 *   own S          S seconds; Nintr goes to a handler of its own (Nsignalled raised=0)
 *   stuck          ended by Nabort only
 *   hard           ended by SIGKILL only
 *   reduce         waits for all ranks of its group and generation
 *   input          waits for Nstdin
 *   set NAME VALUE, del NAME
 *   die N          exits with status N
 *   signal N       dies of this signal
 *   use PATH TEXT  writes to a file (e.g. of the mount) in the rank's process; raises its errno
 *   refuse T N M   refuses the next M messages of type T (e.g. Tget), with N, N + 1, …
 *   agent N        the agent exits with status N
 *   nonsense       sends a malformed frame
 */
/* clang-format on */
#include "fake.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void go_on(struct engine *e);

static void
over(struct engine *e, int outcome, const char *error)
{
	char *trace =
	    outcome == OUT_OK
		? NULL
		: xasprintf("Traceback (most recent call last):\n  File \"<cell %u>\"\n%s\n",
		      e->run.cell, error);

	loop_timer_del(e->run.timer);
	e->run.timer = NULL;
	e->run.waits = WAIT_NONE;
	e->run.running = false;
	engine_ran(e, outcome, error, trace ? trace : "");
	free(trace);
}

static void
word_raise(struct engine *e, char *rest)
{
	over(e, OUT_RAISED, rest);
}

static void
word_syntax(struct engine *e, char *rest)
{
	over(e, OUT_SYNTAX, "SyntaxError: it says so");
}

static void
word_exit(struct engine *e, char *rest)
{
	over(e, OUT_EXIT, rest);
}

static void
time_is_over(void *arg)
{
	struct engine *e = arg;

	e->run.timer = NULL;
	e->run.waits = WAIT_NONE;
	go_on(e);
}

static void
word_sleep(struct engine *e, char *rest)
{
	e->run.waits = WAIT_TIME;
	e->run.timer = loop_timer(loop, (uint64_t)(strtod(rest, NULL) * 1000), time_is_over, e);
}

static void
word_handle(struct engine *e, char *rest)
{
	e->run.waits = WAIT_INTERRUPT;
	e->run.handler_s = strtod(rest, NULL);
}

static void
word_own(struct engine *e, char *rest)
{
	word_sleep(e, rest);
	e->run.waits = WAIT_OWN;
}

static void
word_stuck(struct engine *e, char *rest)
{
	e->run.waits = WAIT_ABORT;
}

static void
word_hard(struct engine *e, char *rest)
{
	e->run.waits = WAIT_KILL;
}

static void
word_input(struct engine *e, char *rest)
{
	e->run.waits = WAIT_INPUT;
	engine_say(e, Ninput, 0, 0, 1u);
}

static bool
meets(const struct engine *a, const struct engine *b)
{
	return b->kind == ENGINE_RANK && !b->child.dead && strcmp(a->dir, b->dir) == 0 &&
	       a->generation == b->generation && b->run.waits == WAIT_REDUCE;
}

/* Computes the sum over the ranks once all have come; as in torch, whatever cells they run. */
static void
word_reduce(struct engine *e, char *rest)
{
	struct engine *x, *next;
	uint32_t there = 0;
	char sum[32];

	e->run.waits = WAIT_REDUCE;
	TAILQ_FOREACH (x, &engines, link)
		there += meets(e, x);
	if (there < e->size)
		return;
	snprintf(sum, sizeof(sum), "%u", e->size * (e->size - 1) / 2);
	for (x = TAILQ_FIRST(&engines); x; x = next) {
		next = TAILQ_NEXT(x, link);
		if (x != e && !meets(e, x))
			continue;
		free(x->run.value);
		x->run.value = xstrdup(sum);
		x->run.waits = WAIT_NONE;
		x->run.collectives++;
		if (x != e)
			go_on(x);
	}
}

static void
word_print(struct engine *e, char *rest)
{
	spool_writer_add(&e->spool, SPOOL_STDOUT, rest, strlen(rest));
	spool_writer_add(&e->spool, SPOOL_STDOUT, "\n", 1);
}

static void
word_err(struct engine *e, char *rest)
{
	spool_writer_add(&e->spool, SPOOL_STDERR, rest, strlen(rest));
	spool_writer_add(&e->spool, SPOOL_STDERR, "\n", 1);
}

static void
word_flood(struct engine *e, char *rest)
{
	char line[64];

	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\n';
	for (long n = strtol(rest, NULL, 10); n > 0; n -= (long)sizeof(line))
		spool_writer_add(&e->spool, SPOOL_STDOUT, line, MIN((size_t)n, sizeof(line)));
	if (e->spool.dropped) {
		engine_say(e, Ndropped, 0, 0, e->spool.dropped, (unsigned)DROPPED_NO_ROOM);
		e->spool.dropped = 0;
	}
}

static void
word_value(struct engine *e, char *rest)
{
	free(e->run.value);
	e->run.value = xstrdup(rest);
}

static void
word_set(struct engine *e, char *rest)
{
	char *name = strsep(&rest, " ");

	engine_set(e, name, rest ? rest : "");
}

static void
word_del(struct engine *e, char *rest)
{
	if (!engine_unset(e, rest))
		over(e, OUT_RAISED, "NameError");
}

static void
word_die(struct engine *e, char *rest)
{
	char *line = xasprintf("exit %s\n", rest);

	e->run.waits = WAIT_KILL;
	child_order(e, line);
	free(line);
}

static void
word_signal(struct engine *e, char *rest)
{
	e->run.waits = WAIT_KILL;
	kill(e->child.pid, atoi(rest));
}

static void
word_use(struct engine *e, char *rest)
{
	char *line = xasprintf("use %s\n", rest);

	e->run.waits = WAIT_CHILD;
	child_order(e, line);
	free(line);
}

static void
word_refuse(struct engine *e, char *rest)
{
	e->refuses.type = request_type(strsep(&rest, " "));
	e->refuses.number = rest ? (uint32_t)strtol(rest, &rest, 10) : 0;
	e->refuses.left = rest ? strtoul(rest, NULL, 10) : 0;
}

static void
word_agent(struct engine *e, char *rest)
{
	exit(atoi(rest));
}

static void
word_nonsense(struct engine *e, char *rest)
{
	e->run.waits = WAIT_KILL;
	engine_nonsense();
}

static const struct {
	const char *name;
	void (*fn)(struct engine *e, char *rest);
} words[] = {
    {"raise", word_raise},
    {"syntax", word_syntax},
    {"exit", word_exit},
    {"sleep", word_sleep},
    {"handle", word_handle},
    {"own", word_own},
    {"stuck", word_stuck},
    {"hard", word_hard},
    {"input", word_input},
    {"reduce", word_reduce},
    {"print", word_print},
    {"err", word_err},
    {"flood", word_flood},
    {"value", word_value},
    {"set", word_set},
    {"del", word_del},
    {"die", word_die},
    {"signal", word_signal},
    {"use", word_use},
    {"refuse", word_refuse},
    {"agent", word_agent},
    {"nonsense", word_nonsense},
};

static void
one(struct engine *e, char *line)
{
	char *word;

	if (*line == '@') {
		if (strtoul(line + 1, &line, 10) != e->rank)
			return;
		line += strspn(line, " ");
	}
	word = strsep(&line, " ");
	if (!*word || strcmp(word, "ok") == 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (strcmp(words[i].name, word) == 0) {
			words[i].fn(e, line ? line : (char[]){""});
			return;
		}
	over(e, OUT_RAISED, "NameError: no such word");
}

static void
go_on(struct engine *e)
{
	while (e->run.running && e->run.waits == WAIT_NONE) {
		char *line = strsep(&e->run.at, "\n");

		if (!line)
			over(e, OUT_OK, "");
		else
			one(e, line);
	}
}

void
words_begin(struct engine *e, uint64_t tag, uint32_t cell, struct slice source)
{
	free(e->run.source);
	e->run.at = e->run.source = slice_dup(source);
	free(e->run.value);
	e->run.value = xstrdup("");
	e->run.tag = tag;
	e->run.cell = cell;
	e->run.collectives = 0;
	e->run.running = true;
	e->run.waits = WAIT_NONE;
	go_on(e);
}

void
words_interrupt(struct engine *e, uint32_t cell)
{
	if (!e->run.running || (cell && cell != e->run.cell))
		return;
	if (e->run.waits == WAIT_INPUT)
		engine_say(e, Ninput, 0, 0, 0u);
	if (e->run.waits == WAIT_OWN)
		engine_say(e, Nsignalled, 0, 0, e->run.cell, 0u);
	if (e->run.waits != WAIT_TIME && e->run.waits != WAIT_INPUT &&
	    e->run.waits != WAIT_INTERRUPT && e->run.waits != WAIT_HANDLER)
		return;
	engine_say(e, Nsignalled, 0, 0, e->run.cell, 1u);
	if (e->run.waits == WAIT_INTERRUPT) {
		e->run.waits = WAIT_HANDLER;
		e->run.timer =
		    loop_timer(loop, (uint64_t)(e->run.handler_s * 1000), time_is_over, e);
		return;
	}
	over(e, OUT_INTERRUPTED, "KeyboardInterrupt");
}

void
words_abort(struct engine *e)
{
	if (e->run.running && (e->run.waits == WAIT_ABORT || e->run.waits == WAIT_REDUCE))
		over(e, OUT_RAISED, "RuntimeError: the collective was ended");
}

void
words_input(struct engine *e, struct slice data)
{
	engine_say(e, Ntaken, 0, 0, (uint32_t)data.n);
	if (!e->run.running || e->run.waits != WAIT_INPUT)
		return;
	engine_say(e, Ninput, 0, 0, 0u);
	free(e->run.value);
	e->run.value = slice_dup(data);
	e->run.waits = WAIT_NONE;
	go_on(e);
}

void
words_answer(struct engine *e, const char *line)
{
	if (!e->run.running || e->run.waits != WAIT_CHILD)
		return;
	e->run.waits = WAIT_NONE;
	if (strcmp(line, "0") != 0)
		over(e, OUT_RAISED, line);
	else
		go_on(e);
}

void
words_end(struct engine *e)
{
	loop_timer_del(e->run.timer);
	e->run.timer = NULL;
	e->run.running = false;
	e->run.waits = WAIT_NONE;
}
