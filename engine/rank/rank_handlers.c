/*
 * A program's signal handlers, such as that of torch's data loaders for SIGCHLD. What they raise
 * ends a cell, but would leave the engine's own work half done: in the main thread they run while
 * user code runs or while the rank waits for a message. Signals that come at other times are noted,
 * and raised again later.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include "proc.h"
#include <signal.h>
#include <stdatomic.h>

static uint64_t program;	   /* the signals that it handles, by PROC_SIGNAL() */
static uint64_t held;		   /* those whose handlers are held */
static struct sigaction own[NSIG]; /* the handlers that are held */
static _Atomic uint64_t noted;	   /* the signals that have come meanwhile */

static void
note_signal(int signo)
{
	atomic_fetch_or(&noted, PROC_SIGNAL(signo));
}

void
rank_handlers_set(int signo, bool is_own)
{
	if (signo < 1 || signo >= NSIG)
		return;
	if (is_own)
		program |= PROC_SIGNAL(signo);
	else
		program &= ~PROC_SIGNAL(signo);
}

void
rank_handlers_hold(void)
{
	struct sigaction noting = {.sa_handler = note_signal};

	for (uint64_t left = program & ~held; left; left &= left - 1) {
		int signo = __builtin_ctzll(left) + 1;

		if (sigaction(signo, NULL, &own[signo]) < 0)
			continue;
		noting.sa_flags = own[signo].sa_flags & ~SA_SIGINFO;
		noting.sa_mask = own[signo].sa_mask;
		held |= PROC_SIGNAL(signo); /* another thread may fork from now on */
		sigaction(signo, &noting, NULL);
	}
}

static void
restore(void)
{
	for (uint64_t left = held; left; left &= left - 1) {
		int signo = __builtin_ctzll(left) + 1;
		struct sigaction now;

		/* an object's code may have set another meanwhile */
		if (sigaction(signo, NULL, &now) == 0 && now.sa_handler == note_signal)
			sigaction(signo, &own[signo], NULL);
	}
	held = 0;
}

void
rank_handlers_release(void)
{
	restore();
	for (uint64_t late = atomic_exchange(&noted, 0); late; late &= late - 1)
		raise(__builtin_ctzll(late) + 1);
}

void
rank_handlers_in_child(void)
{
	restore();
	program = 0;
	atomic_store(&noted, 0); /* they were sent to the parent */
}
