/*
 * Fuzzes what engines and agents send to the daemon: replies to its calls, also of other types, and
 * notices, in any order, with any fields, and damaged. The daemon behind it is whole but for its
 * front ends; tests/unit/fake_agent.c stands in for the agent. Whatever comes, the daemon goes on,
 * and each request is answered once.
 */
#include "../unit/fake_agent.h"
#include "frames.h"
#include "base/daemon.h"
#include "group/hooks.h"
#include "group/lifecycle.h"
#include "group/steer.h"
#include "group/watch.h"
#include "group/queue.h"
#include "group/registry.h"
#include "tree/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 2, FILES = 8, STEPS = 64, MESSAGE = 4096 };

static struct {
	struct file file;
	struct fake_req opening, reading;
} opened[FILES];

static int n_opened;

static struct node *
walk(const char *path)
{
	char *copy = xstrdup(path), *save;
	struct node *n = tree_root();
	int error;

	for (char *name = strtok_r(copy, "/", &save); name && n; name = strtok_r(NULL, "/", &save))
		n = tree_lookup(n, name, &error);
	free(copy);
	return n;
}

/* Opens a file whose text comes from ranks, or that lists what they have said. */
static void
open_some(unsigned which)
{
	static const char *const paths[] = {"g/vars/x", "g/vars/x.npy", "g/vars/x.mean.npy",
	    "g/vars/x.gather", "g/rank0/vars/y", "g/rank1/vars/y.npy", "g/rank0/stack",
	    "g/rank1/gpu", "g/stall", "g/status", "g/names", "g/vars/x.same"};
	struct node *n = n_opened < FILES ? walk(paths[which % ARRAY_LEN(paths)]) : NULL;
	struct file *f = n ? &opened[n_opened].file : NULL;
	struct fake_req *r = f ? &opened[n_opened].opening : NULL;
	int now;

	if (!f)
		return;
	n_opened++;
	*f = (struct file){.node = n, .flags = O_RDONLY};
	r->r.file = f;
	now = tree_open(f, &r->r);
	if (now != PARKED)
		req_done(&r->r, now);
}

/* Reads what has been opened. */
static void
read_all(void)
{
	for (int i = 0; i < n_opened; i++) {
		struct fake_req *r = &opened[i].reading;

		if (!opened[i].opening.done || opened[i].opening.result < 0 || r->r.want)
			continue;
		r->r.want = MESSAGE;
		r->r.file = &opened[i].file;
		tree_read(&opened[i].file, &r->r);
	}
}

static void
task_over(struct task *w)
{
	task_free(w);
}

static void
submit(struct group *g, enum task_kind kind)
{
	static const struct rank_set both = {{3}};
	struct task *w;
	struct err e;

	if (lifecycle_accepts(g, &e) < 0)
		return;
	w = task_new(g, kind, &both);
	w->ended = task_over;
	w->payload.name = xstrdup("x");
	w->payload.to = xstrdup("y");
	w->payload.view = xstrdup("");
	w->payload.op = xstrdup("");
	if (kind == TASK_PUT) {
		w->payload.fds = xcalloc(1, sizeof(*w->payload.fds));
		w->payload.sizes = xcalloc(1, sizeof(*w->payload.sizes));
		w->payload.fds[0] = memfd_create("fuzz", MFD_CLOEXEC);
		w->payload.fd_count = 1;
	}
	task_submit(w);
}

/* Something that makes the daemon ask the ranks. */
static void
ask(struct group *g, unsigned what)
{
	static const struct rank_set all;
	struct err e;

	if (g->life.state == G_STOPPED)
		lifecycle_start(g, &e);
	else if (what % 16 == 8)
		watch_submit(g, fake_slice("x > 2"), &e);
	else if (what % 8 == 0)
		steer_submit(g, fake_slice("x = 2"), &e);
	else if (what % 4 == 0)
		cell_submit(g, &all, fake_slice("x = 1"), &e);
	else if (what % 4 == 1)
		submit(g, TASK_PUT + what / 4 % (TASK_CLONE - TASK_PUT));
	else
		open_some(what / 4);
}

/* Sends a message with any body. fd: some of its kind come with memory, at times too little. */
static void
send(int type, unsigned slot, uint64_t tag, uint8_t how)
{
	struct buf b = {0};
	struct msg m = {.type = (uint8_t)type, .slot = slot, .tag = tag, .fd = -1};

	fill(&b, type);
	damage(&b, how);
	if (how & 16) {
		m.fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		m.flags = FLAG_FD;
		if (ftruncate(m.fd, how & 32 ? (off_t)DEVICE_SLOT * DEVICE_SLOTS : take()) < 0)
			abort();
		if (how & 64)
			fcntl(m.fd, F_ADD_SEALS, F_SEAL_SHRINK);
	}
	m.body = b.p;
	m.len = (uint32_t)b.n;
	conn_forward(fake_conn, &m);
	if (m.fd >= 0)
		close(m.fd);
	buf_free(&b);
	fake_step();
}

/* Any request that is still to be answered. */
static const struct fake_msg *
pending(void)
{
	for (int type = 0; type < 256; type++)
		for (int rank = FAKE_AGENT; wire_name(type) && rank < RANKS; rank++) {
			struct fake_msg *m = wire_kind(type) == 'T' ? fake_take(type, rank) : NULL;

			if (m)
				return m;
		}
	return NULL;
}

static void
say(struct group *g)
{
	uint8_t how = take(), kind = take(), rank = take();
	const struct fake_msg *asked = NULL;
	int type = kind;

	if (rank & 128)
		asked = pending();
	if (asked && kind < 224)
		type = kind < 192 ? wire_reply(asked->m.type) : Rerror;
	while (!wire_name(type) || (asked && type == Nmany))
		type = (type + 1) % 256;
	if (asked)
		send(type, asked->m.slot, asked->m.tag, how);
	else
		send(type, rank % 8 == 3 ? SLOT_AGENT : (unsigned)g->ranks[rank % RANKS].slot,
		    take() & 1, how);
}

/* Processes that were killed end. */
static void
bury(void)
{
	for (int rank = 0; rank < RANKS; rank++) {
		bool killed = false;
		const struct fake_msg *m;

		while ((m = fake_take(Nsignal, rank)))
			killed |= (uint8_t)m->m.body[0] == SIGKILL;
		if (killed)
			fake_dies(rank, SIGKILL);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct group *g = fake_begin(RANKS);

	tree_init();
	input = (struct slice){(const char *)data, size};
	memset(opened, 0, sizeof(opened));
	n_opened = 0;
	for (int i = 0; i < STEPS; i++) {
		uint8_t what = take();

		if (what < 96)
			ask(g, what);
		else if (what < 104)
			fake_pass(take() % 8);
		else
			say(g);
		fake_step();
		bury();
		read_all();
	}
	fake_pass(1);
	for (int i = 0; i < n_opened; i++)
		if (!opened[i].opening.done && opened[i].opening.interrupt)
			opened[i].opening.interrupt(&opened[i].opening.r, CLIENT_ENDS);
	fake_step();
	for (int i = 0; i < n_opened; i++)
		if (opened[i].opening.done && opened[i].opening.result >= 0)
			tree_release(&opened[i].file);
	tree_fini();
	fake_end();
	if (check_failures)
		abort();
	return 0;
}
