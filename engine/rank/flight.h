/*
 * What torch's flight recorder has recorded, as lines for the daemon's fs/group/verdict.c. The
 * recorder's text is JSON: FlightRecorder::dump_json() in torch's
 * distributed/c10d/FlightRecorderDetail.hpp.
 */
#ifndef FLIGHT_H
#define FLIGHT_H
#include "util.h"

/* Appends for each group of this recorder a line `group NAME RECORDER ENTERED MEMBERS`, and below
 * it lines `op NUMBER NAME ELEMENTS DTYPE DONE SECONDS` in the order of their numbers. ENTERED is
 * the highest number that was recorded, ELEMENTS is -1 if unknown, DONE 0 or 1. A group
 * of which so much was recorded that nothing is left has `lost` for RECORDER.
 * groups: lines `NAME RECORDER FIRST MEMBERS`, where records with lower ids than FIRST belong to an
 * earlier group of this name. now: s since 1970. Returns false if the text has another form, with
 * nothing appended. */
bool flight_print(
    struct slice json, struct slice groups, const char *recorder, double now, struct buf *out);

#endif
