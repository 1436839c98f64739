/*
 * Descent that no process can shed: a number that fork(2), execve(2), setsid(2) and a change of the
 * parent leave as it is.
 *
 * The kernel keeps it as the hard limit RLIMIT_RTTIME, in microseconds, which processes without
 * real-time scheduling do not use. The numbers are so large (72,000 years) that it limits nobody
 * else either. It can be lowered only, so who descends from two lineages has the younger number.
 */
#ifndef LINEAGE_H
#define LINEAGE_H
#include <stdint.h>
#include <sys/types.h>

/* Begins a lineage with this process, and what it starts from now on. Returns its number; 0 if the
 * limit cannot be set: it is low already, or this kernel has none. */
uint64_t lineage_begin(pid_t pid);
/* Gives a process of the lineage, and what it starts from now on, a number of its own. serial tells
 * it from 2^20 others. Returns the number, or 0 as above. */
uint64_t lineage_branch(uint64_t lineage, uint32_t serial, pid_t pid);
/* The number of a process of any user; 0: it has none, or there is no such process. */
uint64_t lineage_of(pid_t pid);
/* Sends SIGKILL to all processes of the lineage and of its branches, except this one. */
void lineage_end(uint64_t lineage);

#endif
