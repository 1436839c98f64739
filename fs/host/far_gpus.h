/* The GPUs of other hosts, as their agents report them on request. */
#ifndef FAR_GPUS_H
#define FAR_GPUS_H
#include "host/agent.h"
#include "host/gpus.h"

/* Is this agent's last report recent enough for a text generated now? Also true if it cannot be
 * asked. */
bool far_gpus_is_fresh(const struct agent *a);
/* Is a request to it pending? */
bool far_gpus_is_asked(const struct agent *a);
/* Requests a report, unless a request is pending. fn, which is set once, is called whenever a
 * request has been answered or has timed out. */
void far_gpus_ask(struct agent *a);
void far_gpus_on_answer(void (*fn)(void));
/* The GPUs that words name there, by its last report; *why: what is wrong with it (no 0:
 * nothing). */
void far_gpus_chosen(const struct agent *a, const char *words, struct gpus *out, struct err *why);
/* What one of these GPUs was doing at that time. */
const struct nvml_use *far_gpus_seen(const struct agent *a, const struct nvml_gpu *gpu);
void far_gpus_stop(void);

#endif
