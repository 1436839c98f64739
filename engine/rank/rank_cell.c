/*
 * Tracks which cell runs, and decides whether an interrupt is for it. An interrupt names its cell.
 * It may arrive before the main thread has begun that cell, or when the cell has just ended. It
 * must hit that cell's code or nothing.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include "proc.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* In milliseconds. HANDLER_MS: how long the engine's own SIGINT handler may take before a probe
 * checks whether the program has another. BLOCKED_MS: between probes while SIGINT is blocked.
 * AWAIT_MS: how long a signal that is ignored is sent again to children. YOUNG_MS: the age of a
 * child that may have lost it: dash drops a SIGINT between its vfork(2) and its execve(2). */
enum { HANDLER_MS = 20, BLOCKED_MS = 200, AWAIT_MS = 2000, YOUNG_MS = 100 };

static struct {
	pthread_mutex_t lock;
	uint32_t running; /* 0: no user code */
	uint32_t ahead;	  /* the cell of an interrupt that came before the cell began; 0: none */
	uint32_t hung_up; /* the last cell whose input nobody will answer any more; 0: none */
	bool pending;	  /* we sent the running cell an interrupt that is not raised yet */
	bool asked;	  /* not yet reported whether the main thread noticed it */
	bool ours;	  /* the engine's handler was set when it was sent */
	enum interrupt_why why; /* of the interrupt that is pending or ahead */
	uint64_t sent;	   /* when the cell's children were signalled, as proc_started() says it */
	struct loop *loop; /* of the I/O thread, which runs the timer */
	struct timer *timer;
} cell = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
rank_cell_lock(void)
{
	pthread_mutex_lock(&cell.lock);
}

void
rank_cell_unlock(void)
{
	pthread_mutex_unlock(&cell.lock);
}

void
rank_cell_init(struct loop *l)
{
	cell.loop = l;
}

static void
tell(uint32_t number, bool raised)
{
	struct buf b = {0};
	struct msg m;

	wire_pack(&b, Nsignalled, 0, 0, 0, number, (uint32_t)raised);
	if (wire_frame(b.p, b.n, &m, NULL) > 0)
		rank_link_send(&m);
	buf_free(&b);
}

static bool
is_asked(void)
{
	bool asked;

	rank_cell_lock();
	asked = cell.asked;
	rank_cell_unlock();
	return asked;
}

void
rank_cell_enter(uint32_t number)
{
	bool now;

	rank_cell_lock();
	cell.running = number;
	cell.pending = cell.asked = now = cell.ahead == number && number != 0;
	cell.ahead = 0;
	if (!now)
		cell.why = WHY_USER;
	if (number && number == cell.hung_up)
		rank_stdin_hang_up(true);
	rank_cell_unlock();
	if (now)
		raise(SIGINT);
}

int
rank_cell_leave(void)
{
	int missed;

	rank_cell_lock();
	missed = cell.pending ? 1 + (int)cell.why : 0;
	cell.running = 0;
	cell.pending = cell.asked = false;
	cell.why = WHY_USER;
	rank_stdin_hang_up(false);
	rank_cell_unlock();
	/* A SIGINT sent before this point is delivered no later than the return of this system
	 * call, so it never hits the next cell. */
	if (missed)
		syscall(SYS_getppid);
	return missed;
}

/* Reports the outcome of an interrupt that was sent to the running cell: KeyboardInterrupt is being
 * raised, or a handler of the program's own has the signal. Returns the number of the cell, or 0 if
 * none runs. */
static uint32_t
settle(bool raised)
{
	uint32_t number;
	bool noted;

	rank_cell_lock();
	number = cell.running;
	noted = number && (raised ? cell.pending : cell.asked);
	cell.asked = false;
	if (raised)
		cell.pending = false;
	rank_cell_unlock();
	if (noted)
		tell(number, raised);
	return number;
}

int
rank_cell_wanted(void)
{
	enum interrupt_why why;

	/* In user code any SIGINT counts: one that we did not send comes from the user. */
	if (!settle(true))
		return 0;
	rank_cell_lock();
	why = cell.why;
	cell.why = WHY_USER;
	rank_cell_unlock();
	return 1 + (int)why;
}

/* In the ticks of proc_started(). */
static uint64_t
ticks_of(uint64_t ms)
{
	return ms * (uint64_t)sysconf(_SC_CLK_TCK) / MS_PER_S;
}

static uint64_t
ticks_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return ticks_of(
	    (uint64_t)t.tv_sec * MS_PER_S + (uint64_t)t.tv_nsec / (NS_PER_S / MS_PER_S));
}

/* Does C code ignore SIGINT now, as system(3) does in any thread? */
static bool
is_ignored(void)
{
	struct proc_status s;

	return proc_status(getpid(), &s) == 0 && s.ignored & PROC_SIGNAL(SIGINT);
}

void
rank_cell_probed(void)
{
	bool ignored = is_ignored(), lost;

	rank_cell_lock();
	if (ignored && cell.asked && cell.ours && ticks_now() - cell.sent < ticks_of(AWAIT_MS)) {
		rank_cell_unlock();
		return; /* await_child() may end what ignores it */
	}
	lost = cell.running && cell.asked && cell.pending && cell.ours;
	cell.ours = false;
	if (lost)
		syscall(SYS_tgkill, getpid(), getpid(), SIGINT);
	rank_cell_unlock();
	if (lost)
		rank_cell_signal_main(); /* Python runs the handler of SIGINT before this one */
	else
		settle(false);
}

void
rank_cell_signal_main(void)
{
	struct proc_status s;

	/* user code may have removed the handler; the signal would then kill the process */
	if (proc_status(getpid(), &s) == 0 && s.caught & PROC_SIGNAL(rank_cell_probe_signal()))
		syscall(SYS_tgkill, getpid(), getpid(), rank_cell_probe_signal());
}

/* Makes Python run one of our handlers, if it runs handlers at all: those of earlier signals run
 * first. Returns true if it is too early to do so. */
static bool
ask_python(void)
{
	struct proc_status s;

	if (!is_asked() || proc_status(getpid(), &s) < 0)
		return false;
	/* the program blocks SIGINT: it is not delivered yet, but may be later */
	if (s.pending & PROC_SIGNAL(SIGINT))
		return true;
	rank_cell_signal_main();
	return false;
}

static void
note_late(pid_t child, void *arg)
{
	bool *late = arg;

	*late |= proc_started(child) + ticks_of(YOUNG_MS) >= cell.sent;
}

/* Has one of our threads a child that was started since, or so soon before, the children were
 * signalled that it may have no SIGINT? */
static bool
has_late_child(void)
{
	bool late = false;

	proc_children(getpid(), note_late, &late);
	return late;
}

/* system(3) ignores SIGINT while it waits, and leaves it to its child, which may have none yet:
 * then the children are signalled again, until it has ended. Returns false if SIGINT is not
 * ignored, or the main thread has noticed it. */
static bool
await_child(void)
{
	bool ours;

	rank_cell_lock();
	ours = cell.asked && cell.ours;
	rank_cell_unlock();
	if (!ours || !is_ignored())
		return false;
	if (has_late_child())
		kill(0, SIGINT);
	return true;
}

static void
probe(void *arg)
{
	bool again = ask_python() || await_child();

	cell.timer = again ? loop_timer(cell.loop, BLOCKED_MS, probe, NULL) : NULL;
}

bool
rank_cell_probe(void)
{
	ask_python();
	return is_asked();
}

int
rank_cell_probe_signal(void)
{
	return SIGRTMAX - 4;
}

bool
rank_cell_repeat(uint32_t number)
{
	bool runs;

	rank_cell_lock();
	runs = number != 0 && cell.running == number;
	if (runs) {
		cell.pending = cell.asked = true;
		cell.ours = rank_sigint_is_ours();
		syscall(SYS_tgkill, getpid(), getpid(), SIGINT); /* the main thread alone */
	}
	rank_cell_unlock();
	return runs;
}

void
rank_cell_interrupt(uint32_t number, enum interrupt_why why)
{
	bool sent = false;

	rank_cell_lock();
	if (why != WHY_USER && why != WHY_PREEMPTED)
		cell.hung_up = number;
	if (cell.running && number == cell.running) {
		cell.pending = cell.asked = sent = true;
		cell.ours = rank_sigint_is_ours();
		cell.why = why;
		/* Like a terminal, kill(0) also signals the cell's children. This thread is not
		 * hit: it blocks all signals. */
		if (why == WHY_PREEMPTED) {
			cell.sent = UINT64_MAX;
			syscall(SYS_tgkill, getpid(), getpid(), SIGINT);
		} else {
			cell.sent = ticks_now();
			kill(0, SIGINT);
		}
		/* behind the signal: what it ends is ended by it */
		if (number == cell.hung_up)
			rank_stdin_hang_up(true);
	} else {
		cell.ahead = number;
		cell.why = why;
	}
	rank_cell_unlock();
	if (sent && !cell.timer)
		cell.timer = loop_timer(cell.loop, HANDLER_MS, probe, NULL);
}
