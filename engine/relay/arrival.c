/* Writes rank output to the daemon's spools, and keeps frames in order with it. */
#include "relay/arrival.h"
#include "spool.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

struct held {
	STAILQ_ENTRY(held) link;
	struct buf frame;
};

struct arrival {
	LIST_ENTRY(arrival) link;
	unsigned slot;
	struct spool_writer spool;
	struct spool_mark base; /* where its output begins in these spools */
	struct spool_mark got;	/* how much of its output has arrived */
	struct spool_mark lost; /* how much of that was lost: no room on this disk, or skipped */
	struct spool_mark skip_from; /* where the last skip began, in its own output */
	struct spool_mark skipped;   /* how long that skip is */
	uint64_t told_dropped;
	STAILQ_HEAD(, held) held; /* frames that wait, in order */
};

struct arrivals {
	struct conn *daemon;
	LIST_HEAD(, arrival) list;
};

struct arrivals *
arrivals_new(struct conn *daemon)
{
	struct arrivals *as = xcalloc(1, sizeof(*as));

	as->daemon = daemon;
	LIST_INIT(&as->list);
	return as;
}

static struct arrival *
find(const struct arrivals *as, unsigned slot)
{
	struct arrival *a;

	LIST_FOREACH (a, &as->list, link)
		if (a->slot == slot)
			return a;
	return NULL;
}

static void
drop_held(struct arrival *a)
{
	struct held *h = STAILQ_FIRST(&a->held);

	STAILQ_REMOVE_HEAD(&a->held, link);
	buf_free(&h->frame);
	free(h);
}

static void
destroy(struct arrival *a)
{
	while (!STAILQ_EMPTY(&a->held))
		drop_held(a);
	LIST_REMOVE(a, link);
	spool_writer_close(&a->spool);
	free(a);
}

void
arrivals_free(struct arrivals *as)
{
	while (as && !LIST_EMPTY(&as->list))
		destroy(LIST_FIRST(&as->list));
	free(as);
}

int
arrival_open(struct arrivals *as, unsigned slot, const char *dir, const char *name, struct err *e)
{
	struct arrival *a = xcalloc(1, sizeof(*a));
	int r = spool_writer_open(&a->spool, dir, name, e);

	if (r < 0) {
		free(a);
		return r;
	}
	a->slot = slot;
	a->base = a->spool.at;
	STAILQ_INIT(&a->held);
	LIST_INSERT_HEAD(&as->list, a, link);
	return 0;
}

void
arrival_close(struct arrivals *as, unsigned slot)
{
	struct arrival *a = find(as, slot);

	if (a)
		destroy(a);
}

/* ---- frames ---- */

static bool
is_marked(const struct msg *m)
{
	if (m->len < WIRE_MARK)
		return false;
	return m->type == Nmark || m->type == Nexit ||
	       (m->flags & FLAG_MARK && wire_kind(m->type) == 'R' && m->type != Rerror);
}

static uint64_t
mark_at(const struct msg *m, size_t i)
{
	const char *p = m->body + m->len - WIRE_MARK + 8 * i;
	size_t left = 8;
	uint64_t v = 0;

	wire_get('8', &p, &left, &v, NULL);
	return v;
}

/* Has all the output that m counts arrived? */
static bool
is_reached(const struct arrival *a, const struct msg *m)
{
	for (size_t i = 0; i < SPOOL_STREAMS; i++)
		if (a->got.size[i] < mark_at(m, i))
			return false;
	return true;
}

/* Translates a position in the rank's own output to one in these spools. */
static uint64_t
place_here(const struct arrival *a, size_t i, uint64_t v)
{
	uint64_t base = i < SPOOL_STREAMS ? a->base.size[i] : a->base.records;
	uint64_t lost = i < SPOOL_STREAMS ? a->lost.size[i] : a->lost.records;
	uint64_t from = i < SPOOL_STREAMS ? a->skip_from.size[i] : a->skip_from.records;
	uint64_t skipped = i < SPOOL_STREAMS ? a->skipped.size[i] : a->skipped.records;

	if (v <= from)
		lost -= skipped;
	else
		v = MAX(v, from + skipped);
	return base + v - MIN(lost, v);
}

static void
pass_marked(struct arrivals *as, struct arrival *a, const struct msg *m)
{
	struct buf body = {0};
	struct msg here = *m;

	buf_add(&body, m->body, m->len - WIRE_MARK);
	for (size_t i = 0; i <= SPOOL_STREAMS; i++)
		wire_put_number(&body, '8', place_here(a, i, mark_at(m, i)));
	here.body = body.p;
	conn_forward(as->daemon, &here);
	buf_free(&body);
	if (m->type == Nexit)
		destroy(a);
}

/* Forwards the frames that need not wait any more. */
static void
release(struct arrivals *as, struct arrival *a)
{
	bool ended = false;
	struct held *h;
	struct msg m;

	while (!ended && (h = STAILQ_FIRST(&a->held))) {
		struct buf frame = h->frame;
		bool marked;

		wire_frame(frame.p, frame.n, &m, NULL);
		marked = is_marked(&m);
		if (marked && !is_reached(a, &m))
			return;
		h->frame = (struct buf){0};
		drop_held(a);
		ended = marked && m.type == Nexit;
		if (marked)
			pass_marked(as, a, &m);
		else
			conn_forward(as->daemon, &m);
		buf_free(&frame);
	}
}

void
arrival_frame(struct arrivals *as, const struct msg *m)
{
	struct arrival *a = m->slot == SLOT_AGENT ? NULL : find(as, m->slot);
	bool marked = is_marked(m);
	struct held *h;

	if (!a || (!marked && (STAILQ_EMPTY(&a->held) || !(m->flags & FLAG_ORDERED)))) {
		conn_forward(as->daemon, m);
		return;
	}
	if (STAILQ_EMPTY(&a->held) && is_reached(a, m)) {
		pass_marked(as, a, m);
		return;
	}
	h = xcalloc(1, sizeof(*h));
	wire_pack_raw(&h->frame, m);
	STAILQ_INSERT_TAIL(&a->held, h, link);
}

/* ---- output ---- */

static void
write_output(struct arrivals *as, struct arrival *a, int stream, uint64_t record, struct slice p)
{
	struct spool_mark before;

	if (a->got.records != record + 1)
		spool_writer_cut(&a->spool);
	before = a->spool.at;
	spool_writer_add(&a->spool, stream, p.p, p.n);
	a->lost.size[stream] += before.size[stream] + p.n - a->spool.at.size[stream];
	if (a->got.records != record + 1 && a->spool.at.records == before.records)
		a->lost.records++;
	a->got.size[stream] += p.n;
	a->got.records = record + 1;
	if (a->spool.dropped > a->told_dropped)
		conn_send(as->daemon, Ndropped, 0, a->slot, 0, -1,
		    (uint64_t)(a->spool.dropped - a->told_dropped), (unsigned)DROPPED_NO_ROOM_HERE);
	a->told_dropped = a->spool.dropped;
}

static void
skip_output(struct arrivals *as, struct arrival *a, const struct spool_mark *to)
{
	uint64_t bytes = 0;

	a->skip_from = a->got;
	for (size_t i = 0; i < SPOOL_STREAMS; i++) {
		a->skipped.size[i] = to->size[i] - MIN(to->size[i], a->got.size[i]);
		a->got.size[i] += a->skipped.size[i];
		a->lost.size[i] += a->skipped.size[i];
		bytes += a->skipped.size[i];
	}
	a->skipped.records = to->records - MIN(to->records, a->got.records);
	a->got.records += a->skipped.records;
	a->lost.records += a->skipped.records;
	if (bytes)
		conn_send(as->daemon, Ndropped, 0, a->slot, 0, -1, bytes, (unsigned)DROPPED_UNSENT);
}

int
arrival_output(struct arrivals *as, const struct msg *m, struct err *e)
{
	struct arrival *a = find(as, m->slot);
	struct spool_mark to;
	struct slice data;
	uint64_t record;
	uint8_t stream;

	if (wire_check(m, e) < 0)
		return -e->no;
	/* no arrival: the rank has exited; what its children still print is dropped */
	if (a && wire_unpack(m, Noutput, NULL, &stream, &record, &data) == 0) {
		if (stream >= SPOOL_STREAMS)
			return fail(e, EBADMSG, "relay: output of no known stream");
		write_output(as, a, (int)stream, record, data);
	} else if (a) {
		wire_unpack(m, Nskip, NULL, &to.size[SPOOL_STDOUT], &to.size[SPOOL_STDERR],
		    &to.size[SPOOL_DISPLAY], &to.records);
		skip_output(as, a, &to);
	}
	if (a)
		release(as, a);
	return 0;
}
