/* Keeps the last report of each agent. Entries live as long as the daemon, as agents do. */
#include "host/far_gpus.h"
#include "base/daemon.h"
#include "nvml_frame.h"
#include <errno.h>
#include <stdlib.h>

/* ANSWER_MS: an agent itself gives up on NVML sooner than that, but a link may stay silent. */
enum { FRESH_MS = 500, ANSWER_MS = 12000 };

struct far_gpus {
	struct far_gpus *next;
	struct agent *agent;
	uint32_t serial;     /* of the agent process that was asked */
	uint32_t tag;	     /* of the pending request; 0: none */
	struct timer *timer; /* its timeout */
	uint64_t time;	     /* now_ns of the reply; 0: none */
	struct nvml_host said;
};

static struct far_gpus *all;
static void (*on_answer)(void);

static struct far_gpus *
find(const struct agent *a)
{
	struct far_gpus *f = all;

	while (f && f->agent != a)
		f = f->next;
	return f && f->serial == a->serial ? f : NULL;
}

bool
far_gpus_is_fresh(const struct agent *a)
{
	const struct far_gpus *f = a ? find(a) : NULL;

	if (!a || !a->conn || !a->said_hello)
		return true;
	return f && !f->tag && f->time && now_ns() - f->time < (uint64_t)FRESH_MS * NS_PER_MS;
}

bool
far_gpus_is_asked(const struct agent *a)
{
	const struct far_gpus *f = a ? find(a) : NULL;

	return f && f->tag;
}

static void
on_gpus(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct far_gpus *f = arg;
	struct slice bytes;
	struct err why = {0};

	loop_timer_del(f->timer);
	f->timer = NULL;
	nvml_host_free(&f->said);
	f->tag = 0;
	f->time = now_ns();
	if (!m)
		f->said.why = *e;
	else if (wire_unpack(m, Rgpus, &why, &bytes) < 0 ||
		 nvml_frame_read(bytes, &f->said, &why) < 0)
		f->said.why = why;
	if (on_answer && !daemon_.ending)
		on_answer();
}

static void
on_late(void *arg)
{
	struct far_gpus *f = arg;
	struct err e;

	f->timer = NULL;
	agent_forget(f->agent, f->tag);
	fail(&e, ETIMEDOUT, "it has not answered within %d s", ANSWER_MS / MS_PER_S);
	on_gpus(f, NULL, &e, (struct slice){0});
}

/* The entry for this process of the agent, emptied if it belonged to an earlier one. */
static struct far_gpus *
place_for(struct agent *a)
{
	struct far_gpus *f = all;

	while (f && f->agent != a)
		f = f->next;
	if (!f) {
		f = xcalloc(1, sizeof(*f));
		*f = (struct far_gpus){.next = all, .agent = a};
		all = f;
	}
	if (f->serial != a->serial) {
		nvml_host_free(&f->said);
		f->serial = a->serial;
		loop_timer_del(f->timer);
		f->timer = NULL;
		f->tag = 0;
		f->time = 0;
	}
	return f;
}

void
far_gpus_ask(struct agent *a)
{
	struct far_gpus *f = place_for(a);

	if (f->tag)
		return;
	f->tag = agent_tag(a, NO_SLOT, Tgpus, on_gpus, f);
	f->timer = loop_timer(daemon_.loop, ANSWER_MS, on_late, f);
	agent_send(a, Tgpus, 0, SLOT_AGENT, f->tag, -1);
}

void
far_gpus_on_answer(void (*fn)(void))
{
	on_answer = fn;
}

void
far_gpus_chosen(const struct agent *a, const char *words, struct gpus *out, struct err *why)
{
	const struct far_gpus *f = a ? find(a) : NULL;
	struct gpus from;

	*why = (struct err){0};
	*out = (struct gpus){.unknown = true};
	if (!f || !f->time) {
		fail(why, ESRCH, "its agent has not reported any");
		return;
	}
	*why = f->said.why;
	if (why->no)
		return;
	gpus_visible(f->said.list, f->said.n, f->said.visible, &from, why);
	if (gpus_choose(&from, words, out, why) < 0)
		*out = (struct gpus){.unknown = true};
}

const struct nvml_use *
far_gpus_seen(const struct agent *a, const struct nvml_gpu *gpu)
{
	const struct far_gpus *f = find(a);

	return f ? &f->said.use[gpu - f->said.list] : NULL;
}

void
far_gpus_stop(void)
{
	struct far_gpus *f;

	while ((f = all)) {
		all = f->next;
		loop_timer_del(f->timer);
		nvml_host_free(&f->said);
		free(f);
	}
}
