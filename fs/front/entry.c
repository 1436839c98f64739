/* Operations on names in directories. */
#include "front/entry.h"
#include "front/front.h"
#include "group/group.h"
#include "group/journal.h"
#include "group/registry.h"
#include "group/settings.h"
#include "group/start.h"
#include "tree/removal.h"
#include "tree/staged_file.h"
#include "tree/var_change.h"
#include "tree/var_names.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

bool
entry_in_vars(const struct node *dir)
{
	return dir->row->flags & ROW_VARIABLES;
}

static struct node *
named_node(const struct node *dir, const char *part, const char *name)
{
	struct place at = dir->at;

	place_ref(&at);
	at.name = xstrdup(name);
	return tree_node(tree_child(dir->row, part), at);
}

struct node *
entry_var(const struct node *dir, const char *name)
{
	struct place at = dir->at;
	int n = (int)var_names_directory(&at, name);
	char *outer;

	if (n == 0)
		return named_node(dir, at.inside ? "KEY" : "NAME", name);
	place_ref(&at);
	outer = at.inside;
	at.inside = xasprintf("%s%s%.*s", outer ? outer : "", outer ? "/" : "", n, name);
	free(outer);
	return tree_node(tree_child(dir->row, "NAME.d"), at);
}

static struct node *
staged_node(const struct node *dir, const char *name)
{
	staged_make(&dir->at, name);
	return named_node(dir, "STAGED", name);
}

struct node *
entry_known(struct node *dir, const char *name)
{
	const struct place *at = &dir->at;
	int error;
	struct node *n = tree_lookup(dir, name, &error);

	if (n || error != -ENOENT || !entry_may_ask(dir, name))
		return n;
	/* others would have been found: here only the rank knows */
	return at->frame || var_names_directory(at, name) || at->inside ? entry_var(dir, name)
									: NULL;
}

bool
entry_may_ask(const struct node *dir, const char *name)
{
	return (entry_in_vars(dir) || dir->at.frame || dir->at.inside) && !place_gone(&dir->at) &&
	       var_names_may_ask(&dir->at, name);
}

int
entry_ask(const struct node *n, struct req *r)
{
	return var_names_ask(&n->at, r);
}

/* Is it the inside of a variable, where keys can be set? */
static bool
sets_inside(const struct place *at)
{
	return at->inside && !at->frame && !at->cell;
}

struct node *
entry_create(const struct node *dir, const char *name, int flags, mode_t mode, struct err *e)
{
	bool staged = staged_wants(name, flags, mode);
	struct var_name v;
	int r = 0;

	*e = (struct err){0};
	if (!entry_in_vars(dir) && (!sets_inside(&dir->at) || staged))
		e->no = EACCES;
	else if (place_gone(&dir->at))
		r = place_fail(&dir->at, e);
	else if (!dir->at.inside && !staged)
		r = var_parse(name, dir->at.rank < 0, &v, e);
	if (r < 0)
		front_journal(dir, name, e);
	if (e->no)
		return NULL;
	if (dir->at.inside)
		var_names_made(&dir->at, name);
	return staged ? staged_node(dir, name) : entry_var(dir, name);
}

int
entry_make_dir(const struct node *dir, const char *name, struct err *e)
{
	int r = dir == tree_root() ? group_make(name, e) : -EACCES;

	if (r == 0) {
		settings_take_options(group_find(name), journal_fail);
		start_make_ranks(group_find(name));
	}
	if (e->text[0])
		note("mkdir %s: %s", name, e->text);
	return r;
}

int
entry_remove_dir(const struct node *dir, const char *name, struct err *e)
{
	struct group *g = dir == tree_root() ? group_find(name) : NULL;
	int r;

	if (!g)
		return dir == tree_root() ? -ENOENT : -EACCES;
	group_ref(g);
	r = group_remove(g, e);
	if (r < 0)
		journal_fail(g, e, "rmdir");
	else
		tree_remove_group(g);
	group_unref(g);
	return r;
}

int
entry_remove(const struct node *dir, const char *name, pid_t process, struct err *e)
{
	struct place at = dir->at;
	int r = -EACCES;

	at.name = xstrdup(name);
	if (place_gone(&dir->at))
		r = place_fail(&dir->at, e);
	else if (entry_in_vars(dir)) /* a staged file, or else the variable of that name */
		r = staged_remove(&at) == 0 ? 0 : var_change_remove(&at, process, e);
	else
		removal_refused(process, &dir->at);
	if (r < 0)
		front_journal(dir, name, e);
	free(at.name);
	return r;
}

int
entry_rename(const struct node *dir, const char *name, const struct node *to_dir, const char *to,
    struct err *e)
{
	struct place a = dir->at, b = to_dir->at;
	int r = -EACCES;

	a.name = xstrdup(name);
	b.name = xstrdup(to);
	if (place_gone(&dir->at))
		r = place_fail(&dir->at, e);
	else if (place_gone(&to_dir->at))
		r = place_fail(&to_dir->at, e);
	else if (entry_in_vars(dir) && entry_in_vars(to_dir))
		r = staged_concerns(&a, &b) ? staged_rename(&a, &b, e)
					    : var_change_rename(&a, &b, e);
	if (r < 0)
		front_journal(dir, name, e);
	free(a.name);
	free(b.name);
	return r;
}
