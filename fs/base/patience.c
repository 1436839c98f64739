/* Detects processes that have not answered in time although they had the CPU time to. */
#include "base/patience.h"
#include "base/daemon.h"
#include "util.h"
#include <stdlib.h>
#include <time.h>

/* On an otherwise idle machine 99 % of the answers take up to 7 ms. */
enum { SHARE_MS = 50, LONGEST_MS = 500 };

struct patience {
	struct timer *timer;
	pid_t pid;
	uint64_t began, used; /* ns: the start, and the CPU time of the process at that point */
	void (*over)(void *arg);
	void *arg;
};

/* CPU time of a process, in ns. UINT64_MAX if it no longer exists. 0 if it is on another machine,
 * where its CPU time is unknown. */
static uint64_t
used_by(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (!pid)
		return 0;
	if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
		return UINT64_MAX;
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void
look(void *arg)
{
	struct patience *p = arg;
	uint64_t waited = now_ns() - p->began, used = used_by(p->pid);

	if (used - p->used < SHARE_MS * NS_PER_MS && waited < LONGEST_MS * (uint64_t)NS_PER_MS) {
		p->timer = loop_timer(daemon_.loop, SHARE_MS, look, p);
		return;
	}
	p->over(p->arg);
	free(p);
}

struct patience *
patience_begin(pid_t pid, void (*over)(void *arg), void *arg)
{
	struct patience *p = xcalloc(1, sizeof(*p));

	*p = (struct patience){
	    .pid = pid, .began = now_ns(), .used = used_by(pid), .over = over, .arg = arg};
	p->timer = loop_timer(daemon_.loop, SHARE_MS, look, p);
	return p;
}

void
patience_end(struct patience *p)
{
	if (!p)
		return;
	loop_timer_del(p->timer);
	free(p);
}
