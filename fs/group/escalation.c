/* Ends cells that do not end by themselves, step by step, from a signal to SIGKILL. */
#include "group/escalation.h"
#include "base/daemon.h"
#include "group/clone.h"
#include "group/events.h"
#include "group/external.h"
#include "group/journal.h"
#include "group/rank.h"
#include "group/rank_request.h"
#include "group/recovery.h"
#include "group/task.h"
#include <errno.h>

enum { AGAIN_MS = 100, STEP_MS = 1000 };

static void on_second_step(void *arg);

static uint64_t
milliseconds(double seconds)
{
	return (uint64_t)(seconds * MS_PER_S);
}

static void
enter_step(struct task *w, int step)
{
	w->escalation.step = step;
	if (w->cell)
		journal_event(w->g, "cell %d escalation step=%d", w->cell->number, step);
}

/* Is its rank working on it now? */
static bool
works(const struct subtask *j)
{
	return j->state == SUBTASK_SENT || j->state == SUBTASK_COMMIT;
}

/* Step 1 may have caught a rank just before it entered a collective. If others have ended and the
 * rank has not taken the signal by now, it may wait for its GPU, where a collective of NCCL waits
 * for them. While none has ended, this may be a step that succeeds. */
static void
abort_again(void *arg)
{
	struct task *w = arg;
	bool nccl = task_has_collectives(w) && w->left < w->n;

	for (int i = 0; i < w->n; i++) {
		struct subtask *j = &w->subtasks[i];

		if (!works(j))
			continue;
		if (nccl && !j->signal.last_taken)
			rank_abort_nccl(j->k);
		else
			rank_abort(j->k, false);
	}
	w->escalation.timer = loop_timer(daemon_.loop, STEP_MS - AGAIN_MS, on_second_step, w);
}

void
escalation_signal(struct subtask *j, enum interrupt_why why)
{
	struct task *w = j->w;

	if (task_awaits_bytes(w)) {
		clone_interrupt(w);
		return;
	}
	if (!w->number)
		rank_cancel(j->k, j->tag);
	else
		rank_interrupt(j->k, w->number, why);
	j->signal.sent = true;
}

/* Interrupts what is run within the cell, too: the ranks go on with the cell after that only. */
static void
interrupt_within(struct task *w)
{
	for (int i = 0; i < w->n; i++) {
		struct subtask *j = works(&w->subtasks[i]) ? queue_running(w->subtasks[i].k) : NULL;

		if (j && j->w != w && j->w->kind == TASK_STEER && !j->w->escalation.step)
			escalation_interrupt(j->w, w->escalation.why);
	}
}

/* Signals the ranks not signalled yet, and ends the collectives that ranks are known to be in. */
static void
first_step(struct task *w)
{
	loop_timer_del(w->escalation.timer);
	w->escalation.timer = NULL;
	if (w->escalation.step == 0)
		enter_step(w, 1);
	interrupt_within(w);
	for (int i = 0; i < w->n; i++) {
		struct subtask *j = &w->subtasks[i];

		if (!works(j))
			continue;
		if (!j->signal.sent)
			escalation_signal(j, w->escalation.why);
		rank_abort(j->k, false);
	}
	w->escalation.timer = loop_timer(daemon_.loop, AGAIN_MS, abort_again, w);
}

static void
on_grace_over(void *arg)
{
	struct task *w = arg;

	w->escalation.timer = NULL;
	w->escalation.why = WHY_PEER;
	first_step(w);
}

static void
kill_deaf_rank(struct subtask *j)
{
	struct task *w = j->w;
	struct err e = {0};

	j->signal.killed = true;
	fail(&e, EHOSTDOWN,
	    "rank %d %s for %g s after the %s and was killed: its variables are "
	    "lost (killafter off: never)",
	    j->k->number, w->number ? "ran no Python" : "did not stop", w->g->set.killafter + 1,
	    w->escalation.timed_out ? "timeout" : "interrupt");
	journal_fail(w->g, &e, "killafter");
	recovery_kill(j->k, "rank-killed");
}

/* Step 3, for ranks that have not taken the signal in time. */
static void
third_step(struct task *w)
{
	enter_step(w, 3);
	for (int i = 0; i < w->n; i++)
		if (works(&w->subtasks[i]) && !w->subtasks[i].signal.taken &&
		    !w->subtasks[i].signal.killed)
			kill_deaf_rank(&w->subtasks[i]);
}

/* Runs every second until the task has ended. */
static void
on_second_step(void *arg)
{
	struct task *w = arg;
	const struct settings *set = &w->g->set;
	uint64_t wait;
	bool deaf = false;

	w->escalation.timer = NULL;
	if (w->escalation.step == 1) {
		enter_step(w, 2);
		w->escalation.second_step = now_ns();
	}
	for (int i = 0; i < w->n; i++) {
		struct subtask *j = &w->subtasks[i];

		if (!works(j))
			continue;
		if (!j->signal.sent)
			escalation_signal(
			    j, w->escalation.why); /* its commit has begun in the meantime */
		deaf |= !j->signal.taken && !j->signal.killed;
		if (!task_has_collectives(w))
			continue; /* the only collectives to end would be those of later cells */
		if (!j->signal.last_taken)
			rank_abort(j->k, true);
		else if (w->left < w->n && set->grace >= 0)
			rank_abort_stuck(j->k, set->grace);
	}
	wait = STEP_MS;
	if (deaf && set->killafter >= 0) {
		uint64_t limit = milliseconds(set->killafter);
		uint64_t passed = (now_ns() - w->escalation.second_step) / NS_PER_MS;

		if (passed >= limit)
			third_step(w);
		else
			wait = MIN(wait, limit - passed);
	}
	w->escalation.timer = loop_timer(daemon_.loop, wait, on_second_step, w);
}

void
escalation_interrupt(struct task *w, enum interrupt_why why)
{
	w->escalation.why = why;
	for (int i = 0; i < w->n; i++)
		w->subtasks[i].signal.sent = w->subtasks[i].signal.last_taken = false;
	first_step(w);
}

void
event_signal_taken(struct rank *k, uint32_t number)
{
	struct subtask *j;

	if (!number)
		return;
	TAILQ_FOREACH (j, &k->queue, link) /* one may run within another */
		if (works(j) && j->w->number == number)
			j->signal.taken = j->signal.last_taken = true;
}

static void on_ended_long_ago(void *arg);

/* A program in new processes has ended on a rank, and has not on others, which may wait for it. The
 * process groups of other programs and cells must not suffer. */
static void
watch_others(struct task *w)
{
	if (w->escalation.in_new_processes && w->n == w->g->size && w->g->set.grace >= 0 &&
	    !w->escalation.ended_timer)
		w->escalation.ended_timer =
		    loop_timer(daemon_.loop, milliseconds(w->g->set.grace), on_ended_long_ago, w);
}

static void
on_ended_long_ago(void *arg)
{
	struct task *w = arg;

	w->escalation.ended_timer = NULL;
	for (int i = 0; i < w->n; i++) {
		const struct subtask *j = &w->subtasks[i];

		if (j->state != SUBTASK_DONE)
			continue;
		if (queue_works(j->k)) {
			watch_others(w);
			continue;
		}
		if (!w->escalation.disconnected)
			journal_event(w->g, "cell %d ended-ranks-disconnected", w->cell->number);
		w->escalation.disconnected = true;
		rank_disconnect(j->k);
	}
}

void
escalation_ended(struct subtask *j)
{
	struct task *w = j->w;
	struct group *g = w->g;

	if (!task_has_collectives(w))
		return;
	if (!j->no) {
		watch_others(w);
		return;
	}
	if (w->cell)
		journal_event(g, "cell %d failed rank=%d errno=%s", w->cell->number, j->k->number,
		    err_name(j->no));
	if (w->escalation.timer || g->set.grace < 0)
		return;
	w->escalation.timer =
	    loop_timer(daemon_.loop, milliseconds(g->set.grace), on_grace_over, w);
	event_task_failed(w);
}

void
escalation_end_grace(struct task *w)
{
	if (w->escalation.step || !w->escalation.timer)
		return;
	loop_timer_del(w->escalation.timer);
	on_grace_over(w);
}

static void
time_is_up(void *arg)
{
	struct task *w = arg;

	w->escalation.deadline = NULL;
	w->escalation.timed_out = true;
	w->escalation.why = WHY_TIMEOUT;
	if (w->cell)
		journal_event(w->g, "cell %d timeout", w->cell->number);
	first_step(w);
}

void
escalation_deadline(struct task *w)
{
	if (task_has_collectives(w) && w->g->set.timeout > 0)
		w->escalation.deadline =
		    loop_timer(daemon_.loop, milliseconds(w->g->set.timeout), time_is_up, w);
}

/* Did the task end differently on its ranks? If so, one may have left a collective half done. */
static bool
is_uneven(const struct task *w)
{
	for (int i = 1; i < w->n; i++)
		if (w->subtasks[i].no != w->subtasks[0].no)
			return true;
	return false;
}

static uint32_t
collectives_done(const struct subtask *j)
{
	return j->collectives & COLLECTIVES_DONE;
}

/* Has a collective raised on one rank only, so that it may wait for another, or because a
 * connection is gone? */
static bool
has_broken(const struct task *w)
{
	uint32_t first = w->subtasks[0].collectives;

	for (int i = 0; i < w->n; i++)
		if ((w->subtasks[i].collectives & COLLECTIVES_LOST) ||
		    ((w->subtasks[i].collectives ^ first) & COLLECTIVES_RAISED))
			return true;
	return false;
}

/* Did every rank do the same number of collectives? If not, one of them still lacks a peer and
 * would be matched with a collective of the next cell. */
static bool
collectives_are_even(const struct task *w)
{
	struct buf b = {0};
	bool even = true;

	for (int i = 1; i < w->n && even; i++)
		even = collectives_done(&w->subtasks[i]) == collectives_done(&w->subtasks[0]);
	if (even || !w->cell)
		return even;
	for (int i = 0; i < w->n; i++)
		buf_addf(
		    &b, " rank%d=%u", w->subtasks[i].k->number, collectives_done(&w->subtasks[i]));
	journal_event(w->g, "cell %d uneven-collectives%s", w->cell->number, b.p);
	buf_free(&b);
	return false;
}

/* May an external rank, whose collectives cannot be counted, wait for one that this cell began? */
static bool
leaves_external(const struct task *w)
{
	return w->err.no != ENOEXEC && external_any(w->g);
}

void
escalation_outcome(struct task *w)
{
	if (!task_has_collectives(w) || !w->begun || w->g->size == 1)
		return;
	if (w->kind == TASK_STEER) {
		w->cell->steered.cell->w->escalation.broken_within |= w->escalation.step > 0;
		return;
	}
	if (!collectives_are_even(w))
		recovery_request(w->g, "uneven-collectives");
	else if (w->escalation.step || w->escalation.broken_within)
		recovery_request(w->g, "interrupted");
	else if (w->escalation.disconnected)
		recovery_request(w->g, "disconnected");
	else if (has_broken(w) || (w->err.no && (is_uneven(w) || leaves_external(w))))
		recovery_request(w->g, "failed");
}
