/*
 * The GPUs of hosts, as their agents report them when asked. Knows no groups: `words` are those of
 * the verb `gpus`. What this machine has is known from the start: the daemon waits for that before
 * it serves anybody, because the number of ranks may depend on it.
 */
#ifndef HOST_GPUS_H
#define HOST_GPUS_H
#include "host/agent.h"
#include "host/gpus.h"

/* Is what this agent last said recent enough for a text generated now? Also true if it cannot be
 * asked, or if its answer is overdue. */
bool host_gpus_is_fresh(const struct agent *a);
/* Is a question to it pending that is not overdue? */
bool host_gpus_is_asked(const struct agent *a);
/* Has its NVML answered, even if only that it does not work? */
bool host_gpus_is_known(const struct agent *a);
/* Asks which GPUs it has, and, if `use`, what they do, unless a question is pending. fn, which is
 * set once, is called whenever a question has been answered or is overdue. */
void host_gpus_ask(struct agent *a, bool use);
void host_gpus_on_answer(void (*fn)(void));
/* The GPUs that words name there; *why: what is wrong with them (no 0: nothing). */
void host_gpus_chosen(const struct agent *a, const char *words, struct gpus *out, struct err *why);
/* Begins to ask which GPUs this machine has; starts its agent. */
void host_gpus_here_begin(void);
/* Waits for the answer, for at most about 10 s, and only the first time. */
void host_gpus_here_wait(void);
/* The GPUs of this machine that words name. Waits as above. Returns 0, or -errno with *e set. */
int host_gpus_here(const char *words, struct gpus *out, struct err *e);
/* What one of these GPUs was doing at that time; NULL: not known. */
const struct nvml_use *host_gpus_seen(const struct agent *a, const struct nvml_gpu *gpu);
/* Why that is not what it does now; NULL: it is. */
const char *host_gpus_is_old(const struct agent *a);
void host_gpus_stop(void);

#endif
