/* rankK/env: the environment for a process of another program that joins the group as this rank. */
#include "tree/env_file.h"
#include "group/host.h"
#include "group/lifecycle.h"
#include "group/rank.h"
#include "group/rank_request.h"
#include "group/recovery.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* By default gloo uses the address that the host name resolves to, where the ranks do not
 * listen. */
static void
add_interface(const struct settings *set, struct buf *out)
{
	static const char key[] = "GLOO_SOCKET_IFNAME=";
	const char *inherited = getenv("GLOO_SOCKET_IFNAME");
	char *env = xstrdup(set->env), *save, *line = strtok_r(env, "\n", &save);

	while (line && strncmp(line, key, sizeof(key) - 1) != 0)
		line = strtok_r(NULL, "\n", &save);
	if (line)
		buf_adds(out, line);
	else
		buf_addf(out, "%s%s", key, inherited ? inherited : "lo");
	buf_addc(out, '\0');
	free(env);
}

int
env_file_text(const struct place *at, struct buf *out, struct err *e)
{
	struct rank *k = place_rank(at, e);
	struct group *g = at->g;
	size_t from = out->n;

	if (!k)
		return -e->no;
	if (g->life.state != G_READY)
		return fail(e, ESRCH, "rank %d cannot join: the group is %s (echo start > %s/ctl)",
		    k->number, lifecycle_state_name(g), g->name);
	if (recovery_pending(g))
		return fail(e, EBUSY,
		    "the process group of %s is being rebuilt: join when status says idle",
		    g->name);
	if (g->store.slot == NO_SLOT || !g->store.port)
		return fail(e, EOPNOTSUPP,
		    "%s has no store to meet at: backend none, or a python without torch", g->name);
	rank_env(k, out);
	host_env_gpus(k, out);
	if (hosts_private(g))
		add_interface(&g->set, out);
	for (size_t i = from; i < out->n; i++)
		if (out->p[i] == '\0')
			out->p[i] = '\n';
	return 0;
}
