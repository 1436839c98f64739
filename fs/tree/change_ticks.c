/* Turns changes in groups into ticks for the files that show them. */
#include "tree/change_ticks.h"
#include "group/cell.h"
#include "group/hooks.h"
#include "host/ticks.h"
#include "tree/var_ticks.h"

static void
status_changed(struct group *g)
{
	ticks_path(TICK_MODIFY, "%s/status", g->name);
}

static void
error_changed(struct group *g)
{
	ticks_path(TICK_MODIFY, "%s/error", g->name);
}

static void
cell_ended(struct group *g)
{
	ticks_path(TICK_CLOSE, "%s/status", g->name);
}

/* Makes the kernel look for the cell's directory again: it then forgets what it has looked up
 * there, which would hold the cell as long as memory is plentiful. */
static void
cell_dropped(struct cell *c)
{
	ticks_path(TICK_MODIFY, "%s/cells/%d", c->g->name, c->number);
}

static void
output_grew(struct rank *k, int stream)
{
	ticks_path(TICK_MODIFY, "%s/rank%d/%s", k->g->name, k->number, spool_names[stream]);
}

static void
table_changed(struct rank *k, const struct var_table *before, const struct var_table *now)
{
	var_ticks_table(k->g, k->number, before, now);
}

void
change_ticks_init(void)
{
	group_news.status_changed = status_changed;
	group_news.error_changed = error_changed;
	group_news.cell_ended = cell_ended;
	group_news.cell_dropped = cell_dropped;
	group_news.output_grew = output_grew;
	group_news.table_changed = table_changed;
}
