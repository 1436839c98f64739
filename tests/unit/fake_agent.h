/*
 * The daemon without a front end and without processes, for unit tests of fs/group: a group whose
 * agent is this file, at the other end of a socket pair. The test is the engines: it takes what
 * they were sent and says what they answer. The loop is stepped by hand, and the clock is the
 * test's.
 */
#ifndef FAKE_AGENT_H
#define FAKE_AGENT_H
#include "base/req.h"
#include "conn.h"
#include "group/cell.h"
#include "check.h"

/* What an engine was sent; wire_unpack(&it->m, …) reads its fields. */
struct fake_msg {
	struct msg m;
	int rank; /* FAKE_AGENT: for the agent itself, or for no rank */
	bool taken;
	TAILQ_ENTRY(fake_msg) link;
};

enum { FAKE_AGENT = -1 };

/* A client's request, and what it was answered. */
struct fake_req {
	struct req r;  /* first */
	pid_t process; /* that made it; 0: nobody knows */
	req_interrupt_fn *interrupt;
	bool done;
	int result; /* 0 or -errno */
};

/* The agent's end, for conn_send. */
extern struct conn *fake_conn;

/* A group of that many ranks, all ready, and nothing in the list of what was sent. Starting it, and
 * rebuilding its process group, is answered by the fake itself. */
struct group *fake_begin(int size);
/* Takes all of it down. */
void fake_end(void);
/* Runs the loop until nothing moves any more. */
void fake_step(void);
/* Lets seconds pass: timers that are due fire, each at its time. */
void fake_pass(double seconds);

/* The first message of this type to this rank that was not taken yet, NULL: none. Lives until
 * fake_end. */
struct fake_msg *fake_take(int type, int rank);
/* How many such there are. */
int fake_count(int type, int rank);
/* Answers `to` (NULL: a failed check). */
#define fake_answer(to, type, ...)                                                                 \
	do {                                                                                       \
		const struct fake_msg *f_ = (to);                                                  \
		CHECK(f_ != NULL);                                                                 \
		if (f_)                                                                            \
			conn_send(fake_conn, type, 0, f_->m.slot, f_->m.tag, -1, ##__VA_ARGS__);   \
		fake_step();                                                                       \
	} while (0)
/* Answers a Trun: an enum outcome and the text of the error. */
void fake_ran(const struct fake_msg *m, int outcome, const char *error);
void fake_refuses(const struct fake_msg *m, int no, const char *text); /* Rerror */
/* The rank's process ends, by this wait(2) status. */
void fake_dies(int rank, int status);

/* Submits a cell (n 0: on all ranks). */
struct cell *fake_cell(struct group *g, const char *source, int n, const int *ranks);
/* Waits for the work's end as a client would. */
void fake_wait(struct task *w, struct fake_req *r);

struct slice fake_slice(const char *s);

#endif
