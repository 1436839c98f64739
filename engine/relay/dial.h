/* Connections to the far relay, one after the other: each by the command that leads to the host. */
#ifndef DIAL_H
#define DIAL_H
#include "relay/link.h"

struct dial {
	const char *host;   /* for messages */
	const char *engine; /* "auto": our programs are brought along; or a path over there */
	char **command;	    /* that leads there */
	uint64_t linger_ms; /* how long to try again */
	const char *direct; /* NULL, or the command carries little: variable of offer_make() */
	struct loop *loop;
	struct link *link; /* gets the streams */
	/* There is no way on. */
	__attribute__((noreturn)) void (*failed)(const struct err *e);
	/* The link has moved to a direct connection, or (why->no) it will not. */
	void (*moved)(const struct err *why);
};

/* Connects; there is one per process. */
void dial_start(const struct dial *d);
/* What the link says. */
void dial_up(void);
void dial_down(const struct err *why);
/* Is, or was, there anything over there? */
bool dial_has_session(void);
void dial_end(void); /* ends the command */

#endif
