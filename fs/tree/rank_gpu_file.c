/*
 * rankK/gpu: what NVML reports, and what the rank reports (gpu_report.py). A rank that is stuck
 * outside Python is not waited for: the file then has NVML's part only.
 */
#include "tree/rank_gpu_file.h"
#include "group/external.h"
#include "group/rank.h"
#include "tree/gpu_file.h"
#include "tree/rank_view.h"
#include <errno.h>

static int
tell_why(struct file *f, struct err *e)
{
	buf_addf(
	    &f->text, "error %s%s\n", e->text, e->no == EAGAIN ? ": this is what NVML says" : "");
	return 0;
}

static int
gpu_open(struct file *f, struct req *r)
{
	struct rank *k = place_rank(&f->node->at, &r->err);

	if (!k || external_refuse(k, &r->err) < 0)
		return -r->err.no;
	gpu_file_rank_lines(k, &f->text);
	if (k->slot == NO_SLOT || k->state == R_SPAWNING)
		return 0;
	return rank_view_ask(f, r, k, "__main__", "gpu", tell_why);
}

const struct file_ops rank_gpu_file_ops = {.open = gpu_open};
