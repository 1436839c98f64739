/*
 * Sets the title of the process by overwriting the memory of its arguments, which ps shows. The
 * kernel reports where that memory is; Python has already copied what it needs from there.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <stdio.h>
#include <string.h>

/* Fields of /proc/self/stat (proc(5)) after the command's name, which is the second one. */
enum { FIELD_STATE = 3, FIELD_ARG_START = 48 };

/* Finds the start and size of the arguments. Returns false if the kernel does not report them. */
static bool
arguments(char **begin, size_t *size)
{
	struct buf b = {0};
	unsigned long from = 0, to = 0;
	const char *at;
	bool found;

	if (read_file("/proc/self/stat", &b) < 0)
		return false;
	at = strrchr(b.p, ')');
	for (int i = FIELD_STATE; at && i <= FIELD_ARG_START; i++)
		at = strchr(at + 1, ' ');
	found = at && sscanf(at, " %lu %lu", &from, &to) == 2 && from && to > from;
	buf_free(&b);
	*begin = (char *)from;
	*size = to - from;
	return found;
}

void
rank_title(const char *text)
{
	char *begin;
	size_t size;

	if (!arguments(&begin, &size))
		return;
	/* If the last byte were not NUL, ps would read on into the environment. */
	memset(begin, 0, size);
	memcpy(begin, text, strnlen(text, size - 1));
}
