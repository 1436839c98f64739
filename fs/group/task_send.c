/* Sends subtasks to their ranks: a function for each kind of task. */
#include "group/task_send.h"
#include "group/task.h"
#include "host/agent.h"

/* Sends a cell to several ranks on one host. */
static void
send_run_many(const struct task *w, struct agent *a, struct slice who)
{
	const struct cell *c = w->cell;

	agent_send_many(a, who, Trun, FLAG_MARK, (uint32_t)c->number, w->g->recovery.generation,
	    ((struct slice){c->source, c->source_len}));
}

static void
send_run(struct subtask *j, struct agent *a)
{
	struct cell *c = j->w->cell;

	agent_send(a, Trun, FLAG_MARK, j->k->slot, j->tag, -1, (uint32_t)c->number,
	    j->w->g->recovery.generation, ((struct slice){c->source, c->source_len}));
}

static void
send_put(struct subtask *j, struct agent *a)
{
	struct task *w = j->w;
	int i = w->payload.fd_count == 1 ? 0 : (int)(j - w->subtasks);
	const char *path = w->payload.path ? w->payload.path : w->payload.name;

	agent_send(a, Tput, 0, j->k->slot, j->tag, w->payload.fds[i], slice_text(path),
	    slice_text(w->payload.view), slice_text(w->payload.op), w->payload.sizes[i]);
}

static void
send_del(struct subtask *j, struct agent *a)
{
	agent_send(a, Tdel, 0, j->k->slot, j->tag, -1, slice_text(j->w->payload.name));
}

static void
send_move(struct subtask *j, struct agent *a)
{
	agent_send(a, Tmove, 0, j->k->slot, j->tag, -1, slice_text(j->w->payload.name),
	    slice_text(j->w->payload.to));
}

static void
send_reset(struct subtask *j, struct agent *a)
{
	agent_send(a, Treset, 0, j->k->slot, j->tag, -1);
}

static void
send_free(struct subtask *j, struct agent *a)
{
	agent_send(a, Tgc, 0, j->k->slot, j->tag, -1);
}

static void
send_selftest(struct subtask *j, struct agent *a)
{
	agent_send(
	    a, Tselftest, 0, j->k->slot, j->tag, -1, j->w->number, slice_text(j->w->payload.name));
}

static void
send_clone(struct subtask *j, struct agent *a)
{
	agent_send(a, Tclone, 0, j->k->slot, j->tag, j->w->payload.fds[0], j->w->payload.sizes[0]);
}

static void
send_steer(struct subtask *j, struct agent *a)
{
	agent_send(a, Tsteerrun, FLAG_MARK, j->k->slot, j->tag, -1, j->w->number);
}

static const struct {
	int type;
	void (*send)(struct subtask *j, struct agent *a);
} kinds[TASK_KINDS] = {
    [TASK_RUN] = {Trun, send_run},
    [TASK_PUT] = {Tput, send_put},
    [TASK_DEL] = {Tdel, send_del},
    [TASK_MOVE] = {Tmove, send_move},
    [TASK_RESET] = {Treset, send_reset},
    [TASK_FREE] = {Tgc, send_free},
    [TASK_SELFTEST] = {Tselftest, send_selftest},
    [TASK_CLONE] = {Tclone, send_clone},
    [TASK_STEER] = {Tsteerrun, send_steer},
};

int
task_request(const struct task *w)
{
	return kinds[w->kind].type;
}

void
task_send(struct subtask *j, struct agent *a)
{
	kinds[j->w->kind].send(j, a);
}

/* The number of consecutive subtasks, from the i-th on, whose ranks are on the same host. */
static int
count_together(const struct task *w, int i)
{
	const struct agent *a = rank_agent(w->subtasks[i].k);
	int n = 1;

	while (i + n < w->n && rank_agent(w->subtasks[i + n].k) == a)
		n++;
	return n;
}

void
task_send_all(struct task *w)
{
	struct buf who = {0};

	for (int i = 0, n; i < w->n; i += n) {
		struct agent *a = rank_agent(w->subtasks[i].k);

		n = w->kind == TASK_RUN ? count_together(w, i) : 1;
		buf_clear(&who);
		for (int k = i; n > 1 && k < i + n; k++)
			wire_many_add(&who, (unsigned)w->subtasks[k].k->slot, w->subtasks[k].tag,
			    (struct slice){0});
		if (n > 1)
			send_run_many(w, a, (struct slice){who.p, who.n});
		else
			task_send(&w->subtasks[i], a);
	}
	buf_free(&who);
}
