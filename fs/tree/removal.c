/*
 * Remembers what a process did before it removes a variable. Only the most recent entries are kept.
 */
#include "tree/removal.h"
#include "group/group.h"
#include "proc.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { REMEMBERED = 1024, NAME_SIZE = ENTRY_NAME_SIZE };

struct memory {
	pid_t process;	      /* 0: none */
	uint64_t identity;    /* guards against reuse of the PID */
	uint64_t group;	      /* serial; 0: all groups */
	int rank;	      /* of the directory */
	char name[NAME_SIZE]; /* the variable whose text was read; "": a removal was refused */
};

static struct memory memories[REMEMBERED];
static unsigned next;

static struct memory *
find(pid_t process, uint64_t group, int rank, const char *name)
{
	uint64_t identity = proc_identity(process);

	for (size_t i = 0; i < REMEMBERED; i++) {
		struct memory *m = &memories[i];

		if (m->process == process && m->identity == identity &&
		    strcmp(m->name, name) == 0 && (m->group == group || (!m->group && !*name)) &&
		    (m->rank == rank || !*name))
			return m;
	}
	return NULL;
}

static void
remember(pid_t process, const struct place *at, const char *name)
{
	uint64_t group = at->g ? at->g->serial : 0;
	struct memory *m;

	/* 0: a foreign PID namespace, whose processes cannot be told apart */
	if (process == 0 || find(process, group, at->rank, name))
		return;
	m = &memories[next++ % REMEMBERED];
	*m = (struct memory){.process = process,
	    .identity = proc_identity(process),
	    .group = group,
	    .rank = at->rank};
	snprintf(m->name, sizeof(m->name), "%s", name);
}

void
removal_text_read(pid_t process, const struct place *at, const char *name)
{
	remember(process, at, name);
}

void
removal_refused(pid_t process, const struct place *at)
{
	remember(process, at, "");
}

int
removal_check(pid_t process, const struct place *at, const char *name, struct err *e)
{
	struct memory *m = process ? find(process, at->g->serial, at->rank, name) : NULL;

	if (process && find(process, at->g->serial, at->rank, ""))
		return fail(e, EACCES,
		    "%s was kept: this program was refused what lies beside vars, so it would only "
		    "empty it (to remove variables: rm vars/*)",
		    name);
	if (!m)
		return 0;
	*m = (struct memory){0};
	return fail(e, EOPNOTSUPP,
	    "%s was kept: this program has read it as text, which is not the object: copy a view "
	    "of it, as %s.pkl, then rm it",
	    name, name);
}
