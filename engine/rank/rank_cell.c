/*
 * Which cell runs, and whether an interrupt is for it. An interrupt names its cell; it may come
 * before the main thread has begun that cell, or when it has just ended: it must hit that cell's
 * code or nothing.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	uint32_t running; /* 0: no user code */
	uint32_t ahead;	  /* an interrupt for a cell that has not begun */
	bool pending;	  /* an interrupt of ours was sent to the running cell and not raised yet */
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
rank_cell_enter(uint32_t number)
{
	bool now;

	rank_cell_lock();
	cell.running = number;
	cell.pending = now = cell.ahead == number && number != 0;
	cell.ahead = 0;
	rank_cell_unlock();
	if (now)
		raise(SIGINT);
}

bool
rank_cell_leave(void)
{
	bool missed;

	rank_cell_lock();
	missed = cell.pending;
	cell.running = 0;
	cell.pending = false;
	rank_cell_unlock();
	/* A SIGINT sent before that is delivered at the latest when this call returns: never to the
	 * next cell. */
	if (missed)
		syscall(SYS_getppid);
	return missed;
}

bool
rank_cell_wanted(void)
{
	bool wanted;

	rank_cell_lock();
	/* In user code any SIGINT counts: one that was not ours is the user's own. */
	wanted = cell.running != 0;
	if (wanted)
		cell.pending = false;
	rank_cell_unlock();
	return wanted;
}

void
rank_cell_interrupt(uint32_t number)
{
	rank_cell_lock();
	if (cell.running && (number == 0 || number == cell.running)) {
		cell.pending = true;
		/* As a terminal does: children of the cell get it too. We can't, all is blocked
		 * here. */
		kill(0, SIGINT);
	} else if (number != 0) {
		cell.ahead = number;
	}
	rank_cell_unlock();
}
