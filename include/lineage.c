/* Numbers that all descendants of a process have, kept in a resource limit; see lineage.h. */
#define _GNU_SOURCE
#include "lineage.h"
#include "proc.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#define BRANCH_BITS 20
#define BRANCHES (UINT64_C(1) << BRANCH_BITS)
#define LOWEST (UINT64_C(1) << 56)  /* as a limit: 2,283 years */
#define HIGHEST (UINT64_C(1) << 62) /* and not the infinity of any C library or language */

enum { PASSES = 16 };

static bool
is_number(uint64_t limit)
{
	return limit >= LOWEST && limit < HIGHEST;
}

static uint64_t
give(pid_t pid, uint64_t number)
{
	struct rlimit both = {(rlim_t)number, (rlim_t)number};

	return prlimit(pid, RLIMIT_RTTIME, &both, NULL) < 0 ? 0 : number;
}

uint64_t
lineage_begin(pid_t pid)
{
	struct rlimit now;
	uint64_t below = HIGHEST, number;

	if (prlimit(pid, RLIMIT_RTTIME, NULL, &now) < 0 || now.rlim_cur != now.rlim_max ||
	    getrandom(&number, sizeof(number), 0) != sizeof(number))
		return 0;
	below = MIN(below, (uint64_t)now.rlim_max);
	if (below / 2 < LOWEST + BRANCHES)
		return 0;
	number = below / 2 + number % (below / 2 - BRANCHES);
	return give(pid, number | (BRANCHES - 1));
}

uint64_t
lineage_branch(uint64_t lineage, uint32_t serial, pid_t pid)
{
	return lineage ? give(pid, lineage - 1 - serial % (BRANCHES - 1)) : 0;
}

/* Everybody may read a process's limits in /proc, but that takes longer. */
static uint64_t
read_limits(pid_t pid)
{
	static const char key[] = "Max realtime timeout";
	struct buf text = {0};
	char path[32], *line;
	uint64_t number = 0;

	snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
	if (read_file(path, &text) == 0 && (line = strstr(text.p, key)))
		sscanf(line + sizeof(key) - 1, "%*s %" SCNu64, &number);
	buf_free(&text);
	return number;
}

uint64_t
lineage_of(pid_t pid)
{
	struct rlimit now = {0};
	uint64_t number;

	if (prlimit(pid, RLIMIT_RTTIME, NULL, &now) == 0)
		number = (uint64_t)now.rlim_max;
	else
		number = errno == EPERM ? read_limits(pid) : 0;
	return is_number(number) ? number : 0;
}

/* Returns the number of processes that did not have the signal yet. */
static unsigned
kill_all(uint64_t lineage)
{
	DIR *proc = opendir("/proc");
	unsigned alive = 0;

	for (struct dirent *d; proc && (d = readdir(proc));) {
		pid_t pid = isdigit((unsigned char)d->d_name[0]) ? atoi(d->d_name) : 0;
		struct rlimit now;

		if (!pid || pid == getpid() || prlimit(pid, RLIMIT_RTTIME, NULL, &now) < 0 ||
		    ((uint64_t)now.rlim_max ^ lineage) >> BRANCH_BITS)
			continue;
		alive += !proc_is_ending(pid);
		kill(pid, SIGKILL);
	}
	if (proc)
		closedir(proc);
	return alive;
}

void
lineage_end(uint64_t lineage)
{
	/* Again, for those that were forked while we looked. */
	for (int i = 0; lineage && i < PASSES; i++)
		if (kill_all(lineage) == 0)
			return;
}
