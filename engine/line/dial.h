/* Connections to the far relay, one at a time, each made by the command that leads to the host. */
#ifndef DIAL_H
#define DIAL_H
#include "line/line.h"

struct dial {
	const char *host;   /* for messages */
	const char *engine; /* "auto": our programs are copied there; or a path there */
	char **command;	    /* that leads to the host */
	int version;	    /* of what the lanes carry: that of the far end must be the same */
	uint64_t linger_ms; /* how long to keep reconnecting */
	const char *direct; /* variable for direct_offer() if the command is slow; else NULL */
	struct loop *loop;
	struct line *line; /* is attached to the streams */
	/* Connecting has failed for good. */
	__attribute__((noreturn)) void (*failed)(const struct err *e);
	/* The line has moved to a direct connection, or (why->no) it will not. */
	void (*moved)(const struct err *why);
};

/* Starts connecting. There is one dial per process. */
void dial_start(const struct dial *d);
/* The line has come up, or gone down. */
void dial_up(void);
void dial_down(const struct err *why);
/* Has a stay ever been started on the far side? */
bool dial_has_stay(void);
void dial_end(void); /* terminates the command */

#endif
