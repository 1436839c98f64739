/*
 * The ranks' queues: sends tasks, handles replies, records outcomes. escalation.c unblocks ranks.
 */
#include "group/queue.h"
#include "base/daemon.h"
#include "group/clone.h"
#include "group/escalation.h"
#include "group/events.h"
#include "group/hooks.h"
#include "group/journal.h"
#include "group/output.h"
#include "group/rank.h"
#include "group/renewed.h"
#include "group/recovery.h"
#include "group/task.h"
#include "group/task_send.h"
#include "host/agent.h"
#include <errno.h>
#include <string.h>

enum { QUEUED_MS = 1000 }; /* how long somebody waits for a queued task before being told */

static void bytes_came(struct task *w, const struct err *e);
static void on_answer(void *arg, struct msg *m, const struct err *e, struct slice trace);

/* At the end; one that may begin within the running cell, before all that must wait for its end. */
static void
enqueue(struct subtask *j)
{
	struct subtask_queue *q = &j->k->queue;
	struct subtask *before = j->w->payload.steer ? TAILQ_FIRST(q) : NULL;

	while (before && (before->state != SUBTASK_QUEUED || before->w->payload.steer))
		before = TAILQ_NEXT(before, link);
	if (before)
		TAILQ_INSERT_BEFORE(before, j, link);
	else
		TAILQ_INSERT_TAIL(q, j, link);
}

void
task_submit(struct task *w)
{
	struct group *g = w->g;

	group_tell(before_task, g);
	g->queued++;
	w->owner.serial = ++g->history.submitted;
	for (int i = 0; i < w->n; i++)
		enqueue(&w->subtasks[i]);
	journal_changed(g);
	queue_pump_all(g);
}

/* Records what kind of names this task leaves in the namespaces. Removals and garbage collections
 * add none, nor does a push of a private name, as `ddip run` pushes the program's files. */
static void
note_names(struct task *w)
{
	enum group_names *names = &w->g->history.names;

	w->escalation.in_new_processes = task_is_program(w) && *names == NAMES_EMPTY;
	if (w->kind == TASK_RESET)
		*names = NAMES_EMPTY;
	else if (task_is_program(w))
		*names = MAX(*names, NAMES_PROGRAM);
	else if (w->kind == TASK_RUN || w->kind == TASK_CLONE ||
		 (w->kind == TASK_PUT && *w->payload.name != '_'))
		*names = NAMES_CELLS;
}

static void
begin(struct task *w)
{
	if (w->begun)
		return;
	w->begun = true;
	if (w->payload.steer)
		event_task_over(w);
	note_names(w);
	w->when.begin = now_wall();
	w->when.begin_ns = now_ns();
	w->g->queued--;
	if (w->cell) {
		w->cell->clock = (enum clock)w->g->set.rank.clock;
		journal_event(w->g, "cell %d start", w->cell->number);
		group_tell(cell_news, w->g, w->cell, CELL_BEGAN, -1);
	}
	escalation_deadline(w);
	event_task_began(w);
}

bool
queue_goes_on(const struct rank *k)
{
	return k->state == R_READY && !k->kill_sent && k->g->life.state == G_READY &&
	       !recovery_running(k->g);
}

/* Is this subtask next on its rank, and is the rank free? */
static bool
is_next(const struct subtask *j)
{
	return TAILQ_FIRST(&j->k->queue) == j && j->state == SUBTASK_QUEUED &&
	       !j->w->payload.held && queue_goes_on(j->k);
}

/* Marks a subtask that is about to be sent. */
static void
mark_sent(struct subtask *j, double now)
{
	j->state = SUBTASK_SENT;
	j->t0 = now;
	j->sent = now_ns();
	j->tag = agent_tag(rank_agent(j->k), j->k->slot, task_request(j->w), on_answer, j);
	if (j->w->kind == TASK_RUN)
		j->k->cell = j->w->cell->number;
}

/*
 * A cell or a self-test begins on all its ranks at once. Its collectives are therefore never
 * matched with those of another task, and no rank waits in it for a peer that cannot come. A clone
 * begins when they are all free, with the rank that is copied. Other tasks begin rank by rank.
 */
static void
pump(struct rank *k)
{
	struct group *g = k->g;
	struct subtask *j = TAILQ_FIRST(&k->queue);
	struct task *w;

	if (!j || g->queue_held || !is_next(j))
		return;
	w = j->w;
	/* ranks mostly end in order, so while the last one is busy few have to be checked */
	for (int i = w->n; task_begins_at_once(w) && i-- > 0;)
		if (!is_next(&w->subtasks[i]))
			return;
	if (task_awaits_bytes(w) || !recovery_begin(g))
		return;
	if (!w->begun && w->kind == TASK_RUN)
		w->cell->notice = renewed_notice(w);
	begin(w);
	if (task_has_collectives(w)) {
		for (int i = 0; i < w->n; i++)
			mark_sent(&w->subtasks[i], w->when.begin);
		task_send_all(w);
	} else if (task_awaits_bytes(w)) {
		w->payload.source->state = SUBTASK_SENT;
		clone_read(w, bytes_came);
	} else {
		mark_sent(j, now_wall());
		task_send(j, rank_agent(k));
	}
	journal_changed(g);
}

void
queue_begin_within(struct task *w)
{
	w->kind = TASK_STEER;
	for (int i = 0; i < w->n; i++) {
		struct subtask *j = &w->subtasks[i];

		TAILQ_REMOVE(&j->k->queue, j, link);
		TAILQ_INSERT_HEAD(&j->k->queue, j, link);
	}
	begin(w);
	for (int i = 0; i < w->n; i++)
		mark_sent(&w->subtasks[i], w->when.begin);
	task_send_all(w);
	journal_changed(w->g);
}

void
queue_pump_all(struct group *g)
{
	for (int i = 0; i < g->size; i++)
		pump(&g->ranks[i]);
}

void
event_output_mark(struct rank *k, uint64_t tag, const struct spool_mark *at)
{
	struct subtask *j = queue_running(k);

	if (!j || j->tag != tag)
		return;
	j->begin = *at;
	j->begun = true;
	group_tell(output_moved, k->g);
}

void
event_output_end(struct rank *k, const struct spool_mark *at)
{
	struct subtask *j = queue_running(k);

	if (!j || !j->begun || j->ended)
		return;
	j->end = *at;
	j->ended = true;
}

static void
finish(struct task *w)
{
	struct group *g = w->g;

	w->done = true;
	if (w->payload.steer)
		event_task_over(w);
	w->when.end = now_wall();
	w->when.end_ns = now_ns();
	if (!w->begun)
		g->queued--;
	task_stop_timers(w);
	task_close_fds(w);
	escalation_outcome(w);
	task_answer_all(w);
	w->ended(w);
	journal_changed(g);
	queue_pump_all(g);
	recovery_begin(g);
	event_rested(g);
}

/* Did its rank die by itself? The escalation kills ranks because of another's failure. */
static bool
died_first(const struct subtask *j)
{
	return j->no == EHOSTDOWN && !j->signal.killed;
}

/* Takes the failure of a subtask as that of its task, if it is the first one. */
static void
take_failure(const struct subtask *j, const struct err *e)
{
	struct task *w = j->w;
	bool first = !w->err.no;

	/* errors of its peers may arrive before the death of a rank is known */
	if (!first && !(died_first(j) && w->err.no == EREMOTEIO))
		return;
	w->err = *e;
	w->first = (int)(j - w->subtasks);
	if (first && w->cell)
		group_tell(cell_news, w->g, w->cell, CELL_FAILED, j->k->number);
}

/* A subtask has ended, with outcome e. */
static void
subtask_over(struct subtask *j, const struct err *e)
{
	struct task *w = j->w;
	struct rank *k = j->k;
	struct group *g = k->g;

	TAILQ_REMOVE(&k->queue, j, link);
	if (j->begun && !j->ended)
		j->end = output_now(k); /* its rank cannot say any more where its output ends */
	j->ended |= j->begun;
	if (j->ended) {
		k->output.last[0] = j->begin.size[SPOOL_STDERR];
		k->output.last[1] = j->end.size[SPOOL_STDERR];
	}
	j->state = SUBTASK_DONE;
	j->t1 = now_wall();
	j->no = e->no;
	if (w->cell && k->cell == w->cell->number)
		k->cell = 0;
	if (j->no)
		take_failure(j, e);
	event_subtask_over(j);
	w->left--;
	if (w->left == 0) {
		finish(w);
		return;
	}
	escalation_ended(j);
	pump(k);
	recovery_begin(g); /* this rank may have been the last one that it waited for */
}

static const int outcome_errno[OUT_COUNT] = {
    [OUT_OK] = 0,
    [OUT_RAISED] = EREMOTEIO,
    [OUT_INTERRUPTED] = EINTR,
    [OUT_SYNTAX] = ENOEXEC,
    [OUT_EXIT] = EREMOTEIO,
    [OUT_CUT_OFF] = EREMOTEIO,
};

/* A rank that takes an interrupt may close a connection before its peer has taken its own. */
static int
run_errno(const struct subtask *j)
{
	const struct task_escalation *x = &j->w->escalation;

	if (j->outcome == OUT_CUT_OFF && x->step && (x->why == WHY_USER || x->why == WHY_WRITER))
		return EINTR;
	return outcome_errno[j->outcome];
}

static void
fail_timeout(const struct subtask *j, struct err *e)
{
	bool said = strncmp(j->error, "ddip.Timeout: ", strlen("ddip.Timeout: ")) == 0;

	fail(e, ETIMEDOUT, "rank %d: the cell took longer than timeout %g%s%.800s", j->k->number,
	    j->w->g->set.timeout, said ? "" : ": ", said ? "" : j->error);
}

/* The cell has ended on this rank. */
static void
run_answer(struct subtask *j, struct msg *m)
{
	struct slice value, error, traceback, table, digest;
	struct err e;
	uint8_t outcome;

	e.no = 0;
	if (wire_unpack(m, m->type, &e, &outcome, &value, &error, &traceback, &table, &digest,
		&j->collectives, &j->end.size[0], &j->end.size[1], &j->end.size[2],
		&j->end.records) == 0) {
		output_place(j->k, &j->end);
		j->ended = true;
		j->outcome = MIN(outcome, OUT_COUNT - 1);
		task_set_text(&j->value, value);
		task_set_text(&j->error, error);
		task_set_text(&j->traceback, traceback);
		task_set_text(&j->digest, digest);
		rank_set_table(j->k, table);
		if (run_errno(j) && j->w->escalation.timed_out)
			fail_timeout(j, &e);
		else if (run_errno(j))
			fail(&e, run_errno(j), "rank %d: %.800s", j->k->number, j->error);
	}
	subtask_over(j, &e);
}

/* A rank's measurements have arrived. Wrong results count as a failure of the rank that got
 * them. */
static void
selftest_answer(struct subtask *j, struct msg *m)
{
	struct err e = {0};
	struct slice lines;
	uint32_t wrong;

	if (wire_unpack(m, Rselftest, &e, &lines, &wrong, &j->collectives) == 0) {
		task_set_text(&j->value, lines);
		if (wrong)
			fail(&e, EREMOTEIO, "rank %d received %u wrong elements: cat %s/selftest",
			    j->k->number, wrong, j->w->g->name);
	}
	subtask_over(j, &e);
}

/* A rank has taken another one's namespace. */
static void
clone_answer(struct subtask *j, struct msg *m)
{
	struct slice table, failures;
	struct err e = {0};
	uint32_t names;
	uint8_t wrapped;

	if (wire_unpack(m, Rclone, &e, &table, &failures, &names, &wrapped) == 0) {
		rank_set_table(j->k, table);
		clone_taken(j, failures, names, wrapped, &e);
	}
	subtask_over(j, &e);
}

/* All ranks have answered the first step: commits on all of them, or aborts if one has failed. */
static void
commit(struct task *w)
{
	bool keep = w->err.no == 0;

	for (int i = 0; i < w->n; i++) {
		struct subtask *j = &w->subtasks[i];

		if (j->state != SUBTASK_PREPARED)
			continue;
		j->state = SUBTASK_COMMIT;
		j->signal.sent = false;
		j->tag = agent_tag(rank_agent(j->k), j->k->slot, Tcommit, on_answer, j);
		agent_send(rank_agent(j->k), Tcommit, 0, j->k->slot, j->tag, -1, (uint32_t)keep);
	}
}

static void
first_step_done(struct subtask *j)
{
	struct task *w = j->w;

	j->state = SUBTASK_PREPARED;
	w->ready++;
	if (w->ready == w->n)
		commit(w);
	else
		recovery_begin(w->g); /* this rank is idle: a pending rebuild may begin */
}

static void
first_step_failed(struct subtask *j, const struct err *e)
{
	struct task *w = j->w;
	bool first = j->state == SUBTASK_QUEUED || j->state == SUBTASK_SENT;

	if (first)
		w->ready++;
	if (!w->err.no)
		w->err = *e;
	if (first && w->ready == w->n)
		commit(w);
	subtask_over(j, e);
}

/* The subtask has failed on this rank. May end the task. */
static void
subtask_failed(struct subtask *j, const struct err *e)
{
	task_set_text(&j->error, slice_text(e->text));
	if (task_in_two_steps(j->w))
		first_step_failed(j, e);
	else
		subtask_over(j, e);
}

/* Turns the EINTR of a self-test that timed out into ETIMEDOUT. */
static void
set_timeout(const struct task *w, struct err *e)
{
	if (e->no == EINTR && w->escalation.timed_out)
		fail(e, ETIMEDOUT, "the selftest took longer than timeout %g", w->g->set.timeout);
}

static void
on_answer(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct subtask *j = arg;
	struct slice table;
	struct err why;

	why.no = 0;
	if (!m) {
		why = *e;
		set_timeout(j->w, &why);
		task_set_text(&j->traceback, trace.n ? trace : slice_text(why.text));
		subtask_failed(j, &why);
		return;
	}
	if (m->type == Rrun || m->type == Rsteerrun) {
		run_answer(j, m);
	} else if (m->type == Rput || m->type == Rmove) {
		first_step_done(j);
	} else if (m->type == Rselftest) {
		selftest_answer(j, m);
	} else if (m->type == Rclone) {
		clone_answer(j, m);
	} else {
		int asked = j->state == SUBTASK_COMMIT ? Tcommit : task_request(j->w);
		bool good = wire_unpack(m, wire_reply(asked), &why, &table) == 0;

		if (good && m->type == Rgc)
			task_set_text(&j->value, table);
		else if (good)
			rank_set_table(j->k, table);
		subtask_over(j, &why);
	}
}

bool
task_cancel(struct task *w, int error, const char *why)
{
	for (int i = 0; i < w->n; i++)
		if (w->subtasks[i].state != SUBTASK_QUEUED)
			return false;
	fail(&w->err, error, "%s", why);
	w->left = 0;
	for (int i = 0; i < w->n; i++) {
		TAILQ_REMOVE(&w->subtasks[i].k->queue, &w->subtasks[i], link);
		w->subtasks[i].state = SUBTASK_DONE;
		w->subtasks[i].no = w->err.no;
		task_set_text(&w->subtasks[i].error, slice_text(why));
	}
	finish(w);
	return true;
}

bool
task_withdraw(struct task *w)
{
	return task_cancel(w, ECANCELED, "withdrawn: its writer ended while it was queued");
}

/* Drops the task on ranks where it has not begun. Returns true if that ended the task, which may
 * have been freed. */
static bool
task_drop_queued(struct task *w, int error, const char *why)
{
	struct err e = {0};

	fail(&e, error, "%s", why);
	for (int i = 0; i < w->n && w->left > 0; i++) {
		struct subtask *j = &w->subtasks[i];
		bool last = w->left == 1;

		if (j->state != SUBTASK_QUEUED)
			continue;
		subtask_failed(j, &e);
		if (last)
			return true;
	}
	return false;
}

/* The namespace that a clone copies has been read: the other ranks may begin. */
static void
bytes_came(struct task *w, const struct err *e)
{
	struct subtask *first = w->payload.source;
	struct group *g = w->g;
	bool last = w->left == 1;

	if (first->state == SUBTASK_SENT)
		subtask_over(first, e);
	if (!last && e->no)
		task_drop_queued(w, e->no, e->text);
	queue_pump_all(g);
}

static void
drop(struct rank *k, const struct err *e)
{
	struct subtask *j;

	while ((j = TAILQ_FIRST(&k->queue))) {
		if (j->state == SUBTASK_SENT || j->state == SUBTASK_COMMIT)
			agent_forget(rank_agent(k), j->tag);
		subtask_failed(j, e);
	}
}

void
queue_drop_all(struct group *g, const struct err *e)
{
	g->queue_held = true; /* what is yet to be dropped must not begin */
	for (int i = 0; i < g->size; i++)
		drop(&g->ranks[i], e);
	g->queue_held = false;
}

void
queue_lost(struct rank *k, const struct err *e)
{
	struct subtask *j = TAILQ_FIRST(&k->queue);

	if (j && j->state == SUBTASK_PREPARED)
		subtask_failed(j, e);
}

void
event_rank_exited(struct rank *k)
{
	static const struct err none;
	struct subtask *j = queue_running(k);

	if (!j || !task_is_program(j->w))
		return;
	agent_forget(rank_agent(k), j->tag);
	subtask_over(j, &none);
}

void
queue_drop_queued(struct rank *k, const struct err *e)
{
	for (;;) {
		struct subtask *j;

		TAILQ_FOREACH (j, &k->queue, link)
			if (j->state == SUBTASK_QUEUED && !task_must_end(j->w))
				break;
		if (!j)
			return;
		subtask_failed(j, e);
	}
}

void
queue_drop_all_queued(struct group *g, const struct err *e)
{
	g->queue_held = true;
	for (int i = 0; i < g->size; i++)
		queue_drop_queued(&g->ranks[i], e);
	g->queue_held = false;
	queue_pump_all(g);
}

static void
interrupt(struct task *w, enum interrupt_why why)
{
	if (w->done || task_must_begin(w))
		return;
	if (task_cancel(w, EINTR, "interrupted while it was queued"))
		return;
	if (!task_drop_queued(w, EINTR, "interrupted before this rank began it"))
		escalation_interrupt(w, why);
}

static void
waiter_interrupted(struct req *r, enum interrupt how)
{
	struct task *w = r->waits_for;

	if (how == CLIENT_ENDS && task_withdraw(w))
		return;
	if (how != DETACH && !task_must_begin(w)) {
		interrupt(w, how == CLIENT_ENDS ? WHY_WRITER : WHY_USER);
		return;
	}
	TAILQ_REMOVE(&w->waiters, r, link);
	req_done(r, how == DETACH ? 0 : -EINTR);
}

static void
waits_long(void *arg)
{
	struct task *w = arg;

	w->escalation.queued_timer = NULL;
	group_tell(task_waits, w);
}

static bool
is_queued(const struct task *w)
{
	for (int i = 0; i < w->n; i++)
		if (w->subtasks[i].state == SUBTASK_QUEUED)
			return true;
	return false;
}

int
task_wait(struct task *w, struct req *r)
{
	if (!w->escalation.queued_timer && is_queued(w))
		w->escalation.queued_timer = loop_timer(daemon_.loop, QUEUED_MS, waits_long, w);
	r->waits_for = w;
	TAILQ_INSERT_TAIL(&w->waiters, r, link);
	return req_park(r, waiter_interrupted);
}

void
task_interrupt(struct task *w)
{
	interrupt(w, WHY_USER);
}
