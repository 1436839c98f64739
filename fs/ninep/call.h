/* A connection, and its calls: messages that are answered now or later, as struct req. */
#ifndef CALL_H
#define CALL_H
#include "front/front.h"
#include "ninep/fid.h"
#include "ninep/message.h"
#include "ninep/output.h"

struct call;
struct watch;
TAILQ_HEAD(call_list, call);

struct connection {
	int fd; /* -1: broken */
	struct watch *watch;
	uint32_t events;	    /* that it waits for */
	bool more;		    /* messages are in `in` that were not taken yet */
	pid_t peer;		    /* the process that connected */
	enum ninep_dialect dialect; /* 0: no version was agreed on yet */
	uint32_t msize;		    /* of both directions */
	struct buf in;
	struct output out;
	size_t promised; /* bytes of replies that the copy threads read now */
	struct call_list calls, parked;
	size_t call_count;
	struct fid_table fids;
	TAILQ_ENTRY(connection) link;
};

/* Where a walk has got to. */
struct walk {
	struct ninep_field names; /* what is left, of `text` */
	char *text;
	struct node *node;  /* one lookup */
	struct node *asked; /* of a name that the rank is asked for; NULL: none */
	uint32_t newfid;
	unsigned wanted, done; /* names */
};

struct call {
	struct req r; /* first: a struct req is a struct call */
	struct connection *conn;
	uint16_t tag;
	uint8_t type;
	struct fid *fid; /* referenced; NULL: none */
	struct buf body; /* of its reply */
	/* Makes the body for a result that came later; NULL: there is nothing in it. The result of
	 * the call, or PARKED. */
	int (*finish)(struct call *c, int result);
	struct walk walk;
	struct node *created;	  /* OPEN, CREATE: what the file is of */
	struct call_list flushes; /* that wait until it is answered */
	bool told;		  /* its connection is broken, and who parks it knows */
	char *block;		  /* a reply that a copy thread made, */
	ssize_t block_n;	  /* its bytes of data, or -errno */
	size_t promised;	  /* part of the connection's */
	TAILQ_ENTRY(call) link, parked_link;
	STAILQ_ENTRY(call) copied_link;
};

/* The loop hears of what the copy threads have done. 0 or -errno. */
int call_start(void);
void call_stop(void);

struct call *call_new(struct connection *conn, const struct ninep_message *m);
/* The call's fid: referenced until the call ends. -errno: the client has no such fid. */
int call_take_fid(struct call *c, uint64_t number);
/* Answers it with its body or, if result is -errno, with that; it is freed. */
void call_answer(struct call *c, int result);
/* The client wants this one ended; `by` is answered when it is. */
void call_flush(struct call *c, struct call *by);
/* The call of this tag, other than `self`; NULL: there is none. */
struct call *call_find(struct connection *conn, uint16_t tag, const struct call *self);
/* Ends all that is parked, as if its client had been killed. */
void call_end_parked(struct connection *conn);

/* Above (server.c): it has something to write, or a call less. */
void connection_changed(struct connection *conn);

#endif
