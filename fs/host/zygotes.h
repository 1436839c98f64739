/*
 * The zygotes that groups want from an agent: one for each (python, cwd, preload, env), given up
 * when no group wants it.
 */
#ifndef ZYGOTES_H
#define ZYGOTES_H
#include "host/agent.h"

/* What a zygote is made of. */
struct zygote_spec {
	const char *python, *cwd;
	const char *preload; /* modules, divided by blanks */
	const char *env;     /* K=V lines */
};

/* A group wants such a zygote, in the place of the one that it had (0: none): its number. It is
 * asked for if there is none yet. */
uint32_t zygotes_want(struct agent *a, uint32_t had, const struct zygote_spec *spec);
/* The group wants it no more (0: none). One that nobody wants stays for a while: settings may be
 * changed back. */
void zygotes_release(struct agent *a, uint32_t zygote);
/* The phases that a zygote told, "" before. *failed: why it could not start, NULL. */
const char *zygotes_phases(struct agent *a, uint32_t zygote, const char **failed);

#endif
