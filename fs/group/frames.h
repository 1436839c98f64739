/* What the text of a Python faulthandler says of the main thread: its frames, and which are the
 * user's. */
#ifndef FRAMES_H
#define FRAMES_H
#include "util.h"

/* One line «  File "FILE", line N in FUNCTION». The slices point into the text. */
struct frame {
	struct slice file, function;
	unsigned line;
};

/* The frames of the main thread, innermost first, and what follows them; empty if the text has
 * none. */
struct slice frames_main(struct slice text);
/* Takes the first frame off the text. Returns false if it does not begin with one. */
bool frames_next(struct slice *text, struct frame *f);
/* Is its code the user's, and not the engine's, the standard library's or an installed package's?
 * What one of these has made of a string, such as a namedtuple(), is not. callers: the frames
 * below. */
bool frame_is_users(const struct frame *f, struct slice callers);
/* Appends the user's frames of the main thread, and remarks of the engine; if there is no such
 * frame, a line in parentheses says so. */
void frames_print(struct buf *out, struct slice text);

#endif
