/*
 * A question to a rank, for a request that is parked meanwhile or for several of them. What comes
 * first ends the wait: the rank's answer, its end, the patience that its CPU time allows, a signal
 * of the client. The question itself lives until the rank has answered.
 */
#ifndef QUESTION_H
#define QUESTION_H
#include "base/patience.h"
#include "base/req.h"
#include "host/agent.h"

struct rank;
struct question;

struct question_ops {
	/* The answer; m is NULL if there is none, and e says why. Owns q from now on; q->r is NULL
	 * if nobody waits. */
	void (*take)(struct question *q, struct msg *m, const struct err *e);
	/* The rank has had its time. NULL: it has all the time it needs. */
	void (*late)(struct question *q);
	bool cancels; /* tells the rank if its answer is not wanted any longer */
};

/* The first member of a struct of the caller's. */
struct question {
	const struct question_ops *ops;
	struct req *r; /* NULL: answered, or none */
	struct agent *agent;
	int slot;
	uint64_t tag;
	struct patience *patience;
};

/* Parks q->r, if there is one. The caller then sends the message of this type, with q->slot and
 * q->tag to q->agent. */
void question_begin(struct question *q, struct rank *k, int type);
/* Answers q->r with 0 or -errno. */
void question_answer(struct question *q, int result);
/* Nobody waits for the answer any longer. */
void question_drop(struct question *q);

#endif
