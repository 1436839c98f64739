/*
 * Tests of fs/tree, without FUSE: paths lead to nodes and back; listings, sizes and `names`, also
 * in pieces, are right. The test plays the engines, see fake_agent.h.
 */
#include "fake_agent.h"
#include "base/daemon.h"
#include "group/queue.h"
#include "group/registry.h"
#include "object/var_table.h"
#include "tree/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

enum { LOOP_ROUNDS = 1000 };

static struct group *
begin(int size)
{
	struct group *g = fake_begin(size);

	tree_init();
	return g;
}

static void
end(void)
{
	tree_fini();
	fake_end();
}

/* The rank reports these variables: lines of names, or of whole rows. */
static void
report(struct group *g, int rank, const char *rows)
{
	var_table_unref(g->ranks[rank].table);
	g->ranks[rank].table = var_table_new(fake_slice(rows));
}

/* Looks a path up, one directory at a time. Returns its node; NULL with *error. */
static struct node *
walk(const char *path, int *error)
{
	char *copy = xstrdup(path), *save;
	struct node *n = tree_root();

	for (char *name = strtok_r(copy, "/", &save); name && n; name = strtok_r(NULL, "/", &save))
		n = tree_lookup(n, name, error);
	free(copy);
	return n;
}

static int
error_of(const char *path)
{
	int error = 0;

	return walk(path, &error) ? 0 : error;
}

/* All names in a directory, separated by blanks. The caller frees the string. */
static char *
list(const char *path)
{
	int error;
	struct tree_cursor c = {.dir = walk(path, &error)};
	struct dir_entry e;
	struct buf b = {0};

	while (c.dir && tree_next(&c, &e))
		buf_addf(&b, "%s%s", b.n ? " " : "", e.name);
	tree_cursor_free(&c);
	return buf_take(&b);
}

#define CHECK_LIST(path, names)                                                                    \
	do {                                                                                       \
		char *l_ = list(path);                                                             \
		CHECK_STR(l_, names);                                                              \
		free(l_);                                                                          \
	} while (0)

/* A path leads to a node that has the same path, and to the same inode number each time. */
static void
test_paths(void)
{
	static const char *const paths[] = {"README", "g", "g/ctl", "g/cell", "g/cell.1",
	    "g/cell.0-1", "g/cells", "g/cells/1", "g/cells/1/rank0", "g/cells/1/rank0/stdout",
	    "g/cells/last", "g/rank0", "g/rank1/status", "g/vars", "g/vars/x", "g/vars/x.json",
	    "g/vars/x.mean.npy", "g/rank1/vars/y", "g/rank1/vars/y.p5"};
	struct group *g = begin(2);

	fake_cell(g, "pass", 0, NULL);
	report(g, 0, "x\n");
	report(g, 1, "x\ny\n");
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		int error = 0;
		struct node *n = walk(paths[i], &error), *again = walk(paths[i], &error);
		struct buf b = {0};

		CHECK(n && again);
		if (!n || !again) {
			fprintf(stderr, "%s: %d\n", paths[i], error);
			continue;
		}
		tree_path(n, &b);
		CHECK_STR(b.p, paths[i]);
		CHECK(n->ino == again->ino);
		/* a file whose clients may wait in an fsync has a private node, and so its own
		 * inode lock */
		CHECK((n == again) == !(n->row->flags & ROW_PRIVATE_NODE));
		for (size_t k = 0; k < i; k++) {
			struct node *other = walk(paths[k], &error);

			CHECK(other && other->ino != n->ino);
		}
		buf_free(&b);
	}
	end();
}

static void
test_absent(void)
{
	static const struct {
		const char *path;
		int error;
	} rows[] = {{"h", -ENOENT}, {"g/nothing", -ENOENT}, {"g/rank2", -ENOENT},
	    {"g/rank01", -ENOENT}, {"g/rank-1", -ENOENT}, {"g/rank", -ENOENT},
	    {"g/cells/0", -ENOENT}, {"g/cells/2", -ENOENT}, {"g/cells/01", -ENOENT},
	    {"g/cells/1/rank1", -ENOENT}, {"g/cell.2", -EINVAL}, {"g/cell.x", -EINVAL},
	    {"g/cell.", -EINVAL}, {"g/vars/z", -ENOENT}, {"g/vars/z.json", -ENOENT},
	    {"g/vars/y", -ENOENT}, {"g/vars/x.nothing", -EINVAL}, {"g/rank0/vars/x.mean", -EINVAL},
	    {"g/vars/x.swp", -ENOENT}, {"g/vars/.x", -ENOENT}, {"g/vars/a-b", -ENOENT},
	    {"README/x", -ENOENT}};

	static const int zero[] = {0};
	struct group *g = begin(2);

	fake_cell(g, "pass", 1, zero);
	fake_ran(fake_take(Trun, 0), OUT_OK, "");
	report(g, 0, "x\n");
	report(g, 1, "y\n");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int error = error_of(rows[i].path);

		CHECK(error == rows[i].error);
		if (error != rows[i].error)
			fprintf(stderr, "%s: %d\n", rows[i].path, error);
	}
	end();
}

static void
test_lists(void)
{
	struct group *g = begin(2);
	struct err e = {0};

	CHECK_LIST("", "README SKILL.md wait version trace g");
	CHECK(group_make("a", &e) == 0);
	CHECK_LIST("", "README SKILL.md wait version trace g a");
	CHECK_LIST("g/cells", "last");
	fake_cell(g, "pass", 0, NULL);
	fake_cell(g, "pass", 1, (const int[]){1});
	CHECK_LIST("g/cells", "last 1 2");
	CHECK_LIST("g/cells/1/rank1", "stdout stderr result traceback locals status");
	CHECK_LIST("g/cells/2",
	    "report report.json source status wait result error traceback stream ctl rank1");
	report(g, 0, "b\na\nc\n");
	report(g, 1, "d\n");
	CHECK_LIST("g/vars", "a b c");
	CHECK_LIST("g/rank1/vars", "d");
	CHECK(group_remove(group_find("a"), &e) == 0);
	CHECK_LIST("", "README SKILL.md wait version trace g");
	end();
}

/* Entries that appear or vanish during a listing may or may not be listed; all others are listed
 * once. */
static void
test_list_goes_on(void)
{
	struct group *g = begin(1);
	int error;
	struct tree_cursor c = {.dir = walk("g/vars", &error)};
	struct dir_entry e;

	report(g, 0, "a\nb\nc\n");
	CHECK(tree_next(&c, &e) && strcmp(e.name, "a") == 0);
	report(g, 0, "b\n");
	CHECK(tree_next(&c, &e) && strcmp(e.name, "b") == 0);
	CHECK(tree_next(&c, &e) && strcmp(e.name, "c") == 0);
	CHECK(!tree_next(&c, &e));
	tree_cursor_free(&c);
	end();
}

/* Everything in a removed group is gone, also behind nodes that are held. */
static void
test_gone(void)
{
	struct err e = {0};
	struct node *a, *vars;
	int error;

	begin(1);
	CHECK(group_make("a", &e) == 0);
	a = walk("a", &error);
	vars = walk("a/vars", &error);
	CHECK(group_remove(group_find("a"), &e) == 0);
	CHECK(place_gone(&a->at) && place_gone(&vars->at));
	CHECK(!tree_lookup(a, "ctl", &error) && error == -ENODEV);
	CHECK(error_of("a") == -ENOENT);
	CHECK(place_fail(&a->at, &e) == -ENODEV);
	CHECK_STR(e.text, "the group a is gone");
	end();
}

static uint64_t
size_of(const char *path)
{
	int error;
	struct node *n = walk(path, &error);
	struct stat st = {0};

	if (n)
		tree_stat(n, &st);
	CHECK(n != NULL);
	return (uint64_t)st.st_size;
}

/* Texts report their size. Views report none before they are open, or rsync(1) would take an object
 * for a file with as many bytes, changed in the same second, and not push it. */
static void
test_sizes(void)
{
	struct group *g = begin(1);
	struct node *a;
	struct stat st;
	int error;

	report(g, 0, "a\tndarray\tfloat32\t2,3\t24\tcpu\n");
	CHECK(size_of("version") > 0 && size_of("g/status") > 0);
	CHECK(size_of("g/result") == strlen("cells/last/result"));
	CHECK(size_of("g/vars/a") == 0 && size_of("g/vars/a.npy") == 0);
	a = walk("g/vars/a.npy", &error);
	a->size = UINT64_MAX; /* as a rank says */
	tree_stat(a, &st);
	CHECK(st.st_size == INT64_MAX && st.st_blocks == INT64_MAX / 512 + 1);
	end();
}

/* ---- names ---- */

static void
open_names(struct group *g, struct file *f, struct fake_req *r, int *result)
{
	int error;

	*f = (struct file){.node = walk("g/names", &error), .flags = O_RDONLY};
	*r = (struct fake_req){.r = {.file = f}};
	*result = tree_open(f, &r->r);
}

static void
test_few_names(void)
{
	struct group *g = begin(2);
	struct fake_req r;
	struct file f;
	int result;

	report(g, 0, "a\tint\t-\t-\t-\t-\nb\tstr\t-\t-\t3\t-\n");
	report(g, 1, "a\tint\t-\t-\t-\t-\n");
	open_names(g, &f, &r, &result);
	CHECK(result == 0);
	CHECK_STR(f.text.p, "a type=int dtype=- shape=- bytes=- device=-\n"
			    "b type=str dtype=- shape=- bytes=3 device=- ranks=0\n");
	tree_release(&f);
	end();
}

static void
count(void *arg)
{
	++*(int *)arg;
}

/* So many names that other requests are served in between; they are those that existed at the
 * open. */
static void
test_many_names(void)
{
	enum { NAMES = 20000 };

	struct group *g = begin(1);
	struct buf rows = {0};
	struct fake_req r;
	struct file f;
	int result, lines = 0, others = 0, waited = 0;

	for (int i = 0; i < NAMES; i++)
		buf_addf(&rows, "v%06d\tint\t-\t-\t-\t-\n", i);
	report(g, 0, rows.p);
	open_names(g, &f, &r, &result);
	CHECK(result == PARKED && !r.done);
	report(g, 0, "other\n");
	while (!r.done && waited < LOOP_ROUNDS) {
		loop_timer(daemon_.loop, 0, count, &others);
		loop_once(daemon_.loop, 0);
		waited++;
	}
	CHECK(r.done && r.result == 0 && waited > 1 && others == waited);
	for (size_t i = 0; i < f.text.n; i++)
		lines += f.text.p[i] == '\n';
	CHECK(lines == NAMES && strncmp(f.text.p, "v000000 type=int ", 17) == 0);
	tree_release(&f);

	/* a client that is interrupted meanwhile */
	report(g, 0, rows.p);
	open_names(g, &f, &r, &result);
	CHECK(result == PARKED);
	r.interrupt(&r.r, STOP_WORK);
	CHECK(r.done && r.result == -EINTR);
	fake_step();
	tree_release(&f);
	buf_free(&rows);
	end();
}

/* Who found a name before a reset, which no request waits for, and opens it meanwhile, gets the
 * object: the end of a reset wakes no open. */
static void
test_open_during_reset(void)
{
	static const struct rank_set first = {{1}};
	struct group *g = begin(1);
	struct task *w = task_new(g, TASK_RESET, &first);
	struct fake_req r = {.r = {.file = NULL}};
	struct file f = {.flags = O_RDONLY};
	int error;

	report(g, 0, "x\tint\t-\t-\t-\t-\n");
	f.node = walk("g/rank0/vars/x", &error);
	r.r.file = &f;
	w->ended = task_free;
	task_submit(w);
	fake_step();
	CHECK(tree_open(&f, &r.r) == PARKED);
	fake_step();
	CHECK(fake_count(Tget, 0) == 1);
	r.interrupt(&r.r, STOP_WORK);
	CHECK(r.done && r.result == -EINTR);
	fake_step();
	end();
}

/* The kernel gets the node that it knows if nobody has it open or may be about to open it; else its
 * thread gets a node of its own. */
static void
test_looked_up(void)
{
	enum { ME = 11, ANOTHER = 12 };

	struct group *g = begin(1);
	struct node *n, *cell;
	int error;

	report(g, 0, "x\n");
	n = tree_looked_up(walk("g/vars/x.npy", &error), ME);
	n->size = 5;
	CHECK(tree_looked_up(walk("g/vars/x.npy", &error), ME) == n && n->lookups == 2);
	CHECK(n->size == 0);
	CHECK(tree_looked_up(walk("g/vars/x.npy", &error), ANOTHER) != n);
	CHECK(tree_looked_up(walk("g/vars/x.npy", &error), 0) != n);
	CHECK(tree_looked_up(walk("g/rank0/vars/x.npy", &error), ME) != n);
	CHECK(tree_looked_up(walk("g/vars/x", &error), ME) != n);
	n->opens = 1;
	n->seeker = -1; /* as file_open() does */
	CHECK(tree_looked_up(walk("g/vars/x.npy", &error), ME) != n);
	n->opens = 0;
	CHECK(walk("g/vars/x.npy", &error) != n); /* is looked up at this moment */
	CHECK(tree_looked_up(walk("g/vars/x.npy", &error), 13) == n && n->seeker == 13);
	cell = tree_looked_up(walk("g/cell", &error), ME);
	CHECK(tree_looked_up(walk("g/cell", &error), ME) != cell);
	end();
}

int
main(void)
{
	test_paths();
	test_absent();
	test_lists();
	test_list_goes_on();
	test_gone();
	test_sizes();
	test_few_names();
	test_many_names();
	test_open_during_reset();
	test_looked_up();
	return CHECK_DONE();
}
