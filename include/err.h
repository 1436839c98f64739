/* An error: errno and a human-readable text, set together where it happens. */
#ifndef ERR_H
#define ERR_H
#include "util.h"

struct err {
	int no;		 /* errno; 0: no error */
	char text[1000]; /* what is wrong, and what would be right */
};

/* Sets both (e may be NULL) and returns -no, so that `return fail(e, EINVAL, "…")` reads well. */
int fail(struct err *e, int no, const char *fmt, ...) PRINTF(3, 4);
/* The same, with strerror(errno) appended to the text. Returns -errno. */
int fail_errno(struct err *e, const char *fmt, ...) PRINTF(2, 3);
/* The same of a process or a thread that could not be started: says what may have limited them. */
int fail_start(struct err *e, const char *fmt, ...) PRINTF(2, 3);
const char *err_name(int no); /* "EINVAL"; "E123" for an unknown one */

#endif
