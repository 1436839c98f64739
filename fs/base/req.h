/*
 * A client's request as the tree sees it. It is answered exactly once, now or later. A front end
 * (FUSE, 9P) makes and answers it; front/front.c has what the front ends share.
 */
#ifndef REQ_H
#define REQ_H
#include "copy.h"
#include "err.h"
#include <sys/queue.h>
#include <sys/types.h>

/* What an operation returns when somebody else will answer its request. */
enum { PARKED = 1 };

/* What the signal of a client asks of who parks its request. */
enum interrupt { STOP_WORK, DETACH };

struct req;
struct front;
/* How a parked request hears of a signal: it must answer it now (DETACH) or see that it is answered
 * soon. */
typedef void req_interrupt_fn(struct req *r, enum interrupt how);

/* Who closes a file, as far as the front end knows: the kernel does not tell FUSE. */
enum closer { CLOSER_UNKNOWN, CLOSER_LAST, CLOSER_KILLED };

struct req {
	TAILQ_ENTRY(req) link; /* for the list of who parks it */
	struct err err;	       /* the text of a failure goes to the group's `error` */
	size_t want;	       /* READ: how many bytes at most */
	uint64_t offset;       /* READ: from where */
	struct file *file;
	bool nonblock;	    /* READ: its descriptor is O_NONBLOCK */
	enum closer closer; /* FLUSH */
	void *waits_for;    /* for who parks it */
	bool may_wait;	    /* the same: it was found that its caller does not wait for itself */
	/* called before req_done answers; NULL: nobody wants to know */
	void (*on_done)(struct req *r, int result);
	/* front/front.c's */
	const struct front *front;
	req_interrupt_fn *on_interrupt;
	bool parked;
};

TAILQ_HEAD(req_list, req);

/* Answers whatever has no data: 0 or -errno. */
void req_done(struct req *r, int result);
/* Answers a READ with bytes. */
void req_data(struct req *r, const void *p, size_t n);
/* Answers a READ with n bytes of the source from offset on, from a copy thread if it is much. */
void req_copy(struct req *r, const struct source *s, uint64_t offset, size_t n);

/* From now on fn (NULL: EINTR is the answer) hears of signals. Returns PARKED. */
int req_park(struct req *r, req_interrupt_fn *fn);

/* Something that somebody polls may have happened. */
void req_wake_pollers(void);

/* The process (tgid) that made it; 0: of a foreign pid namespace. */
pid_t req_process(const struct req *r);
/* Its program is a shell: where it redirects, errors of close(2) are lost. */
bool req_by_shell(const struct req *r);

/* What the process that made it is about. */
struct req_client {
	pid_t process; /* as req_process gives it */
	bool exits;    /* it is ending, */
	bool killed;   /* by a signal, not by exit(3) */
};
struct req_client req_client(const struct req *r);

#endif
