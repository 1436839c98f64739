/* Keeps the last report of each agent. Entries live as long as the daemon, as agents do. */
#include "host/host_gpus.h"
#include "base/daemon.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LIST_MS: for the first answer, before which NVML is initialized; ANSWER_MS: for the others */
enum { FRESH_MS = 200, LIST_MS = 10000, ANSWER_MS = 3000, DEVICES_MAX = 4096, PROCESS = 12 };

/* What an agent reports. */
struct report {
	struct nvml_gpu *list; /* no NVML handles; devices of one GPU have equal `card` */
	struct nvml_use *use;  /* one per device */
	size_t n;
	char *visible; /* CUDA_VISIBLE_DEVICES there; NULL: not set */
	bool has_use;  /* that was asked for */
};

struct host_gpus {
	struct host_gpus *next;
	struct agent *agent;
	uint32_t serial;     /* of the agent process that was asked */
	uint64_t tag;	     /* of the pending question; 0: none */
	struct timer *timer; /* when its answer is overdue */
	bool late;	     /* it is */
	bool again;	     /* it was only for the list, but somebody waits for more */
	uint64_t time;	     /* now_ns of the last answer; 0: none */
	bool known;	     /* NVML has answered */
	bool reported;
	struct report said; /* the last one with GPUs */
	struct err why;	    /* instead of the last answer: NVML does not work, or there was none */
};

static struct host_gpus *all;
static void (*on_answer)(void);

static struct host_gpus *
find(const struct agent *a)
{
	struct host_gpus *f = all;

	while (f && f->agent != a)
		f = f->next;
	/* elsewhere another process of the agent may be on another machine */
	return f && (f->serial == a->serial || a->here) ? f : NULL;
}

/* ---- reports ---- */

static void
report_free(struct report *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->use[i].process);
	free(r->list);
	free(r->use);
	free(r->visible);
	*r = (struct report){0};
}

static void
copy_text(char *to, size_t room, struct slice text)
{
	snprintf(to, room, "%.*s", (int)MIN(text.n, room - 1), text.p);
}

/* Appends a device, of which nothing is known but what it is. Returns 0 or -EBADMSG. */
static int
add_gpu(const struct msg *m, struct report *r, struct err *e)
{
	struct nvml_gpu gpu = {0};
	struct slice uuid, name;
	uint32_t index, mig, card;
	uint8_t split;

	if (wire_unpack(m, Ngpu, e, &index, &mig, &split, &card, &uuid, &name) < 0)
		return -e->no;
	if (card > r->n || r->n == DEVICES_MAX)
		return fail(e, EBADMSG, "wire: Ngpu is damaged");
	gpu.index = (int)index;
	gpu.mig = (int)mig - 1;
	gpu.split = split != 0;
	gpu.card = (void *)((uintptr_t)card + 1); /* a name of it, within this report */
	copy_text(gpu.uuid, sizeof(gpu.uuid), uuid);
	copy_text(gpu.name, sizeof(gpu.name), name);
	r->list = xrealloc(r->list, (r->n + 1) * sizeof(*r->list));
	r->use = xrealloc(r->use, (r->n + 1) * sizeof(*r->use));
	r->list[r->n] = gpu;
	r->use[r->n++] =
	    (struct nvml_use){.util = -1, .temp = -1, .milliwatts = -1, .mhz = -1, .n = -1};
	return 0;
}

/* Sets what the last device does. Returns 0 or -EBADMSG. */
static int
set_use(const struct msg *m, struct report *r, struct err *e)
{
	uint32_t util, temp, milliwatts, mhz;
	struct slice processes, error;
	uint8_t has_memory, has_processes;
	struct nvml_use u = {0};

	if (wire_unpack(m, Nuse, e, &has_memory, &u.used, &u.total, &util, &temp, &milliwatts, &mhz,
		&has_processes, &processes, &error) < 0)
		return -e->no;
	if (!r->n || r->use[r->n - 1].process)
		return fail(e, EBADMSG, "wire: Nuse is damaged");
	u.has_memory = has_memory != 0;
	u.util = (int)util - 1;
	u.temp = (int)temp - 1;
	u.milliwatts = (int)milliwatts - 1;
	u.mhz = (int)mhz - 1;
	u.n = has_processes ? (int)(processes.n / PROCESS) : -1;
	u.process = u.n > 0 ? xcalloc((size_t)u.n, sizeof(*u.process)) : NULL;
	for (int i = 0; i < u.n; i++) {
		uint64_t pid = 0;

		wire_get('4', &processes.p, &processes.n, &pid, NULL);
		wire_get('8', &processes.p, &processes.n, &u.process[i].bytes, NULL);
		u.process[i].pid = (uint32_t)pid;
	}
	copy_text(u.error, sizeof(u.error), error);
	r->use[r->n - 1] = u;
	r->has_use = true;
	return 0;
}

/* Returns 0 with a report that the caller frees. Else -errno with *e set: m is damaged, or what it
 * says is that NVML does not work. */
static int
report_read(const struct msg *m, struct report *out, struct err *e)
{
	struct slice why, visible, gpus;
	struct msg row;
	uint8_t has_visible;
	uint32_t no;
	long n = 0;

	*out = (struct report){0};
	if (wire_unpack(m, Rgpus, e, &no, &why, &has_visible, &visible, &gpus) < 0)
		return -e->no;
	if (no)
		return fail(e, (int)no, "%.*s", (int)MIN(why.n, sizeof(e->text) - 1), why.p);
	*e = (struct err){0};
	out->visible = has_visible ? slice_dup(visible) : NULL;
	for (; !e->no && gpus.n; gpus = (struct slice){gpus.p + n, gpus.n - (size_t)n}) {
		n = wire_frame(gpus.p, gpus.n, &row, e);
		if (n == 0)
			fail(e, EBADMSG, "wire: Rgpus is damaged");
		if (n <= 0)
			break;
		if (row.type == Nuse)
			set_use(&row, out, e);
		else
			add_gpu(&row, out, e);
	}
	if (e->no)
		report_free(out);
	return -e->no;
}

static bool
has(const struct report *r, const char *uuid)
{
	for (size_t i = 0; i < r->n; i++)
		if (strcmp(r->list[i].uuid, uuid) == 0)
			return true;
	return false;
}

/* Keeps whole GPUs that NVML listed before and lists no more: they are lost, and ranks are theirs.
 */
static void
keep_lost(const struct report *was, struct report *now)
{
	for (size_t i = 0; i < was->n; i++) {
		struct nvml_gpu gpu = was->list[i];
		size_t at = 0;

		if (gpu.mig != NVML_WHOLE || has(now, gpu.uuid))
			continue;
		while (at < now->n && now->list[at].index < gpu.index)
			at++;
		gpu.card = (void *)(UINTPTR_MAX - i);
		now->list = xrealloc(now->list, (now->n + 1) * sizeof(*now->list));
		now->use = xrealloc(now->use, (now->n + 1) * sizeof(*now->use));
		memmove(now->list + at + 1, now->list + at, (now->n - at) * sizeof(*now->list));
		memmove(now->use + at + 1, now->use + at, (now->n - at) * sizeof(*now->use));
		now->list[at] = gpu;
		now->use[at] = (struct nvml_use){.util = -1,
		    .temp = -1,
		    .milliwatts = -1,
		    .mhz = -1,
		    .n = -1,
		    .error = "NVML lists this GPU no more"};
		now->n++;
	}
}

/* ---- questions ---- */

bool
host_gpus_is_fresh(const struct agent *a)
{
	const struct host_gpus *f = a ? find(a) : NULL;

	if (!a || !a->conn || !(a->hello || a->here))
		return true;
	if (!f || f->serial != a->serial || f->tag)
		return f && f->late;
	return f->said.has_use && f->time && now_ns() - f->time < FRESH_MS * NS_PER_MS;
}

bool
host_gpus_is_asked(const struct agent *a)
{
	const struct host_gpus *f = a ? find(a) : NULL;

	return f && f->tag && !f->late;
}

bool
host_gpus_is_known(const struct agent *a)
{
	const struct host_gpus *f = find(a);

	return f && f->known;
}

static void
tell(void)
{
	if (on_answer && !daemon_.ending)
		on_answer();
}

static void
on_gpus(void *arg, struct msg *m, const struct err *e, struct slice trace)
{
	struct host_gpus *f = arg;
	struct report now = {0};
	struct err why = {0};

	loop_timer_del(f->timer);
	f->timer = NULL;
	f->tag = 0;
	f->late = false;
	f->time = now_ns();
	f->known |= m != NULL;
	if (!m)
		why = *e;
	else if (report_read(m, &now, &why) == 0) {
		if (f->reported)
			keep_lost(&f->said, &now);
		report_free(&f->said);
		f->said = now;
		f->reported = true;
	}
	if (why.no && why.no != ENOENT && why.no != f->why.no)
		note("host %s: %s", agent_host(f->agent), why.text);
	f->why = why;
	if (m && f->again && f->reported)
		host_gpus_ask(f->agent, true);
	else
		tell();
}

/* Who owes an answer: elsewhere it may also be the connection. */
static const char *
who(const struct agent *a)
{
	return a->here ? "NVML" : "it";
}

static void
on_late(void *arg)
{
	struct host_gpus *f = arg;

	f->timer = NULL;
	f->late = true;
	note("host %s: %s has not told in time what its GPUs do", agent_host(f->agent),
	    who(f->agent));
	tell();
}

/* The entry for this process of the agent: what an earlier one has said holds for this machine. */
static struct host_gpus *
place_for(struct agent *a)
{
	struct host_gpus *f = all;

	while (f && f->agent != a)
		f = f->next;
	if (!f) {
		f = xcalloc(1, sizeof(*f));
		f->next = all;
		f->agent = a;
		all = f;
	}
	if (f->serial != a->serial) {
		loop_timer_del(f->timer);
		f->timer = NULL;
		f->tag = 0;
		f->late = false;
		f->time = 0;
		f->serial = a->serial;
		if (!a->here) {
			report_free(&f->said);
			f->known = f->reported = false;
		}
	}
	return f;
}

void
host_gpus_ask(struct agent *a, bool use)
{
	struct host_gpus *f = place_for(a);

	f->again = f->tag && use;
	if (f->tag)
		return;
	f->tag = agent_tag(a, NO_SLOT, Tgpus, on_gpus, f);
	f->timer = loop_timer(daemon_.loop, f->reported ? ANSWER_MS : LIST_MS, on_late, f);
	agent_send(a, Tgpus, 0, SLOT_AGENT, f->tag, -1, (uint32_t)use);
}

void
host_gpus_on_answer(void (*fn)(void))
{
	on_answer = fn;
}

/* ---- what they said ---- */

/* The GPUs that the host's ranks may use; *why: what is wrong with them. */
static void
visible(const struct agent *a, struct gpus *out, struct err *why)
{
	const struct host_gpus *f = a ? find(a) : NULL;

	*out = (struct gpus){.unknown = true};
	*why = (struct err){0};
	if (f && f->reported)
		gpus_visible(f->said.list, f->said.n, f->said.visible, out, why);
	else if (f && f->time)
		*why = f->why;
	else if (f && f->late)
		fail(why, ETIMEDOUT, "%s has not answered within %d s", who(a), LIST_MS / MS_PER_S);
	else
		fail(why, ESRCH, "its agent has not reported any");
}

void
host_gpus_chosen(const struct agent *a, const char *words, struct gpus *out, struct err *why)
{
	struct gpus from;

	*out = (struct gpus){.unknown = true};
	visible(a, &from, why);
	if (!from.unknown && gpus_choose(&from, words, out, why) < 0)
		*out = (struct gpus){.unknown = true};
}

/* ---- this machine ---- */

/* Asks for the list, unless it is known. Returns the agent, NULL without one. */
static struct agent *
ask_here(void)
{
	struct agent *a = agent_here();
	struct err e;

	if (a && host_gpus_is_known(a))
		return a;
	a = agent_of(&agent_spec_here, &e);
	if (a)
		host_gpus_ask(a, false);
	return a;
}

void
host_gpus_here_begin(void)
{
	ask_here();
}

void
host_gpus_here_wait(void)
{
	static bool waited;
	uint64_t end = now_ns() + (uint64_t)LIST_MS * NS_PER_MS;
	struct agent *a;

	if (waited)
		return;
	waited = true;
	a = ask_here();
	while (a && a->conn && find(a)->tag && now_ns() < end)
		conn_wait(a->conn, (int)((end - now_ns()) / NS_PER_MS) + 1);
	if (a && find(a)->tag) {
		loop_timer_del(find(a)->timer);
		on_late(find(a));
	}
}

int
host_gpus_here(const char *words, struct gpus *out, struct err *e)
{
	struct gpus from;
	struct err why, said;
	int r;

	host_gpus_here_wait();
	visible(agent_here(), &from, &why);
	r = gpus_choose(&from, words, out, e);
	if (r == 0 || !why.no)
		return r;
	if (from.unknown)
		return fail(e, EINVAL,
		    "gpus: want all or none, because the GPUs of this host are unknown: %s",
		    why.text);
	said = *e;
	return fail(e, EINVAL, "%.600s (%.300s)", said.text, why.text);
}

const struct nvml_use *
host_gpus_seen(const struct agent *a, const struct nvml_gpu *gpu)
{
	const struct host_gpus *f = find(a);

	return f && f->said.has_use ? &f->said.use[gpu - f->said.list] : NULL;
}

const char *
host_gpus_is_old(const struct agent *a)
{
	const struct host_gpus *f = find(a);

	if (f && f->late)
		return a->here ? "NVML does not answer: this is what it said before"
			       : "it does not answer: this is what it said before";
	return f && f->why.no ? f->why.text : NULL;
}

void
host_gpus_stop(void)
{
	struct host_gpus *f;

	while ((f = all)) {
		all = f->next;
		loop_timer_del(f->timer);
		report_free(&f->said);
		free(f);
	}
}
