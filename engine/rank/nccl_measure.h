/* Times an operation over a link and checks what it brings, as ddip_engine/selftest.py says. */
#ifndef NCCL_MEASURE_H
#define NCCL_MEASURE_H
#include "rank/nccl_link.h"

enum measure_kind {
	MEASURE_ALL_REDUCE,
	MEASURE_ALL_GATHER,
	MEASURE_BROADCAST,
	MEASURE_SENDRECV,
	MEASURE_BARRIER, /* only waits where all ranks do */
	MEASURE_KINDS
};

struct measure {
	enum measure_kind kind;
	size_t count;	      /* float32 that this rank sends */
	unsigned repeats;     /* that are timed */
	int receiver, sender; /* of MEASURE_SENDRECV */
	double us;	      /* of one operation */
	uint64_t wrong;	      /* elements that were received */
};

/* Fills us and wrong. All ranks of the link take part. */
int nccl_measure(struct nccl_link *l, struct measure *m, struct err *e);
/* MEASURE_KINDS: no such name. */
enum measure_kind nccl_measure_kind(const char *name);

#endif
