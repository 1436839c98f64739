/*
 * Users and groups of this host, by name. A separate file, because <grp.h> also declares a struct
 * group.
 */
#include "host/ids.h"
#include <ctype.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>

enum { DECIMAL = 10 };

/* Is s a valid user or group number? (uid_t)-1 stands for none. */
static bool
is_number(const char *s, unsigned *id)
{
	char *end;
	unsigned long n = strtoul(s, &end, DECIMAL);

	if (!isdigit((unsigned char)*s) || *end || n >= (uid_t)-1)
		return false;
	*id = (unsigned)n;
	return true;
}

bool
ids_user(const char *s, uid_t *id)
{
	const struct passwd *p;

	if (is_number(s, id))
		return true;
	/* cppcheck-suppress getpwnamCalled; only the thread that reads the options asks */
	p = getpwnam(s);
	if (p)
		*id = p->pw_uid;
	return p;
}

bool
ids_group(const char *s, gid_t *id)
{
	const struct group *g;

	if (is_number(s, id))
		return true;
	/* cppcheck-suppress getgrnamCalled; as above */
	g = getgrnam(s);
	if (g)
		*id = g->gr_gid;
	return g;
}
