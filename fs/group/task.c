/* Tasks: made, freed, told. */
#include "group/task.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct work *
work_new(struct group *g, enum work_kind kind, const int *ranks, int n)
{
	struct work *w = xcalloc(1, sizeof(*w));

	*w = (struct work){.kind = kind,
	    .g = g,
	    .jobs = xcalloc((size_t)n, sizeof(*w->jobs)),
	    .n = n,
	    .left = n,
	    .first = -1,
	    .t_queued = now_wall()};
	TAILQ_INIT(&w->waiters);
	for (int i = 0; i < n; i++) {
		w->jobs[i] = (struct job){.w = w, .k = group_rank(g, ranks[i])};
		w->jobs[i].value = xstrdup("");
		w->jobs[i].error = xstrdup("");
		w->jobs[i].traceback = xstrdup("");
	}
	return w;
}

void
work_free(struct work *w)
{
	if (!w)
		return;
	for (int i = 0; i < w->n; i++) {
		free(w->jobs[i].value);
		free(w->jobs[i].error);
		free(w->jobs[i].traceback);
	}
	work_close_fds(w);
	loop_timer_del(w->escalation);
	loop_timer_del(w->deadline);
	loop_timer_del(w->stall_timer);
	free(w->jobs);
	free(w->name);
	free(w->view);
	free(w->op);
	free(w->to);
	free(w);
}

bool
work_in_two_steps(const struct work *w)
{
	return w->kind == WORK_PUT || w->kind == WORK_MOVE;
}

void
work_close_fds(struct work *w)
{
	for (int i = 0; i < w->fd_count; i++)
		close(w->fds[i]);
	free(w->fds);
	free(w->sizes);
	w->fds = NULL;
	w->sizes = NULL;
	w->fd_count = 0;
}

bool
work_is_program(const struct work *w)
{
	static const char directive[] = "# ddip run:";
	size_t n = sizeof(directive) - 1;

	return w->kind == WORK_RUN && w->cell->source_len >= n &&
	       memcmp(w->cell->source, directive, n) == 0;
}

const char *
work_state(const struct work *w)
{
	if (!w->done)
		return w->begun ? "running" : "queued";
	switch (w->err.no) {
	case 0:
		return "ok";
	case EINTR:
		return "interrupted";
	case ECANCELED:
		return "cancelled";
	case EHOSTDOWN:
		return "lost";
	case ETIMEDOUT:
		return "timeout";
	default:
		return "error";
	}
}

struct job *
queue_running(struct rank *k)
{
	struct job *j = TAILQ_FIRST(&k->queue);

	return j && j->state != JOB_QUEUED ? j : NULL;
}

bool
queue_works(struct rank *k)
{
	struct job *j = queue_running(k);

	return j && j->state != JOB_PREPARED;
}

bool
group_busy(const struct group *g)
{
	for (int i = 0; i < g->size; i++)
		if (g->life.state == G_READY && !TAILQ_EMPTY(&g->ranks[i].queue))
			return true;
	return false;
}
