/*
 * Files that report on GPUs: G/gpus, and the files that show which GPUs the ranks use. A reader
 * waits until NVML has been queried again.
 */
#include "tree/gpu_file.h"
#include "group/host.h"
#include "host/host_gpus.h"
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
	const struct agent *a = host_reporter(h);
	bool named = host_is_named(h);
	const char *of = named ? " of host " : "", *column = named ? " host=" : "";
	char *where = xasprintf("%s%s", of, h->name), label[GPUS_LABEL];
	struct gpus gpus;
	struct err why;

	host_gpus_chosen(a, g->set.gpus, &gpus, &why);
	add_comments(out, &gpus, where, &why);
	for (int k = 0; k < gpus.n; k++) {
		buf_addf(out, "%d%s%s index=%s uuid=%s", k, column, h->name,
		    gpus_label(gpus.gpu[k], label), gpus.gpu[k]->uuid);
		add_quoted(out, " name=", gpus.gpu[k]->name);
		add_use(out, host_gpus_seen(a, gpus.gpu[k]));
		if (host_gpus_is_old(a))
			add_quoted(out, " error=", host_gpus_is_old(a));
		buf_addc(out, '\n');
	}
	free(where);
}

/* Does the group use this host's GPUs? This machine's also before it is started. */
static bool
is_used(const struct host *h)
{
	return !host_is_named(h) || (h->ranks && h->agent);
}

int
gpu_file_text(const struct place *at, struct buf *out, struct err *e)
{
	const struct group_hosts *hosts = &at->g->hosts;

	for (int i = 0; i < hosts->n; i++)
		if (is_used(hosts->list[i]))
			add_host(out, at->g, hosts->list[i]);
	return 0;
}

static const struct nvml_gpu *
gpu_of(const struct rank *k)
{
	const struct host *h = host_of_rank(k);
	int number = k->host ? k->local_rank : k->number;
	struct gpus gpus;
	struct err why;

	if (!h)
		return NULL;
	host_gpus_chosen(host_reporter(h), k->g->set.gpus, &gpus, &why);
	return number < gpus.n ? gpus.gpu[number] : NULL;
}

/* The use of the rank's GPU, as far as it is known. */
static const struct nvml_use *
use_of(const struct rank *k, const struct nvml_gpu *gpu)
{
	return gpu ? host_gpus_seen(host_reporter(host_of_rank(k)), gpu) : NULL;
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

/* The agent that is asked before this file shows a host's GPUs; NULL: none. Other hosts are asked
 * for G/gpus only; the other files show the last known state. */
static struct agent *
asked_for(const struct file *f, const struct host *h)
{
	struct gpus gpus;
	struct err why;
	struct agent *a = h->agent;

	if (!host_is_named(h)) /* it may have to be started again */
		a = host_agent(f->node->at.g, h, &why);
	if (!is_used(h) || !a || host_is_far(h))
		return f->node->row->text == gpu_file_text ? a : NULL;
	host_gpus_chosen(a, f->node->at.g->set.gpus, &gpus, &why);
	/* a machine without GPUs gets none */
	return gpus.n || !host_gpus_is_known(a) ? a : NULL;
}

/* Is an answer for this file still outstanding? */
static bool
is_awaited(const struct file *f)
{
	const struct group_hosts *hosts = &f->node->at.g->hosts;
	bool awaited = false;

	for (int i = 0; i < hosts->n; i++)
		awaited |= host_gpus_is_asked(host_reporter(hosts->list[i]));
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
	const struct group_hosts *hosts = &f->node->at.g->hosts;
	bool fresh = true;

	for (int i = 0; i < hosts->n; i++) {
		struct agent *a = asked_for(f, hosts->list[i]);

		if (host_gpus_is_fresh(a))
			continue;
		host_gpus_ask(a, true);
		fresh = false;
	}
	if (fresh)
		return 0;
	r->file = f;
	TAILQ_INSERT_TAIL(&waiting, r, link);
	return req_park(r, stop_waiting);
}

const struct file_ops gpu_file_ops = {.open = open_fresh};
