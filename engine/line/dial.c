/*
 * Starts the command that leads to the host, interprets its first lines, and starts it again when
 * the connection breaks.
 */
#include "line/dial.h"
#include "line/bring.h"
#include "line/direct.h"
#include "line/launch.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	START_MS = 60000, /* for the first connection to respond */
	AGAIN_MS = 20000, /* for each later one */
	BACKOFF_MIN_MS = 200,
	BACKOFF_MAX_MS = 5000,
	DECIMAL = 10
};

static struct dial dial;

static struct {
	struct bring bring;
	struct launch *launch;
	char *dir, *secret; /* of the stay; NULL: no stay yet */
	struct err why;	    /* the last failure */
	struct timer *patience, *again, *linger;
	uint64_t backoff_ms;
	bool fresh; /* the line has not been up on these streams */
} now;

static void connect_host(void *arg);

bool
dial_has_stay(void)
{
	return now.dir != NULL;
}

void
dial_end(void)
{
	launch_end(now.launch);
	now.launch = NULL;
}

void
dial_up(void)
{
	loop_timer_del(now.patience);
	loop_timer_del(now.linger);
	now.patience = now.linger = NULL;
	now.backoff_ms = BACKOFF_MIN_MS;
	if (!now.fresh)
		return; /* the line has moved */
	now.fresh = false;
	debug("agent", "host %s: connected", dial.host);
	if (dial.direct)
		direct_offer(dial.loop, dial.line, dial.direct, dial.moved);
}

static void
on_linger(void *arg)
{
	struct err e;

	fail(&e, EHOSTDOWN, "no connection for %g s: %.800s", (double)dial.linger_ms / 1000,
	    now.why.text);
	dial.failed(&e);
}

/* Reconnects after a delay. */
static void
retry(const struct err *why)
{
	loop_timer_del(now.patience);
	now.patience = NULL;
	dial_end();
	if (!now.dir)
		dial.failed(why);
	now.why = *why;
	if (!now.linger)
		now.linger = loop_timer(dial.loop, dial.linger_ms, on_linger, NULL);
	note("host %s: %s; connecting again", dial.host, why->text);
	now.again = loop_timer(dial.loop, now.backoff_ms, connect_host, NULL);
	now.backoff_ms = MIN(now.backoff_ms * 2, (uint64_t)BACKOFF_MAX_MS);
}

void
dial_down(const struct err *why)
{
	struct slice words = now.launch ? launch_words(now.launch) : (struct slice){0};
	struct err e = *why;

	direct_withdraw();
	if (!e.no)
		fail(&e, EHOSTDOWN, "the connection ended%s%.*s", words.n ? ": " : "", (int)words.n,
		    words.p);
	retry(&e);
}

/* ---- the command ---- */

static void
on_patience(void *arg)
{
	struct slice words = launch_words(now.launch);
	struct err e;

	now.patience = NULL;
	fail(&e, ETIMEDOUT, "%s did not connect within %d s%s%.*s", dial.command[0],
	    (now.dir ? AGAIN_MS : START_MS) / 1000, words.n ? ": " : "", (int)words.n, words.p);
	line_detach(dial.line);
	retry(&e);
}

static void
be_patient(void)
{
	loop_timer_del(now.patience);
	now.patience = loop_timer(dial.loop, now.dir ? AGAIN_MS : START_MS, on_patience, NULL);
}

static void
begin_line(void)
{
	struct slice early;
	int rfd, wfd;

	now.fresh = true;
	launch_take(now.launch, &rfd, &wfd, &early);
	line_attach(dial.line, rfd, wfd, early);
}

static void
on_want(const char *machine)
{
	struct err e = {0};

	if (bring_fits(machine, &e) < 0)
		dial.failed(&e);
	launch_write(now.launch, BRING_GO, strlen(BRING_GO));
	for (size_t i = 0; i < ARRAY_LEN(now.bring.files); i++)
		launch_write(now.launch, now.bring.files[i].p, now.bring.files[i].n);
}

static void
on_error(const char *text)
{
	struct err e;

	fail(&e, EHOSTDOWN, "%s", text);
	retry(&e);
}

/* VERSION DIR SECRET */
static void
on_stay(const char *text)
{
	char *dir;
	long version = strtol(text, &dir, DECIMAL);
	const char *secret = strrchr(text, ' ');
	struct err e;

	if (version != dial.version) {
		fail(&e, EPROTO,
		    "protocol mismatch (%ld, expected %d): %s is of another build, install this "
		    "one",
		    version, dial.version, dial.engine);
		dial.failed(&e);
	}
	if (secret <= dir || strlen(secret + 1) != SECRET_SIZE || now.dir)
		return;
	now.dir = xstrndup(dir + 1, (size_t)(secret - dir - 1));
	now.secret = xstrdup(secret + 1);
	begin_line();
}

static void
on_attach(const char *text)
{
	if (!now.secret)
		return;
	launch_write(now.launch, now.secret, SECRET_SIZE);
	begin_line();
}

static void
on_gone(const char *text)
{
	struct err e;

	fail(&e, EHOSTDOWN,
	    "what ran there has ended: it was without a connection for too long, or was killed");
	dial.failed(&e);
}

static const struct {
	const char *word;
	void (*fn)(const char *text);
} banners[] = {
    {BANNER_WANT, on_want},
    {BANNER_ERROR, on_error},
    {BANNER_FAR, on_stay},
    {BANNER_ATTACH, on_attach},
    {BANNER_GONE, on_gone},
};

static void
on_line(void *arg, const char *line)
{
	const char *text = strstr(line, BANNER);

	if (!text) {
		debug("agent", "host %s says: %s", dial.host, line);
		launch_noise(now.launch, line);
		return;
	}
	be_patient();
	text += strlen(BANNER);
	for (size_t i = 0; i < ARRAY_LEN(banners); i++) {
		size_t n = strlen(banners[i].word);

		if (strncmp(text, banners[i].word, n) != 0 || (text[n] && text[n] != ' '))
			continue;
		banners[i].fn(text[n] ? text + n + 1 : "");
		return;
	}
}

static void
on_launch_ended(void *arg, const struct err *why)
{
	now.launch = NULL;
	retry(why);
}

static void
connect_host(void *arg)
{
	static const struct launch_ops ops = {on_line, on_launch_ended};
	struct err e = {0};
	char *linger = xasprintf("%g", (double)dial.linger_ms / 1000);
	char *text = now.dir ? bring_text(&now.bring, "--attach", now.dir, &e)
			     : bring_text(&now.bring, "--linger", linger, &e);

	free(linger);
	now.again = NULL;
	if (!text)
		dial.failed(&e);
	now.launch = launch_start(dial.loop, dial.command, text, &ops, NULL, &e);
	free(text);
	if (now.launch)
		be_patient();
	else
		retry(&e);
}

void
dial_start(const struct dial *d)
{
	struct err e = {0};

	dial = *d;
	now.backoff_ms = BACKOFF_MIN_MS;
	if (bring_open(&now.bring, dial.engine, &e) < 0)
		dial.failed(&e);
	else
		connect_host(NULL);
}
