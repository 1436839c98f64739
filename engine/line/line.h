/*
 * A line leads to an agent on another host. It carries the bytes of lanes, which are sockets at
 * both ends, and does not know what they mean.
 *
 *   daemon == lanes == near.c == packets, by any command == far.c == lanes == agent
 *
 * The command (ssh, srun, docker exec…) runs the far end. dial.c starts it, using launch.c, and
 * bring.c copies the programs there, by bring.sh. link.c carries packets over the command's
 * standard input and output, and after a break over those of its successor, which session.c
 * connects to the far end that is still running. If the command has little bandwidth, all packets
 * go over a separate connection between the two ends, which they negotiate over the command's
 * (offer.c, reach.c).
 *
 * What comes by the first lane is passed on before what comes later by the others. These are read
 * only when the link has room: what does not fit waits with its sender.
 */
#ifndef LINE_H
#define LINE_H
#include "line/link.h"

enum { LINE_LANES = 3, LINE_FD = 2 }; /* the first is at descriptor 0, lane i at LINE_FD + i */

/* Packets. The first ones are bytes of the lanes. */
enum {
	LINE_LANE = LINK_PACKET_MIN,
	LINE_LOG = LINE_LANE + LINE_LANES, /* lines for the daemon's log */
	LINE_END,			   /* the daemon is gone: send LINE_GONE and exit */
	LINE_GONE,			   /* the agent has exited; a number, by wait(2) */
	LINE_OFFER,  /* port[2], low byte first, tokens[32] and the name of a variable on the far
			side  that holds the address of this side: connect (offer.h) */
	LINE_REFUSAL /* text: why that is impossible */
};

/*
 * Lines that the command prints before the first packet; all of them begin with BANNER. Other
 * lines, from a login script for example, are ignored.
 */
#define BANNER "@ddipfs "
#define BANNER_WANT "want"     /* MACHINE: send the programs */
#define BANNER_ERROR "error"   /* TEXT: it failed */
#define BANNER_FAR "far"       /* VERSION DIR SECRET: a new session, and the link begins */
#define BANNER_ATTACH "attach" /* send the secret, and the link resumes */
#define BANNER_GONE "gone"     /* the session no longer exists */

enum { SECRET_SIZE = 32 }; /* characters; whoever knows them may attach to a session */

/* ddip-engine relay --host NAME --linger SECONDS --engine auto|PATH [--direct VARIABLE] --
 * COMMAND…: the near end. version: of what the lanes carry; both ends must have the same. Its words
 * are for the daemon, each a record on descriptor 1: "direct": a direct connection is used;
 * "indirect WHY": the launcher's; "error ERRNO TEXT": the last one. Returns the exit status. */
int near_main(char **args, int version);
/* ddip-engine far --linger SECONDS, or far --attach DIR: the far end, which starts the agent. */
int far_main(char **args, int version);

/* Parses the argument of --linger, in seconds, into *ms. Returns false if it is invalid. */
bool line_linger(const char *seconds, uint64_t *ms);
/* Compares n bytes in constant time. */
bool line_is_secret(const void *said, const void *secret, size_t n);

#endif
