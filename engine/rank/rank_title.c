/*
 * Sets the title of the process by overwriting the memory of its arguments, which ps shows. The
 * kernel says where that memory is; Python has copied what it needs of it.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <stdio.h>
#include <string.h>

/* Fields of /proc/self/stat (proc(5)) behind the command's name, which is the second one. */
enum { FIELD_STATE = 3, FIELD_ARG_START = 48 };

/* Where the arguments begin and how long they are. False: the kernel does not say. */
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
	/* A last byte that is not NUL would make ps read on, into the environment. */
	memset(begin, 0, size);
	memcpy(begin, text, strnlen(text, size - 1));
}
