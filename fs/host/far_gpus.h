/* The GPUs of other hosts, as their agents say when they are asked. */
#ifndef FAR_GPUS_H
#define FAR_GPUS_H
#include "host/agent.h"
#include "host/gpus.h"

/* Is what this agent said good enough for a text that is made now? Also if it can't be asked. */
bool far_gpus_is_fresh(const struct agent *a);
/* Is its answer still to come? */
bool far_gpus_is_asked(const struct agent *a);
/* Asks it, unless it is asked already. fn, which is set once, is called when one has answered. */
void far_gpus_ask(struct agent *a);
void far_gpus_on_answer(void (*fn)(void));
/* The GPUs there that these words name, as it said last; *why: what is wrong with that (no 0:
 * nothing). */
void far_gpus_chosen(const struct agent *a, const char *words, struct gpus *out, struct err *why);
/* What one of them did then. */
const struct nvml_use *far_gpus_seen(const struct agent *a, const struct nvml_gpu *gpu);
void far_gpus_stop(void);

#endif
