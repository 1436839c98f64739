/*
 * The daemon without a front end and without processes, for unit tests of fs/group: a group whose
 * agent is this file, at the other end of a socket pair. The test plays the engines: it takes what
 * was sent to them and chooses their replies. The test steps the loop by hand and drives the clock.
 */
#ifndef FAKE_AGENT_H
#define FAKE_AGENT_H
#include "base/req.h"
#include "conn.h"
#include "group/cell.h"
#include "check.h"

/* A message that an engine was sent; wire_unpack(&it->m, …) reads its fields. */
struct fake_msg {
	struct msg m;
	int rank; /* FAKE_AGENT: for the agent itself, or for no rank */
	bool taken;
	TAILQ_ENTRY(fake_msg) link;
};

enum { FAKE_AGENT = -1 };

/* A client's request, and its result. */
struct fake_req {
	struct req r;  /* first */
	pid_t process; /* that made it; 0: unknown */
	req_interrupt_fn *interrupt;
	bool done;
	int result; /* 0 or -errno */
};

/* The agent's end, to send from with conn_send. */
extern struct conn *fake_conn;

/* The fake answers nothing by itself: the test handles also what starts ranks. */
extern bool fake_mute;

/* What the Python of this rank (below 16) reports when it starts next. The text must stay. */
void fake_set_facts(int rank, const char *lines);

/* Makes a group of this many ranks, all ready, with nothing in the list of sent messages. The fake
 * itself answers the requests to start it and to rebuild its process group. */
struct group *fake_begin(int size);
/* Takes the group and the daemon down. */
void fake_end(void);
/* Runs the loop until it is quiet. */
void fake_step(void);
/* Lets time pass: timers that become due fire, each at its time. */
void fake_pass(double seconds);
/* Sets the wall clock back. */
void fake_set_back(long seconds);

/* Takes the first message of this type to this rank that was not taken yet; NULL if there is none.
 * Valid until fake_end. */
struct fake_msg *fake_take(int type, int rank);
/* Number of messages that fake_take could take. */
int fake_count(int type, int rank);
/* Replies to `to` (NULL: a failed check). */
#define fake_answer(to, type, ...)                                                                 \
	do {                                                                                       \
		const struct fake_msg *f_ = (to);                                                  \
		CHECK(f_ != NULL);                                                                 \
		if (f_)                                                                            \
			conn_send(fake_conn, type, 0, f_->m.slot, f_->m.tag, -1, ##__VA_ARGS__);   \
		fake_step();                                                                       \
	} while (0)
/* Replies to a Trun, with an enum outcome and the text of the error. */
void fake_ran(const struct fake_msg *m, int outcome, const char *error);
void fake_refuses(const struct fake_msg *m, int no, const char *text); /* Rerror */
/* The rank's process ends with this wait(2) status. */
void fake_dies(int rank, int status);

/* The set of these n ranks. */
struct rank_set fake_set(int n, const int *ranks);
/* Submits a cell (n 0: on all ranks). */
struct cell *fake_cell(struct group *g, const char *source, int n, const int *ranks);
/* Waits for the end of the task as a client would. */
void fake_wait(struct task *w, struct fake_req *r);

struct slice fake_slice(const char *s);

#endif
