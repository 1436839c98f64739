/*
 * Who waits in read(2) for standard input: a thread of this process or of one that descends from
 * it. Nothing in the kernel tells of that, so /proc/PID/task/TID/syscall is looked at (proc(5)).
 */
#define _GNU_SOURCE
#include "lineage.h"
#include "rank/rank.h"
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Does this descriptor of the process refer to the file of this name, as in /proc/PID/fd? */
static bool
is_file(pid_t pid, long fd, const char *name)
{
	char path[64], link[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%ld", (int)pid, fd);
	n = readlink(path, link, sizeof(link) - 1);
	link[MAX(n, 0)] = '\0';
	return n > 0 && strcmp(link, name) == 0;
}

static bool
thread_reads(pid_t pid, const char *tid, const char *name)
{
	char path[300];
	struct buf text = {0};
	long call = -1, fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/syscall", (int)pid, tid);
	if (read_file(path, &text) == 0) /* "running" if it is in none */
		sscanf(text.p, "%ld %lx", &call, (unsigned long *)&fd);
	buf_free(&text);
	return (call == SYS_read || call == SYS_readv) && is_file(pid, fd, name);
}

static bool
process_reads(pid_t pid, const char *name)
{
	char path[64];
	bool reads = false;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	for (struct dirent *d; tasks && !reads && (d = readdir(tasks));)
		reads = d->d_name[0] != '.' && thread_reads(pid, d->d_name, name);
	if (tasks)
		closedir(tasks);
	return reads;
}

static bool
has_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

bool
rank_reader_waits(const char *name)
{
	uint64_t lineage = lineage_of(getpid());
	bool reads = process_reads(getpid(), name);
	DIR *proc = reads || !has_children() ? NULL : opendir("/proc");

	for (struct dirent *d; proc && !reads && (d = readdir(proc));) {
		pid_t pid = isdigit((unsigned char)d->d_name[0]) ? atoi(d->d_name) : 0;

		if (pid && pid != getpid() &&
		    (lineage ? lineage_of(pid) == lineage : getsid(pid) == getpid()))
			reads = process_reads(pid, name);
	}
	if (proc)
		closedir(proc);
	return reads;
}
