/* Shared by the unit tests: checks that report where they failed and let the test go on, and the
 * exit status. */
#ifndef CHECK_H
#define CHECK_H
#include <stdio.h>
#include <string.h>

/* Weak: one definition for all files of a test. */
__attribute__((weak)) int check_failures;

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #what);         \
			check_failures++;                                                          \
		}                                                                                  \
	} while (0)

#define CHECK_STR(a, b)                                                                            \
	do {                                                                                       \
		const char *a_ = (a), *b_ = (b);                                                   \
		if (strcmp(a_, b_) != 0) {                                                         \
			fprintf(stderr, "%s:%d: '%s', not '%s'\n", __FILE__, __LINE__, a_, b_);    \
			check_failures++;                                                          \
		}                                                                                  \
	} while (0)

#define CHECK_DONE() (check_failures ? 1 : 0)

#endif
