/* What is left of the last words of a process: the user's frames of the thread that crashed. */
#include "check.h"
#include "group/last_words.h"
#include <stdlib.h>
#include <string.h>

#define ENGINE                                                                                     \
	"  File \"<ddip_engine.rank>\", line 54 in main\n"                                         \
	"  File \"<ddip_engine importer>\", line 27 in <module>\n"                                 \
	"  File \"<string>\", line 8 in <module>\n"
#define OTHER                                                                                      \
	"Thread 0x00007f80fcdfd6c0 (most recent call first):\n"                                    \
	"  File \"<ddip_engine.rank>\", line 82 in _rescue\n\n"
#define SEGV "Fatal Python error: Segmentation fault\n"
#define CURRENT "Current thread 0x00007f80ff169040 (most recent call first):\n"
#define LIBRARY "  File \"/usr/lib/python3.11/ctypes/__init__.py\", line 519 in string_at\n"
#define USERS "  File \"t.py\", line 3 in f\n"
#define OUTER "  File \"t.py\", line 5 in <module>\n"
#define MODULES "Extension modules: _ddip, numpy._core (total: 2)\n"

static void
check_words(const char *text, bool crashed, const char *expected)
{
	char *words = last_words(slice_text(text), crashed);

	CHECK_STR(words, expected);
	free(words);
}

static void
check_plain(const char *text, const char *expected)
{
	struct buf b = {0};

	last_words_plain(slice_text(text), &b);
	CHECK_STR(b.n ? b.p : "", expected);
	buf_free(&b);
}

static void
test_crash(void)
{
	static const char *const first = SEGV "(most recent call first):\n" USERS OUTER;
	char stacks[2000] = "warned\n" SEGV "\n" CURRENT;

	check_words("warned\n" SEGV "\n" OTHER CURRENT LIBRARY USERS OUTER ENGINE "\n" MODULES,
	    true, first);
	/* in another thread than the main one, which is in the engine */
	check_words(SEGV "\n" CURRENT LIBRARY USERS OUTER "\nThread 0x1 [main] (most recent call "
			 "first):\n" OUTER ENGINE "\n" MODULES,
	    true, first);
	/* Python 3.14 */
	check_words(SEGV "\nCurrent thread 0x1 [python3] (most recent call first):\n" USERS OUTER
			 "\nCurrent thread's C stack trace (most recent call first):\n  Binary "
			 "file \"libc.so\", at abort+0x12 [0x7f]\n\n" MODULES,
	    true, first);
	for (int i = 0; i < 40; i++)
		strcat(stacks, USERS);
	strcat(stacks, OUTER ENGINE "  ...\n");
	check_words(stacks, true, first);
	/* a string that the user has executed, and one that the library has */
	check_words(SEGV CURRENT "  File \"<string>\", line 1 in <module>\n" OUTER ENGINE, true,
	    SEGV "(most recent call first):\n  File \"<string>\", line 1 in <module>\n" OUTER);
	check_words(SEGV CURRENT "  File \"<string>\", line 1 in g\n" LIBRARY OUTER ENGINE, true,
	    SEGV "(most recent call first):\n" OUTER);
	/* no code of the user's */
	check_words(SEGV CURRENT "  Garbage-collecting\n" LIBRARY ENGINE, true,
	    SEGV "(most recent call first):\n  Garbage-collecting\n" LIBRARY);
	check_words(SEGV CURRENT "  <no Python frame>\n", true,
	    SEGV "(most recent call first):\n  <no Python frame>\n");
}

static void
test_exit(void)
{
	check_words("a\n\nframe #0: f\nb\n  File \"t.py\", line 3, in f\n    f()\n", false,
	    "a\nb\n  File \"t.py\", line 3, in f\n    f()\n");
	check_words("", false, "");
	check_words("no newline", false, "no newline");
	check_words("  File \"", false, "  File \"");
	check_words(ENGINE, false, "");
}

int
main(void)
{
	test_crash();
	test_exit();
	check_plain(SEGV "\n" OTHER CURRENT LIBRARY USERS ENGINE "\n" MODULES "after\n",
	    SEGV "\nThread 0x00007f80fcdfd6c0 (most recent call first):\n\n" CURRENT LIBRARY USERS
		 "\nafter\n");
	check_plain("  File \"<string>\", line 8 in <module>\nx",
	    "  File \"<string>\", line 8 in <module>\nx");
	check_plain("", "");
	return CHECK_DONE();
}
