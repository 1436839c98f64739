/* A row for each kind of task: how it goes to a rank. */
#include "group/task_send.h"
#include "group/task.h"
#include "host/agent.h"

static void
send_run(struct job *j, struct agent *a)
{
	struct cell *c = j->w->cell;

	agent_send(a, Trun, FLAG_MARK, j->k->slot, j->tag, -1, (uint32_t)c->number,
	    j->w->g->recovery.generation, ((struct slice){c->source, c->source_len}));
	j->k->cell = c->number;
}

static void
send_put(struct job *j, struct agent *a)
{
	struct work *w = j->w;
	int i = w->fd_count == 1 ? 0 : (int)(j - w->jobs);

	agent_send(a, Tput, 0, j->k->slot, j->tag, w->fds[i], slice_text(w->name),
	    slice_text(w->view), slice_text(w->op), w->sizes[i]);
}

static void
send_del(struct job *j, struct agent *a)
{
	agent_send(a, Tdel, 0, j->k->slot, j->tag, -1, slice_text(j->w->name));
}

static void
send_move(struct job *j, struct agent *a)
{
	agent_send(
	    a, Tmove, 0, j->k->slot, j->tag, -1, slice_text(j->w->name), slice_text(j->w->to));
}

static void
send_reset(struct job *j, struct agent *a)
{
	agent_send(a, Treset, 0, j->k->slot, j->tag, -1);
}

static void
send_free(struct job *j, struct agent *a)
{
	agent_send(a, Tgc, 0, j->k->slot, j->tag, -1);
}

static void (*const senders[WORK_KINDS])(struct job *j, struct agent *a) = {
    [WORK_RUN] = send_run,
    [WORK_PUT] = send_put,
    [WORK_DEL] = send_del,
    [WORK_MOVE] = send_move,
    [WORK_RESET] = send_reset,
    [WORK_FREE] = send_free,
};

void
task_send(struct job *j, struct agent *a)
{
	senders[j->w->kind](j, a);
}
