/*
 * The near end of rank output: writes what ranks print to the spools that the daemon reads. A frame
 * that carries a mark (a count of that output, see wire.h) is held until the output has arrived,
 * and its mark is rewritten to positions in these spools. Frames of the same rank with FLAG_ORDERED
 * queue behind it.
 */
#ifndef ARRIVAL_H
#define ARRIVAL_H
#include "conn.h"
#include "relay/packet.h"

struct arrivals;

/* Frames are forwarded to this connection. */
struct arrivals *arrivals_new(struct conn *daemon);
void arrivals_free(struct arrivals *as); /* NULL-safe */
/* Opens the spools that the output of the rank at slot goes to. */
int arrival_open(
    struct arrivals *as, unsigned slot, const char *dir, const char *name, struct err *e);
void arrival_close(struct arrivals *as, unsigned slot);
/* Handles an Noutput or Nskip. */
int arrival_output(struct arrivals *as, const struct msg *m, struct err *e);
/* Forwards a frame from the other side, now or later. */
void arrival_frame(struct arrivals *as, const struct msg *m);

#endif
