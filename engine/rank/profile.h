/*
 * How long the last steps of a cell took, and how much of that its main thread waited for other
 * ranks, or was on a CPU. One thread writes a profile, any other may read it meanwhile, or reset it
 * while that one is idle.
 */
#ifndef PROFILE_H
#define PROFILE_H
#include "util.h"
#include <stdatomic.h>

/* KEPT: of which as many are read; the rest may be overwritten while that is done. */
enum { PROFILE_KEPT = 128, PROFILE_READ = 64 };

struct profile {
	_Atomic uint32_t count; /* of steps */

	struct {
		_Atomic uint64_t at, waited; /* its end; all waits until then; in ns */
		_Atomic uint64_t cpu;	     /* all CPU time until then; in ns */
		_Atomic(const char *) in;    /* the longest of the waits within it; NULL: none */
	} step[PROFILE_KEPT];

	/* the writer's */
	_Atomic uint64_t waited, longest;
	_Atomic(const char *) in;
};

void profile_reset(struct profile *p);
/* The thread has waited for ns in this operation; the name is never freed. */
void profile_wait(struct profile *p, const char *in, uint64_t ns);
/* A step ends now, when the thread has had so much CPU time; in ns. */
void profile_step(struct profile *p, uint64_t now, uint64_t cpu);

struct profile_found {
	unsigned steps;	     /* of these */
	double step, waited; /* ns: the medians of a step, and of the waits in one */
	double cpu;	     /* likewise of the CPU time in one */
	const char *in;	     /* of most steps the longest wait; NULL: none */
};

/* Of the last steps; each `together` count as one, of which the numbers are a part: a loop has
 * several collectives. steps is 0 if there are too few. */
struct profile_found profile_read(const struct profile *p, unsigned together);

#endif
