/*
 * What ranks print, where it arrives: written to the spools that the daemon reads. A frame that
 * counts it (with a mark, see wire.h) waits until it is there, and is given the place in these
 * spools; frames of that rank which must not overtake it wait behind it.
 */
#ifndef ARRIVAL_H
#define ARRIVAL_H
#include "conn.h"
#include "relay/packet.h"

struct arrivals;

/* Frames go on to this connection. */
struct arrivals *arrivals_new(struct conn *daemon);
void arrivals_free(struct arrivals *as); /* NULL-safe */
/* The rank at slot will print to these spools. */
int arrival_open(
    struct arrivals *as, unsigned slot, const char *dir, const char *name, struct err *e);
void arrival_close(struct arrivals *as, unsigned slot);
/* The body of a PACKET_OUTPUT. */
int arrival_output(struct arrivals *as, struct slice body, struct err *e);
/* The body of a PACKET_SKIP. */
int arrival_skip(struct arrivals *as, struct slice body, struct err *e);
/* Passes a frame of the other side on, now or later. service: it answers what a rank's other
 * threads than the main one were asked. */
void arrival_frame(struct arrivals *as, const struct msg *m, bool service);

#endif
