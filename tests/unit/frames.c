/*
 * Tests of fs/group/frames.c: whose code a file has, by its name. tests/engine/test_frames.py has
 * the engine's rule agree on the same names.
 */
#include "check.h"
#include "group/frames.h"
#include "util.h"
#include <stdlib.h>
#include <string.h>

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
		if (frame_is_users(&f) != (*line == 'u'))
			CHECK_STR(line, frame_is_users(&f) ? "users" : "installed");
		free(text);
		count++;
	}
	CHECK(count > 20);
	buf_free(&names);
	return CHECK_DONE();
}
