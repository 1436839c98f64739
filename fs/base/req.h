/*
 * A client's request as the tree sees it, answered exactly once, immediately or later. A front end
 * (FUSE, 9P) makes it, and its operations answer it.
 */
#ifndef REQ_H
#define REQ_H
#include "err.h"
#include "source.h"
#include <sys/types.h>

/* Returned by an operation whose request will be answered later. */
enum { PARKED = 1 };

/* What a client's signal asks of the code that parked its request. CLIENT_ENDS: as STOP_WORK, and
 * the client will never see the answer. */
enum interrupt { STOP_WORK, CLIENT_ENDS, DETACH };

struct req;
/* Called when the client of a parked request gets a signal. It must answer the request now
 * (DETACH), or make sure that it is answered soon. */
typedef void req_interrupt_fn(struct req *r, enum interrupt how);

/* What the front end knows about who closes a file. FUSE knows nothing, because the kernel does not
 * say. */
enum closer { CLOSER_UNKNOWN, CLOSER_LAST, CLOSER_KILLED };

struct req {
	TAILQ_ENTRY(req) link; /* in a list of the code that parks it */
	struct err err;	       /* the text goes to the group's `error` */
	size_t want;	       /* READ: maximum number of bytes */
	uint64_t offset;       /* READ: start offset */
	struct file *file;
	uid_t uid;	    /* of its client; -1: not known */
	bool nonblock;	    /* READ: its descriptor is O_NONBLOCK */
	enum closer closer; /* FLUSH */
	void *waits_for;    /* private to the code that parks it; for FLUSH, its task */
	bool may_wait;	    /* likewise: its caller is known not to wait for itself */
	/* Called before req_done answers; may be NULL. True: it calls req_done again, later,
	 * without an on_done. */
	bool (*on_done)(struct req *r, int result);
	const struct req_ops *ops;
	/* private to req.c */
	struct range range; /* of a provider, while it waits for that */
	req_interrupt_fn *on_interrupt;
	bool parked;
};

TAILQ_HEAD(req_list, req);

/* State of the process that made a request. */
struct req_client {
	pid_t process; /* as req_process returns it */
	bool exits;    /* it is exiting */
	bool killed;   /* it is exiting because of a signal, not by exit(3) */
};

/* What a front end does with its requests. Each of the first three answers a request and frees
 * it. */
struct req_ops {
	void (*done)(struct req *r, int result); /* 0 or -errno */
	void (*data)(struct req *r, const void *p, size_t n);
	/* with n bytes of the source, which the copy threads read */
	void (*copy)(struct req *r, const struct source *s, uint64_t offset, size_t n);
	/* park: r has been parked; from now on pass on signals of its client. unpark: r is no
	 * longer parked. */
	void (*park)(struct req *r);
	void (*unpark)(struct req *r);
	/* As req_process, req_client. */
	pid_t (*process)(const struct req *r);
	struct req_client (*client)(const struct req *r);
};

/* Answers a request without data: 0 or -errno. */
void req_done(struct req *r, int result);
/* Answers a READ with bytes. */
void req_data(struct req *r, const void *p, size_t n);
/* Answers a READ with up to n bytes of the source, from offset on: when its provider has them, if
 * there is one. A copy thread does so if n is large. */
void req_copy(struct req *r, const struct source *s, uint64_t offset, size_t n);

/* Counts open files: step is 1 or -1. */
void req_count_file(int step);

/* The errno for a client whose data a copy thread could not read; result is the thread's -errno. */
int req_copy_errno(ssize_t result);

/* Parks r. fn is called when its client gets a signal; if fn is NULL, the answer is then EINTR.
 * Returns PARKED. */
int req_park(struct req *r, req_interrupt_fn *fn);
/* Passes a signal of the client on to the code that parked r, which may answer r. */
void req_interrupt(struct req *r, enum interrupt how);

/* Makes a request of nobody, who sends no signals. Its on_done() learns the result, frees it and
 * returns true. */
void req_of_nobody(struct req *r);
bool req_is_nobodys(const struct req *r);

/* Wakes pollers: a polled file may have become ready. */
void req_wake_pollers(void);
/* The front end that has pollers: wake is to wake those whose files are ready. */
void req_on_wake(void (*wake)(void));

/* The process (tgid) that made the request; 0 if it is in a foreign pid namespace. */
pid_t req_process(const struct req *r);
struct req_client req_client(const struct req *r);

#endif
