/* Connects the hooks of this folder's modules (hooks.h). */
#include "group/wiring.h"
#include "group/escalation.h"
#include "group/hooks.h"
#include "group/lifecycle.h"
#include "group/processes.h"
#include "group/queue.h"
#include "group/save.h"
#include "group/stall.h"
#include "group/steer.h"
#include "group/watch.h"

static void
part_over(struct subtask *j)
{
	steer_part_over(j);
	save_part_over(j);
}

void
group_init(void)
{
	group_hooks.rank_started = processes_rank_started;
	group_hooks.rank_ready = processes_rank_ready;
	group_hooks.rank_join_failed = processes_rank_join_failed;
	group_hooks.rank_lost = processes_rank_lost;
	group_hooks.rank_exited = queue_exited;
	group_hooks.rank_died = processes_rank_died;
	group_hooks.rank_spawn_failed = processes_rank_spawn_failed;
	group_hooks.store_started = processes_store_started;
	group_hooks.store_died = processes_store_died;
	group_hooks.output_mark = queue_mark;
	group_hooks.output_end = queue_mark_end;
	group_hooks.signal_taken = escalation_taken;
	group_hooks.steer = (struct steer_hooks){.over = steer_over,
	    .part_over = part_over,
	    .arrived = steer_arrived,
	    .watched = watch_reported};
	group_hooks.recovered = lifecycle_recovered;
	group_hooks.task_began = stall_watch;
	group_hooks.rested = lifecycle_rested;
}
