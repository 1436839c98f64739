/*
 * The zygotes that groups use at an agent: one for each (python, cwd, preload, env), released when
 * no group uses it.
 */
#ifndef ZYGOTES_H
#define ZYGOTES_H
#include "host/agent.h"

/* What defines a zygote. */
struct zygote_spec {
	const char *python, *cwd;
	const char *preload; /* modules, separated by blanks */
	const char *env;     /* K=V lines */
};

/* Switches a group to a zygote of this kind, from the one it had (0: none). Starts one if there is
 * none yet. Returns its number. */
uint32_t zygotes_want(struct agent *a, uint32_t had, const struct zygote_spec *spec);
/* The group no longer uses it (0: none). An unused zygote stays for a while: settings may be
 * changed back. */
void zygotes_release(struct agent *a, uint32_t zygote);
/* The startup phases that a zygote reported, "" until then. *failed: why it could not start, or
 * NULL. */
const char *zygotes_phases(struct agent *a, uint32_t zygote, const char **failed);
/* Lines about the modules of `preload` that it could not import, "" if there are none or if it has
 * not tried yet. */
void zygotes_set_not_preloaded(struct agent *a, uint32_t zygote, struct slice lines);
const char *zygotes_not_preloaded(struct agent *a, uint32_t zygote);

#endif
