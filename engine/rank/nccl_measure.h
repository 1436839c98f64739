/* Times an operation over a link and checks its results, as ddip_engine/groups/selftest.py
 * describes. */
#ifndef NCCL_MEASURE_H
#define NCCL_MEASURE_H
#include "rank/nccl_link.h"

enum measure_kind {
	MEASURE_ALL_REDUCE,
	MEASURE_ALL_GATHER,
	MEASURE_BROADCAST,
	MEASURE_SENDRECV,
	MEASURE_BARRIER, /* only waits for all ranks; not timed */
	MEASURE_KINDS
};

struct measure {
	enum measure_kind kind;
	size_t count;	      /* float32 elements that this rank sends */
	unsigned repeats;     /* timed ones */
	int receiver, sender; /* MEASURE_SENDRECV: ranks */
	double us;	      /* microseconds per operation */
	uint64_t wrong;	      /* wrong elements among those received */
};

/* Sets us and wrong. All ranks of the link must call it. */
int nccl_measure(struct nccl_link *l, struct measure *m, struct err *e);
/* Returns MEASURE_KINDS for an unknown name. */
enum measure_kind nccl_measure_kind(const char *name);

#endif
