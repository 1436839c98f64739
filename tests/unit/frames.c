/*
 * Tests of fs/group/frames.c: whose code a file has, by its name. tests/engine/test_frames.py has
 * the engine's rule agree on the same names.
 */
#include "check.h"
#include "group/frames.h"
#include "util.h"
#include <stdlib.h>
#include <string.h>

/* The line of the innermost frame of the user's. */
static unsigned
first_users(const char *text)
{
	struct slice rest = slice_text(text);
	struct frame f;

	while (frames_next(&rest, &f))
		if (frame_is_users(&f, rest))
			return f.line;
	return 0;
}

int
main(void)
{
	struct buf names = {0};
	int count = 0;
	char *save = NULL;

	CHECK(read_file("tests/frames.list", &names) == 0);
	buf_addc(&names, '\0');
	for (char *line = strtok_r(names.p, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *text = xasprintf("  File \"%s\", line 7 in f\n", strchr(line, ' ') + 1);
		struct slice rest = slice_text(text);
		struct frame f;

		CHECK(frames_next(&rest, &f) && rest.n == 0 && f.line == 7);
		CHECK(slice_eq(f.file, strchr(line, ' ') + 1));
		if (frame_is_users(&f, rest) != (*line == 'u'))
			CHECK_STR(line, frame_is_users(&f, rest) ? "users" : "installed");
		free(text);
		count++;
	}
	CHECK(count > 20);
	CHECK(first_users(
		  "  File \"<string>\", line 0 in <module>\n"
		  "  File \"/usr/lib/python3.11/collections/__init__.py\", line 4 in namedtuple\n"
		  "  File \"t.py\", line 5 in f\n") == 5);
	CHECK(first_users("  File \"<string>\", line 3 in <module>\n"
			  "  File \"t.py\", line 5 in f\n") == 3);
	CHECK(first_users("  File \"<string>\", line 3 in <module>\n"
			  "  File \"<ddip_engine cell>\", line 5 in f\n") == 3);
	CHECK(first_users("  File \"<string>\", line 3 in <module>\n") == 3);
	buf_free(&names);
	return CHECK_DONE();
}
