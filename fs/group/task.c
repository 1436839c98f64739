/* Creates, frees and describes tasks. */
#include "group/task.h"
#include "proc.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Most texts are empty and a task may have thousands: all empty ones share this string. */
static char no_text[] = "";

static void
text_free(char *s)
{
	if (s != no_text)
		free(s);
}

void
task_set_text(char **to, struct slice s)
{
	text_free(*to);
	*to = s.n ? slice_dup(s) : no_text;
}

struct task *
task_new(struct group *g, enum task_kind kind, const struct rank_set *ranks)
{
	int n = rank_set_count(ranks);
	struct task *w = xcalloc(1, sizeof(*w));
	struct subtask *j;

	*w = (struct task){.kind = kind,
	    .g = g,
	    .subtasks = xcalloc((size_t)n, sizeof(*w->subtasks)),
	    .n = n,
	    .left = n,
	    .first = -1,
	    .escalation.verdict = no_text,
	    .owner.program = no_text,
	    .when.queued = now_wall()};
	TAILQ_INIT(&w->waiters);
	j = w->subtasks;
	RANK_SET_EACH (rank, ranks) {
		*j = (struct subtask){.w = w, .k = group_rank(g, rank)};
		j->value = j->error = j->traceback = j->digest = no_text;
		j++;
	}
	return w;
}

void
task_set_owner(struct task *w, pid_t process, uid_t uid, const struct task *before)
{
	char *program;

	w->owner.pid = process;
	w->owner.uid = uid;
	if (!process)
		return;
	program = before && before->owner.pid == process ? xstrdup(before->owner.program)
							 : proc_program(process);
	/* the part of ddip that is Python */
	if (strcmp(program + strcspn(program, " "), " ddip_tool") == 0)
		snprintf(program, strlen(program) + 1, "ddip");
	task_set_text(&w->owner.program, slice_text(program));
	free(program);
}

void
task_ranks(const struct task *w, struct record *out)
{
	struct buf b = {0};

	record_begin_list(out, "ranks");
	for (int i = 0; i < w->n; i++) {
		int rank = w->subtasks[i].k->number;

		if (out->form == RECORD_JSON)
			record_number(out, NULL, rank);
		else
			buf_addf(&b, "%s%d", i ? "," : "", rank);
	}
	record_end_list(out);
	if (out->form != RECORD_JSON)
		record_text(out, "ranks", b.n ? b.p : "");
	buf_free(&b);
}

void
task_stop_timers(struct task *w)
{
	struct task_escalation *e = &w->escalation;

	loop_timer_del(e->timer);
	loop_timer_del(e->deadline);
	loop_timer_del(e->stall_timer);
	loop_timer_del(e->ended_timer);
	loop_timer_del(e->queued_timer);
	loop_timer_del(e->vain_timer);
	e->timer = e->deadline = e->stall_timer = e->ended_timer = e->queued_timer = e->vain_timer =
	    NULL;
}

void
task_free(struct task *w)
{
	if (!w)
		return;
	for (int i = 0; i < w->n; i++) {
		text_free(w->subtasks[i].value);
		text_free(w->subtasks[i].error);
		text_free(w->subtasks[i].traceback);
		text_free(w->subtasks[i].digest);
	}
	task_close_fds(w);
	task_stop_timers(w);
	text_free(w->escalation.verdict);
	free(w->escalation.recorded);
	text_free(w->owner.program);
	free(w->subtasks);
	free(w->payload.name);
	free(w->payload.path);
	free(w->payload.view);
	free(w->payload.op);
	free(w->payload.to);
	free(w);
}

bool
task_in_two_steps(const struct task *w)
{
	return w->kind == TASK_PUT || w->kind == TASK_MOVE;
}

bool
task_is_cell(const struct task *w)
{
	return w->kind == TASK_RUN || w->kind == TASK_STEER;
}

bool
task_has_collectives(const struct task *w)
{
	return task_is_cell(w) || w->kind == TASK_SELFTEST;
}

bool
task_begins_at_once(const struct task *w)
{
	return task_has_collectives(w) || (w->kind == TASK_CLONE && !w->begun);
}

bool
task_awaits_bytes(const struct task *w)
{
	return w->kind == TASK_CLONE && w->begun && !w->payload.fd_count;
}

bool
task_must_end(const struct task *w)
{
	return (w->kind == TASK_DEL || w->kind == TASK_RESET) && w->begun &&
	       w->g->life.state == G_READY && !w->g->hosts.lacking;
}

bool
task_must_begin(const struct task *w)
{
	for (int i = 0; i < w->n; i++)
		if (w->subtasks[i].state == SUBTASK_QUEUED)
			return task_must_end(w);
	return false;
}

void
task_close_fds(struct task *w)
{
	for (int i = 0; i < w->payload.fd_count; i++)
		close(w->payload.fds[i]);
	free(w->payload.fds);
	free(w->payload.sizes);
	w->payload.fds = NULL;
	w->payload.sizes = NULL;
	w->payload.fd_count = 0;
}

void
task_answer_all(struct task *w)
{
	struct req *r;

	while ((r = TAILQ_FIRST(&w->waiters))) {
		TAILQ_REMOVE(&w->waiters, r, link);
		if (w->answer) {
			w->answer(w, r);
			continue;
		}
		r->err = w->err;
		r->err.text[0] = '\0'; /* the text is reported once, by ended() */
		req_done(r, -w->err.no);
	}
}

bool
task_is_program(const struct task *w)
{
	static const char directive[] = "# ddip run:";
	size_t n = sizeof(directive) - 1;

	return w->kind == TASK_RUN && w->cell->source_len >= n &&
	       memcmp(w->cell->source, directive, n) == 0;
}

double
task_seconds(const struct task *w)
{
	if (!w->begun)
		return 0;
	return in_seconds((w->done ? w->when.end_ns : now_ns()) - w->when.begin_ns);
}

const char *
task_state(const struct task *w)
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

struct subtask *
queue_running(struct rank *k)
{
	struct subtask *j = TAILQ_FIRST(&k->queue);

	return j && j->state != SUBTASK_QUEUED ? j : NULL;
}

const char *
task_clock(enum clock clock)
{
	static const char *const names[] = {[CLOCK_OPTIMIZER] = "optimizer",
	    [CLOCK_FORWARD] = "forward",
	    [CLOCK_COLLECTIVE] = "collective"};

	return names[clock];
}

struct subtask *
queue_outermost(struct rank *k)
{
	struct subtask *j = queue_running(k), *around;

	if (!j || j->w->kind != TASK_STEER)
		return j;
	around = TAILQ_NEXT(j, link);
	return around && around->w->cell == j->w->cell->steered.cell ? around : j;
}

bool
queue_works(struct rank *k)
{
	struct subtask *j = queue_running(k);

	return j && j->state != SUBTASK_PREPARED;
}

bool
group_busy(const struct group *g)
{
	for (int i = 0; i < g->size; i++)
		if (g->life.state == G_READY && !TAILQ_EMPTY(&g->ranks[i].queue))
			return true;
	return false;
}
