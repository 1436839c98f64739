/* What both ends of a line need. */
#include "line/line.h"
#include <stdlib.h>

enum { LINGER_MAX = 1000000000 }; /* in seconds */

bool
line_linger(const char *seconds, uint64_t *ms)
{
	char *rest;
	double s = strtod(seconds, &rest);

	if (rest == seconds || *rest || !(s >= 0 && s <= LINGER_MAX))
		return false;
	*ms = (uint64_t)(s * MS_PER_S);
	return true;
}

bool
line_is_secret(const void *said, const void *secret, size_t n)
{
	const unsigned char *a = said, *b = secret;
	unsigned char differs = 0;

	for (size_t i = 0; i < n; i++)
		differs |= (unsigned char)(a[i] ^ b[i]);
	return !differs;
}
