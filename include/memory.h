/* How much memory is left: of this machine, and in the memory cgroups of this process. */
#ifndef MEMORY_H
#define MEMORY_H
#include "err.h"
#include <stdint.h>

/* May this process put that many more bytes into memfds, for what is named? These have no limit of
 * their own: what does not fit would have the kernel kill some process, this one perhaps. Returns
 * 0, or -ENOSPC. Looks at memory at most once for 64 MiB, or a second, and not for the last 4 MiB
 * that were found. On the loop. */
int memory_take(uint64_t bytes, const char *what, struct err *e);

/* In all of these, root is where /proc and /sys are: "", except in tests. */

/* How many bytes this process may still take before the kernel must end a process: what the machine
 * has available, swap included, or may still promise (vm.overcommit_memory 2), but no more than
 * each memory cgroup from its own upwards allows (cgroups(7), version 1 or 2). Files' caches count
 * as free. UINT64_MAX: that is not known. */
uint64_t memory_available(const char *root);
/* How many processes of its own memory cgroup the kernel has killed for want of memory, since that
 * cgroup exists. 0 if there is none, or the kernel does not say. */
uint64_t memory_killed(const char *root);
/* The lowest limit of these cgroups, in bytes. UINT64_MAX: they have none. */
uint64_t memory_limit(const char *root);

#endif
