/* A table of fids by number. */
#include "ninep/fid.h"
#include "base/daemon.h"
#include "front/listing.h"
#include "front/lock.h"
#include "front/open_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

static LIST_HEAD(, fid) unused = LIST_HEAD_INITIALIZER(unused); /* to be closed */
static struct timer *close_timer;

struct fid *
fid_find(struct fid_table *t, uint32_t number)
{
	struct fid *f;

	LIST_FOREACH (f, &t->buckets[number % FID_BUCKETS], link)
		if (f->number == number)
			return f;
	return NULL;
}

int
fid_add(struct fid_table *t, uint32_t number, struct node *n)
{
	struct fid *f;

	if (fid_find(t, number) || t->n >= FIDS_MAX) {
		tree_forget(n, 1);
		return t->n >= FIDS_MAX ? -EMFILE : -EBADF;
	}
	f = xcalloc(1, sizeof(*f));
	*f = (struct fid){.number = number, .node = n, .refs = 1};
	LIST_INSERT_HEAD(&t->buckets[number % FID_BUCKETS], f, link);
	t->n++;
	return 0;
}

void
fid_drop(struct fid_table *t, struct fid *f)
{
	LIST_REMOVE(f, link);
	t->n--;
	fid_unref(f);
}

struct fid *
fid_first(struct fid_table *t)
{
	for (int i = 0; t->n && i < FID_BUCKETS; i++)
		if (!LIST_EMPTY(&t->buckets[i]))
			return LIST_FIRST(&t->buckets[i]);
	return NULL;
}

struct fid *
fid_ref(struct fid *f)
{
	f->refs++;
	return f;
}

/* Releases the locks taken through this fid: those on ranges, and those on the whole file. */
static void
unlock(const struct fid *f)
{
	struct lock all = {
	    .ino = f->node->ino, .owner = (uintptr_t)f, .type = F_UNLCK, .last = UINT64_MAX};

	lock_take(&all);
	all.whole = true;
	lock_take(&all);
}

void
fid_move(struct fid *f, struct node *n)
{
	unlock(f);
	tree_forget(f->node, 1);
	f->node = n;
}

static void
destroy(struct fid *f)
{
	unlock(f);
	if (f->file)
		open_file_free(f->file);
	if (f->listing)
		listing_free(f->listing);
	tree_forget(f->node, 1);
	free(f);
}

void
fid_unref(struct fid *f)
{
	if (f && --f->refs == 0)
		destroy(f);
}

static void
close_all(void *arg)
{
	struct fid *f;

	close_timer = NULL;
	while ((f = LIST_FIRST(&unused))) {
		LIST_REMOVE(f, link);
		destroy(f);
	}
}

void
fid_unref_later(struct fid *f)
{
	if (!f || --f->refs > 0)
		return;
	LIST_INSERT_HEAD(&unused, f, link);
	if (!close_timer)
		close_timer = loop_timer(daemon_.loop, 0, close_all, NULL);
}

void
fid_close_unused(void)
{
	loop_timer_del(close_timer);
	close_all(NULL);
}

bool
fid_is_open(const struct fid *f)
{
	return f->file || f->listing || f->opening;
}

struct node *
fid_node(struct node *n)
{
	struct place at = n->at;

	place_ref(&at);
	return tree_node(n->row, at);
}

struct ninep_qid
fid_qid(const struct node *n)
{
	uint8_t type = S_ISDIR(n->row->mode)   ? NINEP_QID_DIR
		       : S_ISLNK(n->row->mode) ? NINEP_QID_LINK
					       : 0;

	return (struct ninep_qid){type, n->ino};
}
