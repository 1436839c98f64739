/*
 * rankK/gpu: what NVML reports, and what the rank reports (gpu_report.py). A rank that is stuck
 * outside Python is not waited for: the file then has NVML's part only.
 */
#include "tree/rank_gpu_file.h"
#include "base/patience.h"
#include "group/external.h"
#include "group/hosts.h"
#include "group/rank.h"
#include "host/agent.h"
#include "tree/gpu_file.h"
#include <errno.h>
#include <stdlib.h>

/* r and patience are cleared by whichever event answers first; the rest is freed when the rank
 * answers. */
struct gpu_open {
	struct req *r; /* NULL: already answered */
	struct patience *patience;
	struct agent *agent;
	int slot;
	uint32_t tag;
};

static void
answer(struct gpu_open *o, int result)
{
	struct req *r = o->r;

	o->r = NULL;
	patience_end(o->patience);
	o->patience = NULL;
	req_done(r, result);
}

static void
on_report(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct gpu_open *o = arg;
	struct slice text;
	struct err why;

	if (o->r && m && wire_unpack(m, Rget, &why, NULL, NULL, NULL, NULL, &text) == 0)
		buf_add(&o->r->file->text, text.p, text.n);
	else if (o->r)
		buf_addf(&o->r->file->text, "error %s\n", m ? why.text : e->text);
	if (o->r)
		answer(o, 0);
	free(o);
}

static void
cancel(struct gpu_open *o)
{
	if (agent_slot_lives(o->agent, o->slot))
		agent_send(o->agent, Ncancel, 0, o->slot, 0, -1, o->tag);
}

static void
on_late(void *arg)
{
	struct gpu_open *o = arg;

	o->patience = NULL;
	buf_adds(&o->r->file->text, "error the rank is stuck where no Python runs: this is what "
				    "NVML says\n");
	cancel(o);
	answer(o, 0);
}

static void
interrupted(struct req *r, enum interrupt how)
{
	struct gpu_open *o = r->waits_for;

	cancel(o);
	answer(o, -EINTR);
}

static int
gpu_open(struct file *f, struct req *r)
{
	struct rank *k = place_rank(&f->node->at, &r->err);
	struct gpu_open *o;

	if (!k || external_refuse(k, &r->err) < 0)
		return -r->err.no;
	gpu_file_rank_lines(k, &f->text);
	if (k->slot == NO_SLOT || k->state == R_SPAWNING)
		return 0;
	o = xcalloc(1, sizeof(*o));
	*o = (struct gpu_open){.r = r, .agent = rank_agent(k), .slot = k->slot};
	r->file = f;
	r->waits_for = o;
	req_park(r, interrupted);
	o->patience = patience_begin(hosts_local_pid(k), on_late, o);
	o->tag = agent_tag(o->agent, k->slot, Tget, on_report, o);
	agent_send(o->agent, Tget, 0, k->slot, o->tag, -1, slice_text("__main__"),
	    slice_text("gpu"), slice_text(""));
	return PARKED;
}

const struct file_ops rank_gpu_file_ops = {.open = gpu_open};
