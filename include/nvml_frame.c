/* Packs numbers and texts as wire.h does; a number that may be -1 is stored plus one. */
#include "nvml_frame.h"
#include "wire.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MOST = 4096 }; /* per host, including instances */

static void
put_text(struct buf *out, const char *text)
{
	wire_put_bytes(out, (struct slice){text, strlen(text)});
}

static void
put_signed(struct buf *out, int v)
{
	wire_put_number(out, '4', (uint32_t)v + 1u);
}

static size_t
card_of(const struct nvml_gpu *list, size_t i)
{
	size_t k = 0;

	while (k < i && list[k].card != list[i].card)
		k++;
	return k;
}

static void
put_use(struct buf *out, const struct nvml_use *u)
{
	wire_put_number(out, '1', u->has_memory);
	wire_put_number(out, '8', u->used);
	wire_put_number(out, '8', u->total);
	put_signed(out, u->util);
	put_signed(out, u->temp);
	put_signed(out, u->milliwatts);
	put_signed(out, u->mhz);
	put_signed(out, u->n);
	for (int i = 0; i < u->n; i++) {
		wire_put_number(out, '4', u->process[i].pid);
		wire_put_number(out, '8', u->process[i].bytes);
	}
	put_text(out, u->error);
}

void
nvml_frame_make(struct buf *out)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct nvml_gpu *list = NULL;
	struct err why = {0};
	size_t n = 0;

	if (nvml_open(&why) == 0)
		nvml_list(&list, &n, &why);
	wire_put_number(out, '4', (uint64_t)why.no);
	put_text(out, why.no ? why.text : "");
	wire_put_number(out, '1', visible != NULL);
	put_text(out, visible ? visible : "");
	wire_put_number(out, '4', n);
	for (size_t i = 0; i < n; i++) {
		struct nvml_use use;

		wire_put_number(out, '4', (uint64_t)list[i].index);
		put_signed(out, list[i].mig);
		wire_put_number(out, '1', list[i].split);
		wire_put_number(out, '4', card_of(list, i));
		put_text(out, list[i].uuid);
		put_text(out, list[i].name);
		nvml_use(&list[i], &use);
		put_use(out, &use);
		free(use.process);
	}
	free(list);
	nvml_close();
}

/* The unread rest; bad: the data is malformed. */
struct reader {
	struct slice left;
	bool bad;
};

static uint64_t
get(struct reader *r, char field)
{
	uint64_t v = 0;

	r->bad = r->bad || !wire_get(field, &r->left.p, &r->left.n, &v, NULL);
	return r->bad ? 0 : v;
}

static int
get_signed(struct reader *r)
{
	return (int)get(r, '4') - 1;
}

static struct slice
get_text(struct reader *r)
{
	struct slice s = {"", 0};
	uint64_t n;

	r->bad = r->bad || !wire_get('s', &r->left.p, &r->left.n, &n, &s);
	return s;
}

static void
get_into(struct reader *r, char *to, size_t room)
{
	struct slice s = get_text(r);

	snprintf(to, room, "%.*s", (int)MIN(s.n, room - 1), s.p);
}

static void
get_use(struct reader *r, struct nvml_use *u)
{
	*u = (struct nvml_use){.has_memory = get(r, '1') != 0};
	u->used = get(r, '8');
	u->total = get(r, '8');
	u->util = get_signed(r);
	u->temp = get_signed(r);
	u->milliwatts = get_signed(r);
	u->mhz = get_signed(r);
	u->n = get_signed(r);
	r->bad |= u->n > (long)r->left.n;
	if (r->bad)
		u->n = -1;
	u->process = u->n > 0 ? xcalloc((size_t)u->n, sizeof(*u->process)) : NULL;
	for (int i = 0; i < u->n; i++) {
		u->process[i].pid = (uint32_t)get(r, '4');
		u->process[i].bytes = get(r, '8');
	}
	get_into(r, u->error, sizeof(u->error));
}

static void
get_gpu(struct reader *r, struct nvml_gpu *list, size_t i)
{
	uint64_t card;

	list[i].index = (int)get(r, '4');
	list[i].mig = get_signed(r);
	list[i].split = get(r, '1') != 0;
	card = get(r, '4');
	r->bad |= card > i;
	list[i].card = r->bad ? NULL : &list[card];
	get_into(r, list[i].uuid, sizeof(list[i].uuid));
	get_into(r, list[i].name, sizeof(list[i].name));
}

int
nvml_frame_read(struct slice bytes, struct nvml_host *out, struct err *e)
{
	struct reader r = {.left = bytes};
	struct slice text;
	uint64_t n;
	bool has_visible;
	int no;

	*out = (struct nvml_host){0};
	no = (int)get(&r, '4');
	text = get_text(&r);
	if (no)
		fail(&out->why, no, "%.*s", (int)MIN(text.n, sizeof(e->text) - 1), text.p);
	has_visible = get(&r, '1') != 0;
	text = get_text(&r);
	out->visible = has_visible ? slice_dup(text) : NULL;
	n = get(&r, '4');
	r.bad |= n > GPUS_MOST;
	out->list = xcalloc(n && !r.bad ? n : 1, sizeof(*out->list));
	out->use = xcalloc(n && !r.bad ? n : 1, sizeof(*out->use));
	for (; out->n < n && !r.bad; out->n++) {
		get_gpu(&r, out->list, out->n);
		get_use(&r, &out->use[out->n]);
	}
	if (!r.bad && r.left.n == 0)
		return 0;
	nvml_host_free(out);
	return fail(e, EBADMSG, "what a host says of its GPUs is damaged");
}

void
nvml_host_free(struct nvml_host *h)
{
	for (size_t i = 0; i < h->n; i++)
		free(h->use[i].process);
	free(h->list);
	free(h->use);
	free(h->visible);
	*h = (struct nvml_host){0};
}
