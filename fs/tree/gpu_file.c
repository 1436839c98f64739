/*
 * Files that report on GPUs: G/gpus, and the files that show which GPUs the ranks use. A reader
 * waits until NVML has been queried again.
 */
#include "tree/gpu_file.h"
#include "group/hosts.h"
#include "host/host_gpus.h"
#include "host/gpustat.h"
#include <errno.h>
#include <stdlib.h>

static struct req_list waiting = TAILQ_HEAD_INITIALIZER(waiting);

/* ---- texts ---- */

static void
add_number(struct buf *out, const char *key, bool is, unsigned long long v)
{
	if (is)
		buf_addf(out, "%s%llu", key, v);
	else
		buf_addf(out, "%s-", key);
}

/* Adds key'text', on one line. */
static void
add_quoted(struct buf *out, const char *key, const char *text)
{
	buf_addf(out, "%s'", key);
	for (; *text; text++)
		buf_addc(out, *text == '\'' || *text == '\n' ? ' ' : *text);
	buf_addc(out, '\'');
}

static void
add_use(struct buf *out, const struct nvml_use *u)
{
	add_number(out, " used_bytes=", u && u->has_memory, u ? u->used : 0);
	add_number(out, " total_bytes=", u && u->has_memory, u ? u->total : 0);
	add_number(out, " util_pct=", u && u->util >= 0, u ? (unsigned long long)u->util : 0);
	add_number(out, " temp_c=", u && u->temp >= 0, u ? (unsigned long long)u->temp : 0);
	add_number(
	    out, " power_mw=", u && u->milliwatts >= 0, u ? (unsigned long long)u->milliwatts : 0);
	add_number(out, " clock_mhz=", u && u->mhz >= 0, u ? (unsigned long long)u->mhz : 0);
	buf_adds(out, u && u->n >= 0 ? " pids=" : " pids=-");
	for (int i = 0; u && i < u->n; i++)
		buf_addf(out, "%s%u", i ? "," : "", u->process[i].pid);
	if (u && *u->error)
		add_quoted(out, " error=", u->error);
}

/* Adds comments about GPUs; `why` says what may be wrong with them. where: "", or " of host a". */
static void
add_comments(struct buf *out, const struct gpus *gpus, const char *where, const struct err *why)
{
	if (gpus->none)
		buf_addf(out, "# gpus none: the ranks%s see no GPU\n", where);
	else if (gpus->n == 0)
		buf_addf(out, "# no known GPU%s%s%s\n", where, why->no ? ": " : "",
		    why->no ? why->text : "");
	else if (why->no)
		buf_addf(out, "#%s %s\n", where, why->text);
}

/* A line for each GPU of a host, numbered per host. */
static void
add_host(struct buf *out, const struct group *g, const struct host *h)
{
	char *where = xasprintf(" of host %s", h->name), label[GPUS_LABEL];
	struct gpus gpus;
	struct err why;

	host_gpus_chosen(h->agent, g->set.gpus, &gpus, &why);
	add_comments(out, &gpus, where, &why);
	for (int k = 0; k < gpus.n; k++) {
		buf_addf(out, "%d host=%s index=%s uuid=%s", k, h->name,
		    gpus_label(gpus.gpu[k], label), gpus.gpu[k]->uuid);
		add_quoted(out, " name=", gpus.gpu[k]->name);
		add_use(out, host_gpus_seen(h->agent, gpus.gpu[k]));
		if (host_gpus_is_old(h->agent))
			add_quoted(out, " error=", host_gpus_is_old(h->agent));
		buf_addc(out, '\n');
	}
	free(where);
}

/* The hosts that have ranks. */
static void
add_hosts(struct buf *out, const struct group *g)
{
	for (int i = 0; i < g->hosts.n; i++)
		if (g->hosts.list[i]->ranks && g->hosts.list[i]->agent)
			add_host(out, g, g->hosts.list[i]);
}

int
gpu_file_text(const struct place *at, struct buf *out, struct err *e)
{
	struct gpus gpus, from;
	struct err why;
	char label[GPUS_LABEL];

	if (hosts_named(at->g)) {
		add_hosts(out, at->g);
		return 0;
	}
	gpustat_chosen(at->g->set.gpus, &gpus);
	gpustat_visible(&from, &why);
	add_comments(out, &gpus, "", &why);
	for (int i = 0; i < gpus.n; i++) {
		const struct nvml_gpu *gpu = gpus.gpu[i];

		buf_addf(out, "%d index=%s uuid=%s", i, gpus_label(gpu, label), gpu->uuid);
		add_quoted(out, " name=", gpu->name);
		add_use(out, gpustat_seen(gpu));
		if (gpustat_is_late())
			add_quoted(
			    out, " error=", "NVML does not answer: this is what it said before");
		buf_addc(out, '\n');
	}
	return 0;
}

static const struct nvml_gpu *
gpu_of(const struct rank *k)
{
	int number = k->number;
	struct gpus gpus = {0};
	struct err why;

	if (!hosts_named(k->g)) {
		gpustat_chosen(k->g->set.gpus, &gpus);
	} else if (k->host) {
		host_gpus_chosen(k->host->agent, k->g->set.gpus, &gpus, &why);
		number = k->local_rank;
	}
	return number < gpus.n ? gpus.gpu[number] : NULL;
}

/* The use of the rank's GPU, as far as it is known. */
static const struct nvml_use *
use_of(const struct rank *k, const struct nvml_gpu *gpu)
{
	if (!gpu)
		return NULL;
	return hosts_named(k->g) ? host_gpus_seen(k->host->agent, gpu) : gpustat_seen(gpu);
}

/* The memory that the rank's process uses on the GPU. NVML reports PIDs of the host, which differ
 * in a container. */
static bool
memory_of(const struct rank *k, const struct nvml_use *u, unsigned long long *bytes)
{
	for (int i = 0; u && k->pid && i < u->n; i++)
		if (u->process[i].pid == (uint32_t)k->pid && u->process[i].bytes != UINT64_MAX) {
			*bytes = u->process[i].bytes;
			return true;
		}
	return false;
}

void
gpu_file_rank_words(const struct rank *k, struct record *out)
{
	const struct nvml_gpu *gpu = gpu_of(k);
	const struct nvml_use *u = use_of(k, gpu);
	unsigned long long bytes = 0;
	char label[GPUS_LABEL];

	record_text(out, "gpu", gpu ? gpus_label(gpu, label) : NULL);
	if (!gpu)
		return;
	if (memory_of(k, u, &bytes))
		record_number(out, "gpu_bytes", (long long)bytes);
	else
		record_none(out, "gpu_bytes");
	if (u && u->util >= 0)
		record_number(out, "gpu_util_pct", u->util);
	else
		record_none(out, "gpu_util_pct");
}

void
gpu_file_rank_lines(const struct rank *k, struct buf *out)
{
	const struct nvml_gpu *gpu = gpu_of(k);
	const struct nvml_use *u = use_of(k, gpu);
	unsigned long long bytes = 0;
	char label[GPUS_LABEL];

	buf_addf(out, "gpu %s\n", gpu ? gpus_label(gpu, label) : "-");
	if (!gpu)
		return;
	buf_addf(out, "gpu_uuid %s\ngpu_name %s\n", gpu->uuid, gpu->name);
	add_number(out, "gpu_bytes ", memory_of(k, u, &bytes), bytes);
	add_number(out, "\ngpu_used_bytes ", u && u->has_memory, u ? u->used : 0);
	add_number(out, "\ngpu_total_bytes ", u && u->has_memory, u ? u->total : 0);
	add_number(out, "\ngpu_util_pct ", u && u->util >= 0, u ? (unsigned long long)u->util : 0);
	add_number(out, "\ngpu_processes ", u && u->n >= 0, u ? (unsigned long long)u->n : 0);
	buf_addc(out, '\n');
	if (u && *u->error)
		buf_addf(out, "gpu_error %s\n", u->error);
}

/* ---- open ---- */

/* Is everything that this file shows up to date? Other hosts are queried only for G/gpus; the other
 * files show the last known state. */
static bool
is_fresh(const struct file *f)
{
	const struct group *g = f->node->at.g;
	bool fresh = true;

	if (!hosts_named(g))
		return gpustat_is_fresh();
	for (int i = 0; i < g->hosts.n && f->node->row->text == gpu_file_text; i++)
		fresh &= !g->hosts.list[i]->ranks || host_gpus_is_fresh(g->hosts.list[i]->agent);
	return fresh;
}

/* Is an answer for this file still outstanding? */
static bool
is_awaited(const struct file *f)
{
	const struct group *g = f->node->at.g;
	bool awaited = false;

	if (!hosts_named(g))
		return gpustat_is_asked();
	for (int i = 0; i < g->hosts.n; i++)
		awaited |= host_gpus_is_asked(g->hosts.list[i]->agent);
	return awaited;
}

/* Generates the text of each waiting file whose data has arrived. */
static void
answer_all(void)
{
	struct req *r = TAILQ_FIRST(&waiting);

	while (r) {
		struct file *f = r->file;

		if (is_awaited(f)) {
			r = TAILQ_NEXT(r, link);
			continue;
		}
		TAILQ_REMOVE(&waiting, r, link);
		buf_clear(&f->text);
		req_done(r, f->node->row->text(&f->node->at, &f->text, &r->err));
		r = TAILQ_FIRST(&waiting); /* answering may have changed the list */
	}
}

void
gpu_file_start(void)
{
	gpustat_on_answer(answer_all);
	host_gpus_on_answer(answer_all);
}

void
gpu_file_stop(void)
{
	struct req *r;

	while ((r = TAILQ_FIRST(&waiting))) {
		TAILQ_REMOVE(&waiting, r, link);
		req_done(r, -ENODEV);
	}
}

static void
stop_waiting(struct req *r, enum interrupt how)
{
	TAILQ_REMOVE(&waiting, r, link);
	req_done(r, -EINTR);
}

/* The text was already generated from the last known state: that will do if it is recent, or if the
 * text contains no GPU. */
static int
open_fresh(struct file *f, struct req *r)
{
	const struct group *g = f->node->at.g;
	struct gpus gpus = {0};

	if (!hosts_named(g))
		gpustat_chosen(g->set.gpus, &gpus);
	if (is_fresh(f) || (!hosts_named(g) && gpus.n == 0))
		return 0;
	r->file = f;
	TAILQ_INSERT_TAIL(&waiting, r, link);
	if (!hosts_named(g))
		gpustat_ask();
	for (int i = 0; hosts_named(g) && i < g->hosts.n; i++) {
		const struct host *h = g->hosts.list[i];

		if (h->ranks && !host_gpus_is_fresh(h->agent))
			host_gpus_ask(h->agent);
	}
	return req_park(r, stop_waiting);
}

const struct file_ops gpu_file_ops = {.open = open_fresh};
