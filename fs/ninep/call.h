/* A connection and its calls: messages that are answered immediately or later, each a struct
 * req. */
#ifndef CALL_H
#define CALL_H
#include "front/front.h"
#include "loop.h"
#include "ninep/fid.h"
#include "ninep/message.h"
#include "ninep/output.h"

struct call;
struct watch;
TAILQ_HEAD(call_list, call);

struct connection {
	int fd;	   /* -1: closed */
	bool lost; /* its client is gone: nothing is sent any more, and fd is closed soon */
	struct watch *watch;
	uint32_t events;	    /* epoll events that it waits for */
	bool more;		    /* `in` may hold messages not handled yet */
	pid_t peer;		    /* the process that connected */
	enum ninep_dialect dialect; /* 0: no version negotiated yet */
	uint32_t msize;		    /* message size limit, in both directions */
	struct buf in;
	struct output out;
	size_t promised; /* bytes of replies that copy threads are reading */
	struct call_list calls, parked;
	size_t call_count;
	struct fid_table fids;
	TAILQ_ENTRY(connection) link;
};

/* The state of a walk. */
struct walk {
	struct ninep_field names; /* the names left; points into `text` */
	char *text;
	struct node *node;  /* holds one lookup */
	struct node *asked; /* for the name that the rank is asked for, or NULL */
	uint32_t newfid;
	unsigned wanted, done; /* numbers of names */
};

struct call {
	struct req r; /* must be first: a struct req is cast to this */
	struct connection *conn;
	uint16_t tag;
	uint8_t type;
	struct fid *fid; /* referenced, or NULL */
	bool waited;	 /* was parked: it is answered by code that may use the file afterwards */
	struct buf body; /* of the reply */
	/* Makes the body when the tree's result arrives, or frees what was made for it; NULL: it
	 * adds nothing. Returns the result of the call, or PARKED. */
	int (*finish)(struct call *c, int result);
	struct walk walk;
	struct node *created;	  /* CREATE, LCREATE: the node of the file */
	struct listing *listing;  /* OPEN of a directory, until it is its fid's */
	struct call_list flushes; /* Tflush calls that wait until it is answered */
	bool told;		  /* call_end_parked() has passed STOP_WORK on */
	char *block;		  /* a reply made by a copy thread */
	ssize_t block_n;	  /* size of the data in it, or -errno */
	size_t promised;	  /* its part of the connection's */
	TAILQ_ENTRY(call) link, parked_link;
	struct loop_call copied;
};

/* Answers those whose data the copy threads have read. Call after copy_stop(). */
void call_stop(void);

struct call *call_new(struct connection *conn, const struct ninep_message *m);
/* Sets the call's fid, referenced until the call ends. Returns -errno if the client has no such
 * fid. */
int call_take_fid(struct call *c, uint64_t number);
/* Answers the call with its body or, if result is -errno, with that. Frees it. */
void call_answer(struct call *c, int result);
/* The client wants c to end; `by` is answered when it has. */
void call_flush(struct call *c, struct call *by);
/* The call with this tag, other than `self`, or NULL. */
struct call *call_find(struct connection *conn, uint16_t tag, const struct call *self);
/* Ends all parked calls, as if the client had been killed. */
void call_end_parked(struct connection *conn);

/* Defined in the layer above (server.c): conn has data to write, or one call fewer. */
void connection_changed(struct connection *conn);

#endif
