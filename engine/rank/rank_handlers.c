/*
 * A program's signal handlers, such as that of torch's data loaders for SIGCHLD. What they raise
 * ends a cell, but would leave the engine's own work half done: in the main thread they run while
 * user code runs or while the rank waits for a message. Signals that come at other times are noted,
 * and sent again later. Handlers that are not Python's, as those of faulthandler, are left alone.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include "proc.h"
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static void (*python)(int);	   /* Python's handler, of all signals that a program handles */
static uint64_t known;		   /* the signals that had one, by PROC_SIGNAL() */
static struct sigaction own[NSIG]; /* of those that are held */
static _Atomic uint64_t noted;	   /* the signals that have come meanwhile */

static void
note_signal(int signo)
{
	atomic_fetch_or(&noted, PROC_SIGNAL(signo));
}

void
rank_handlers_set(int signo, bool is_own)
{
	struct sigaction ours;

	if (signo < 1 || signo >= NSIG)
		return;
	if (!python && sigaction(SIGINT, NULL, &ours) == 0)
		python = ours.sa_handler; /* the engine has set one in Python, too */
	if (is_own)
		known |= PROC_SIGNAL(signo);
	else
		atomic_fetch_and(&noted, ~PROC_SIGNAL(signo));
}

bool
rank_handlers_has(int signo)
{
	struct sigaction now;

	return sigaction(signo, NULL, &now) == 0 && now.sa_handler != SIG_DFL;
}

void
rank_handlers_hold(void)
{
	struct sigaction now, noting = {.sa_handler = note_signal};

	for (uint64_t left = known; left; left &= left - 1) {
		int signo = __builtin_ctzll(left) + 1;

		if (sigaction(signo, NULL, &now) < 0 || now.sa_handler != python)
			continue;
		own[signo] = now; /* before it is held: another thread may fork */
		noting.sa_flags = now.sa_flags & ~SA_SIGINFO;
		noting.sa_mask = now.sa_mask;
		sigaction(signo, &noting, NULL);
	}
}

/* By what is set now: system(3) in another thread sets again what it found. */
static void
restore(void)
{
	for (uint64_t left = known; left; left &= left - 1) {
		int signo = __builtin_ctzll(left) + 1;
		struct sigaction now;

		if (sigaction(signo, NULL, &now) == 0 && now.sa_handler == note_signal)
			sigaction(signo, &own[signo], NULL);
	}
}

void
rank_handlers_release(void)
{
	restore();
	for (uint64_t late; (late = atomic_exchange(&noted, 0));)
		for (; late; late &= late - 1) /* to the process: the main thread may block it */
			kill(getpid(), __builtin_ctzll(late) + 1);
}

void
rank_handlers_in_child(void)
{
	restore();
	known = 0;
	atomic_store(&noted, 0); /* they were sent to the parent */
}
