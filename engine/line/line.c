/* Packets over streams that may break: numbered, acknowledged, sent again on new streams. */
#include "line/line.h"
#include "line/carrier.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

enum { PACKET_RESUME = 1, PACKET_ACK, PACKET_PING, PACKET_PONG };

enum {
	PING_MS = 2500,
	WINDOW_MIN = 32 << 10, /* bytes of bulk in flight */
	WINDOW_MAX = 16 << 20,
	WINDOW_PIECES = 4,   /* in a window, at least */
	GROWTH = 8,	     /* a window grows by 1/GROWTH of itself per round trip */
	QUEUED_NS = 40000000 /* a round trip this much longer than necessary waited in a queue */
};

struct packet {
	STAILQ_ENTRY(packet) link;
	uint64_t sent; /* when, in ns; 0: not on these streams */
	size_t n;
	bool bulk;
	char bytes[];
};

struct line {
	struct loop *loop;
	const struct line_ops *ops;
	void *arg;
	/* `now` carries packets: `direct` while there is one. The streams then carry none. */
	struct carrier streams, direct, *now;
	struct timer *ping;
	bool up; /* the other side has begun on `now`, after us */
	bool sending, held;
	uint64_t received; /* number of packets received */
	uint64_t told;	   /* how many of them were reported to the other side */

	STAILQ_HEAD(packets, packet) kept; /* not acknowledged, the first is number `acked` */
	uint64_t acked;
	size_t n_kept;
	struct packet *next; /* to be sent */
	size_t done;	     /* bytes of it that are written */

	size_t bulk, window; /* unacknowledged bytes, and their limit */
	uint64_t shrunk;     /* packet after which the window may shrink again; 0: it never has */
	uint64_t least_ns;   /* the shortest round trip on these streams; 0: none yet */
};

static int on_packet(struct carrier *c, int type, struct slice body, struct err *e);
static void on_taken(struct carrier *c);
static void on_room(struct carrier *c);
static void lost(struct carrier *c, const struct err *why);

struct line *
line_new(struct loop *loop, const struct line_ops *ops, void *arg)
{
	static const struct carrier_ops carrier_ops = {on_packet, on_taken, on_room, lost};
	struct line *l = xcalloc(1, sizeof(*l));

	*l = (struct line){.loop = loop, .ops = ops, .arg = arg, .window = WINDOW_MIN};
	l->streams = l->direct =
	    (struct carrier){.loop = loop, .ops = &carrier_ops, .arg = l, .rfd = -1, .wfd = -1};
	l->now = &l->streams;
	STAILQ_INIT(&l->kept);
	return l;
}

void
line_detach(struct line *l)
{
	loop_timer_del(l->ping);
	l->ping = NULL;
	carrier_close(&l->streams);
	carrier_close(&l->direct);
	l->now = &l->streams;
	l->up = false;
	l->next = NULL;
	l->done = 0;
}

static void
drop_first(struct line *l)
{
	struct packet *p = STAILQ_FIRST(&l->kept);

	STAILQ_REMOVE_HEAD(&l->kept, link);
	if (p->bulk)
		l->bulk -= p->n;
	l->n_kept--;
	l->acked++;
	free(p);
}

void
line_free(struct line *l)
{
	if (!l)
		return;
	line_detach(l);
	while (l->n_kept)
		drop_first(l);
	free(l);
}

bool
line_is_up(const struct line *l)
{
	return l->up;
}

size_t
line_unacked(const struct line *l)
{
	return l->n_kept;
}

size_t
line_piece(const struct line *l)
{
	return MIN(l->window / WINDOW_PIECES, (size_t)LINE_PIECE);
}

/* Carries packets on this carrier from now on, and begins by saying how many have been received. A
 * packet that is partly written is completed where it is, so that the receiver can tell the next
 * one from it. */
static void
begin(struct line *l, struct carrier *c)
{
	if (l->done && l->now->rfd >= 0)
		carrier_finish(l->now, l->next->bytes + l->done, l->next->n - l->done);
	l->now = c;
	l->up = false;
	l->next = NULL;
	l->done = 0;
	l->told = l->received;
	c->last_word = now_ns();
	carrier_word(c, PACKET_RESUME, l->received);
	/* nothing else is sent until the other side has begun, too */
	carrier_flush(c);
}

/* ---- sending ---- */

/* Is there a packet to send? If bulk is set, one may be created now. */
static bool
has_next(struct line *l, bool bulk)
{
	return l->next || (bulk && l->bulk < l->window && l->ops->more(l->arg) && l->next);
}

static void
push(struct line *l, bool bulk)
{
	if (!l->up || l->sending)
		return;
	l->sending = true;
	for (;;) {
		if (l->done == 0 && !carrier_flush(l->now))
			break;
		if (!has_next(l, bulk)) {
			carrier_rest(l->now);
			break;
		}
		if (!carrier_write(l->now, l->next->bytes, l->next->n, &l->done))
			break;
		l->next->sent = now_ns();
		l->next = STAILQ_NEXT(l->next, link);
		l->done = 0;
	}
	l->sending = false;
}

static void
on_room(struct carrier *c)
{
	struct line *l = c->arg;

	if (l->up && l->now == c)
		push(l, true);
	else if (carrier_flush(c))
		carrier_rest(c);
}

void
line_add(struct line *l, struct packet *p)
{
	STAILQ_INSERT_TAIL(&l->kept, p, link);
	l->n_kept++;
	if (p->bulk)
		l->bulk += p->n;
	if (l->up && !l->next)
		l->next = p;
	/* no bulk is created here: the caller may be about to change its source. The
	 * acknowledgement of this packet is the time for it. */
	push(l, false);
}

static struct packet *
new_packet(int type, bool bulk, size_t body)
{
	struct packet *p = xmalloc(sizeof(*p) + CARRIER_HEADER + body);

	*p = (struct packet){.n = CARRIER_HEADER + body, .bulk = bulk};
	carrier_header(p->bytes, p->n, type);
	return p;
}

void
line_send(struct line *l, int type, bool bulk, struct slice head, struct slice body)
{
	struct packet *p = new_packet(type, bulk, head.n + body.n);

	if (head.n)
		memcpy(p->bytes + CARRIER_HEADER, head.p, head.n);
	if (body.n)
		memcpy(p->bytes + CARRIER_HEADER + head.n, body.p, body.n);
	line_add(l, p);
}

struct packet *
line_read(int type, int fd, size_t n)
{
	struct packet *p = new_packet(type, true, n);
	ssize_t got = read(fd, p->bytes + CARRIER_HEADER, n);

	if (got <= 0) {
		free(p);
		return NULL;
	}
	if ((size_t)got < n / 2) /* it is kept until it is acknowledged */
		p = xrealloc(p, sizeof(*p) + CARRIER_HEADER + (size_t)got);
	p->n = CARRIER_HEADER + (size_t)got;
	carrier_header(p->bytes, p->n, type);
	return p;
}

void
line_more(struct line *l)
{
	push(l, true);
}

/* ---- receiving ---- */

/* Adjusts the window after a round trip. It doubles in each round trip until something was queued,
 * and then grows by a fraction of itself. */
static void
adapt(struct line *l, const struct packet *p)
{
	uint64_t took = now_ns() - p->sent;
	size_t more = l->shrunk ? p->n / GROWTH : p->n;

	if (!l->least_ns || took < l->least_ns)
		l->least_ns = took;
	if (took <= l->least_ns + l->least_ns / 2 + QUEUED_NS) {
		l->window = MIN(l->window + more, (size_t)WINDOW_MAX);
	} else if (l->acked >= l->shrunk) {
		l->window = MAX(l->window - l->window / 4, (size_t)WINDOW_MIN);
		l->shrunk = l->acked + l->n_kept;
	}
}

/* The other side has received count packets in total. */
static int
acknowledged(struct line *l, uint64_t count, struct err *e)
{
	uint64_t end = l->acked + l->n_kept;

	if (count < l->acked || count > end)
		return fail(e, EBADMSG, "line: %llu packets are acknowledged, of %llu to %llu",
		    (unsigned long long)count, (unsigned long long)l->acked,
		    (unsigned long long)end);
	while (l->acked < count) {
		struct packet *p = STAILQ_FIRST(&l->kept);

		if (p == l->next)
			return fail(
			    e, EBADMSG, "line: a packet is acknowledged before it was sent");
		if (p->bulk && p->sent)
			adapt(l, p);
		drop_first(l);
	}
	return 0;
}

/* This carrier can no longer carry packets. The end of the streams, which is that of the command
 * that leads to the host, ends a direct connection, too. */
static void
lost(struct carrier *c, const struct err *why)
{
	struct line *l = c->arg;

	if (c == &l->direct) {
		carrier_close(c);
		begin(l, &l->streams);
		l->ops->back(l->arg, why);
	} else {
		line_detach(l);
		l->ops->down(l->arg, why);
	}
}

/* The other side begins on this carrier: what it has not received is sent again. */
static int
resumed(struct line *l, struct carrier *c, uint64_t count, struct err *e)
{
	static const struct err given_up = {ECONNRESET, "the other side has given it up"};
	struct packet *p;

	if (c == &l->direct && c->begun)
		return fail(e, EBADMSG, "line: it begins twice");
	if (c != l->now)
		lost(l->now, &given_up);
	else if (l->up) /* it has lost a direct connection that we did not use yet */
		begin(l, c);
	if (acknowledged(l, count, e) < 0)
		return -e->no;
	STAILQ_FOREACH (p, &l->kept, link)
		p->sent = 0;
	l->up = c->begun = true;
	l->next = STAILQ_FIRST(&l->kept);
	l->least_ns = 0;
	l->shrunk = 0;
	l->ops->up(l->arg);
	return 0;
}

/* Handles one of the line's own packets. */
static int
take_own(struct line *l, struct carrier *c, int type, struct slice body, struct err *e)
{
	uint64_t v = 0;

	for (size_t i = 0; i < MIN(body.n, sizeof(v)); i++)
		v |= (uint64_t)(unsigned char)body.p[i] << (CHAR_BIT * i);
	if (body.n != sizeof(v))
		return fail(e, EBADMSG, "line: a packet of type %d has the wrong size", type);
	switch (type) {
	case PACKET_RESUME:
		return resumed(l, c, v, e);
	case PACKET_ACK:
		return acknowledged(l, v, e);
	case PACKET_PING:
		carrier_word(c, PACKET_PONG, v);
		return 0;
	case PACKET_PONG:
		return 0;
	default:
		return fail(e, EBADMSG, "line: a packet of type %d is not known", type);
	}
}

static int
on_packet(struct carrier *c, int type, struct slice body, struct err *e)
{
	struct line *l = c->arg;

	if (type != PACKET_RESUME && (c != l->now || (c->begun && !l->up)))
		return 0; /* sent before the other side began where packets go now */
	if (type < LINE_PACKET_MIN)
		return take_own(l, c, type, body, e);
	if (!l->up)
		return fail(e, EBADMSG, "line: a packet came before the beginning");
	l->received++;
	l->ops->packet(l->arg, type, body);
	return 0;
}

static void
on_taken(struct carrier *c)
{
	struct line *l = c->arg;

	if (c != l->now)
		return;
	if (l->received != l->told && !l->held)
		carrier_word(c, PACKET_ACK, l->told = l->received);
	push(l, true);
}

void
line_hold(struct line *l, bool held)
{
	bool ends = l->held && !held;

	l->held = held;
	if (ends && l->up)
		on_taken(l->now);
}

static void
on_ping(void *arg)
{
	struct line *l = arg;
	struct err e;

	l->ping = loop_timer(l->loop, PING_MS, on_ping, l);
	if (now_ns() - l->now->last_word > LINE_DEAD_MS * 1000000ull) {
		fail(&e, ETIMEDOUT, "no word for %d s", LINE_DEAD_MS / 1000);
		lost(l->now, &e);
		return;
	}
	carrier_word(l->now, PACKET_PING, now_ns());
	push(l, true);
}

void
line_attach(struct line *l, int rfd, int wfd, struct slice early)
{
	line_detach(l);
	l->ping = loop_timer(l->loop, PING_MS, on_ping, l);
	carrier_open(&l->streams, rfd, wfd);
	begin(l, &l->streams);
	if (early.n)
		carrier_early(&l->streams, early);
}

bool
line_attach_direct(struct line *l, int fd)
{
	if (l->up && l->now == &l->streams && carrier_open(&l->direct, fd, fd)) {
		begin(l, &l->direct);
		return true;
	}
	close(fd);
	return false;
}
