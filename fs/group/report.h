/* The report of a cell: what its writer wants to know of it first, in few bytes. */
#ifndef REPORT_H
#define REPORT_H
#include "group/task.h"

enum { REPORT_TEXT_MAX = 2048, REPORT_JSON_MAX = 4096 };

/* The number of figures that the subtask of a cell has displayed, as its rank says. */
int report_figures(const struct subtask *j);

/* What the ranks of a cell that runs have said when they were asked. */
struct report_now {
	const char *verdict, *straggler, *pace; /* of stall.h */
	char **said; /* of each of the cell's ranks, see said.h; NULL: nothing */
};

/* Appends the report as text, at most REPORT_TEXT_MAX bytes, or as JSON, at most REPORT_JSON_MAX,
 * with the same facts; whatever the cell did. now: NULL, the ranks were not asked. */
void report_print(struct cell *c, const struct report_now *now, bool as_json, struct buf *out);

#endif
