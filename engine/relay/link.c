/* Packets over streams that may break: numbered, acknowledged, sent again on new streams. */
#include "relay/link.h"
#include "wire.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <unistd.h>

enum { PACKET_RESUME = 1, PACKET_ACK, PACKET_PING, PACKET_PONG };

enum {
	HEADER = 5,			   /* size and type */
	PACKET_SIZE_MAX = WIRE_MAX + 4096, /* a frame of the wire and what goes with it */
	READ_SIZE = 256 << 10,		   /* at once */
	ROOM_KEPT = 1 << 20,		   /* of the buffer, when it is empty */
	PING_MS = 2500,
	WINDOW_MIN = 32 << 10, /* bytes of bulk on their way */
	WINDOW_MAX = 16 << 20,
	WINDOW_PIECES = 4,   /* in a window, at least */
	GROWTH = 8,	     /* of a window in a round trip: so many make another */
	QUEUED_NS = 40000000 /* a round trip that is so much longer than need be waits in a queue */
};

struct packet {
	STAILQ_ENTRY(packet) link;
	uint64_t sent; /* when; 0: not on these streams */
	size_t n;
	bool bulk;
	char bytes[];
};

struct link {
	struct loop *loop;
	const struct link_ops *ops;
	void *arg;
	int rfd, wfd; /* -1: no streams */
	struct watch *in, *out;
	struct timer *ping;
	bool up, sending;
	unsigned streams;   /* counts link_attach() */
	struct buf got;	    /* bytes of the stream that are no whole packet yet */
	uint64_t received;  /* packets that were taken */
	uint64_t last_word; /* when something came */
	struct buf urgent;  /* of the link's own: they go between two packets */
	size_t urgent_done;

	STAILQ_HEAD(packets, packet) kept; /* not acknowledged, the first is number `acked` */
	uint64_t acked;
	size_t n_kept;
	struct packet *next; /* to be sent */
	size_t done;	     /* bytes of it that are out */

	size_t bulk, window; /* bytes not acknowledged, and how many there may be */
	uint64_t shrunk;     /* packet behind which the window may shrink again; 0: it never did */
	uint64_t least_ns;   /* the quickest round trip on these streams; 0: none yet */
};

static void on_writable(void *arg, uint32_t events);

struct link *
link_new(struct loop *loop, const struct link_ops *ops, void *arg)
{
	struct link *l = xcalloc(1, sizeof(*l));

	*l = (struct link){.loop = loop, .ops = ops, .arg = arg, .rfd = -1, .wfd = -1};
	l->window = WINDOW_MIN;
	STAILQ_INIT(&l->kept);
	return l;
}

void
link_detach(struct link *l)
{
	loop_fd_del(l->in);
	loop_fd_del(l->out);
	loop_timer_del(l->ping);
	l->in = l->out = NULL;
	l->ping = NULL;
	if (l->rfd >= 0)
		close(l->rfd);
	if (l->wfd >= 0)
		close(l->wfd);
	l->rfd = l->wfd = -1;
	l->up = false;
	l->next = NULL;
	l->done = l->urgent_done = 0;
	buf_free(&l->urgent);
	buf_free(&l->got);
}

static void
drop_first(struct link *l)
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
link_free(struct link *l)
{
	if (!l)
		return;
	link_detach(l);
	while (l->n_kept)
		drop_first(l);
	free(l);
}

bool
link_is_up(const struct link *l)
{
	return l->up;
}

size_t
link_unacked(const struct link *l)
{
	return l->n_kept;
}

size_t
link_piece(const struct link *l)
{
	return MIN(l->window / WINDOW_PIECES, (size_t)LINK_PIECE);
}

/* The streams are of no use any more. */
static void
lost(struct link *l, const struct err *why)
{
	if (l->rfd < 0)
		return;
	link_detach(l);
	l->ops->down(l->arg, why);
}

static void
put_header(char *p, size_t size, int type)
{
	for (int i = 0; i < 4; i++)
		p[i] = (char)(size >> (8 * i));
	p[4] = (char)type;
}

static void
urgent(struct link *l, int type, uint64_t v)
{
	char header[HEADER];

	put_header(header, HEADER + sizeof(v), type);
	buf_add(&l->urgent, header, HEADER);
	wire_put_number(&l->urgent, '8', v);
}

/* ---- sending ---- */

/* Writes some of n bytes: true when all are out. */
static bool
write_some(struct link *l, const char *p, size_t n, size_t *done)
{
	while (*done < n) {
		ssize_t w = write(l->wfd, p + *done, n - *done);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN && !l->out)
			l->out = loop_fd(l->loop, l->wfd, EPOLLOUT, on_writable, l);
		if (w < 0) {
			/* what is broken is noticed by the reading side, which has the last words
			 */
			if (errno != EAGAIN && l->out) {
				loop_fd_del(l->out);
				l->out = NULL;
			}
			return false;
		}
		*done += (size_t)w;
	}
	return true;
}

/* Is there a packet to send, perhaps (bulk) one that is made now? */
static bool
has_next(struct link *l, bool bulk)
{
	return l->next || (bulk && l->bulk < l->window && l->ops->more(l->arg) && l->next);
}

static void
push(struct link *l, bool bulk)
{
	if (!l->up || l->sending)
		return;
	l->sending = true;
	for (;;) {
		if (l->done == 0 && l->urgent.n) {
			if (!write_some(l, l->urgent.p, l->urgent.n, &l->urgent_done))
				break;
			buf_clear(&l->urgent);
			l->urgent_done = 0;
		}
		if (!has_next(l, bulk)) {
			loop_fd_del(l->out);
			l->out = NULL;
			break;
		}
		if (!write_some(l, l->next->bytes, l->next->n, &l->done))
			break;
		l->next->sent = now_ns();
		l->next = STAILQ_NEXT(l->next, link);
		l->done = 0;
	}
	l->sending = false;
}

static void
on_writable(void *arg, uint32_t events)
{
	push(arg, true);
}

void
link_send(struct link *l, int type, bool bulk, struct slice head, struct slice body)
{
	size_t n = HEADER + head.n + body.n;
	struct packet *p = xmalloc(sizeof(*p) + n);

	*p = (struct packet){.n = n, .bulk = bulk};
	put_header(p->bytes, n, type);
	if (head.n)
		memcpy(p->bytes + HEADER, head.p, head.n);
	if (body.n)
		memcpy(p->bytes + HEADER + head.n, body.p, body.n);
	STAILQ_INSERT_TAIL(&l->kept, p, link);
	l->n_kept++;
	if (bulk)
		l->bulk += n;
	if (l->up && !l->next)
		l->next = p;
	/* no bulk is made inside: who sends may be about to change what it is made of. The packet's
	 * acknowledgement is a time for it. */
	push(l, false);
}

void
link_more(struct link *l)
{
	push(l, true);
}

/* ---- receiving ---- */

/* Learns from a round trip how much bulk may be on its way. The window doubles in each round trip
 * until something has queued, and then grows by a part of itself. */
static void
adapt(struct link *l, const struct packet *p)
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

/* The other side has taken so many packets in all. */
static int
acknowledged(struct link *l, uint64_t count, struct err *e)
{
	uint64_t end = l->acked + l->n_kept;

	if (count < l->acked || count > end)
		return fail(e, EBADMSG, "link: %llu packets are acknowledged, of %llu to %llu",
		    (unsigned long long)count, (unsigned long long)l->acked,
		    (unsigned long long)end);
	while (l->acked < count) {
		struct packet *p = STAILQ_FIRST(&l->kept);

		if (p == l->next)
			return fail(
			    e, EBADMSG, "link: a packet is acknowledged before it was sent");
		if (p->bulk && p->sent)
			adapt(l, p);
		drop_first(l);
	}
	return 0;
}

/* The first word on new streams: what it has not taken is sent again. */
static int
resumed(struct link *l, uint64_t count, struct err *e)
{
	struct packet *p;

	if (l->up)
		return fail(e, EBADMSG, "link: it begins twice");
	if (acknowledged(l, count, e) < 0)
		return -e->no;
	STAILQ_FOREACH (p, &l->kept, link)
		p->sent = 0;
	l->up = true;
	l->next = STAILQ_FIRST(&l->kept);
	l->least_ns = 0;
	l->shrunk = 0;
	l->ops->up(l->arg);
	return 0;
}

/* One of the link's own packets. */
static int
take_own(struct link *l, int type, struct slice body, struct err *e)
{
	uint64_t v;

	if (!wire_get('8', &body.p, &body.n, &v, NULL) || body.n)
		return fail(e, EBADMSG, "link: a packet of type %d has the wrong size", type);
	switch (type) {
	case PACKET_RESUME:
		return resumed(l, v, e);
	case PACKET_ACK:
		return acknowledged(l, v, e);
	case PACKET_PING:
		urgent(l, PACKET_PONG, v);
		return 0;
	case PACKET_PONG:
		return 0;
	default:
		return fail(e, EBADMSG, "link: a packet of type %d is not known", type);
	}
}

/* Takes the whole packets that are there. */
static int
take_packets(struct link *l, struct err *e)
{
	unsigned streams = l->streams;
	uint64_t before = l->received;
	size_t at = 0;
	int r = 0;

	while (r == 0 && l->got.n - at >= HEADER) {
		const unsigned char *p = (const unsigned char *)l->got.p + at;
		uint32_t n =
		    p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
		struct slice body = {l->got.p + at + HEADER, n - HEADER};

		if (n < HEADER || n > PACKET_SIZE_MAX)
			return fail(e, EBADMSG,
			    "link: what came is no packet: something else writes to its stream");
		if (l->got.n - at < n)
			break;
		at += n;
		if (p[4] < LINK_PACKET_MIN) {
			r = take_own(l, p[4], body, e);
		} else if (!l->up) {
			return fail(e, EBADMSG, "link: a packet came before the beginning");
		} else {
			l->received++;
			l->ops->packet(l->arg, p[4], body);
		}
		if (l->rfd < 0 || l->streams != streams)
			return 0; /* ended meanwhile: the buffer is gone */
	}
	buf_drop(&l->got, at);
	if (l->got.n == 0 && l->got.cap > ROOM_KEPT)
		buf_free(&l->got);
	if (l->received != before)
		urgent(l, PACKET_ACK, l->received);
	return r;
}

/* Bytes have come. */
static void
took(struct link *l)
{
	unsigned streams = l->streams;
	struct err e = {0};

	l->last_word = now_ns();
	if (take_packets(l, &e) < 0)
		lost(l, &e);
	else if (l->streams == streams)
		push(l, true);
}

static void
on_readable(void *arg, uint32_t events)
{
	struct link *l = arg;
	struct err e = {0};
	ssize_t n = read(l->rfd, buf_reserve(&l->got, READ_SIZE), READ_SIZE);

	if (n > 0) {
		l->got.n += (size_t)n;
		took(l);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		if (n < 0)
			fail_errno(&e, "link");
		lost(l, &e);
	}
}

static void
on_ping(void *arg)
{
	struct link *l = arg;
	struct err e;

	l->ping = NULL;
	if (now_ns() - l->last_word > LINK_DEAD_MS * 1000000ull) {
		fail(&e, ETIMEDOUT, "no word for %d s", LINK_DEAD_MS / 1000);
		lost(l, &e);
		return;
	}
	l->ping = loop_timer(l->loop, PING_MS, on_ping, l);
	urgent(l, PACKET_PING, now_ns());
	push(l, true);
}

void
link_attach(struct link *l, int rfd, int wfd, struct slice early)
{
	link_detach(l);
	l->streams++;
	l->rfd = rfd;
	/* the loop watches each number for one thing */
	l->wfd = rfd == wfd ? fcntl(wfd, F_DUPFD_CLOEXEC, 0) : wfd;
	fd_nonblock(l->rfd, true);
	fd_nonblock(l->wfd, true);
	l->in = loop_fd(l->loop, l->rfd, EPOLLIN, on_readable, l);
	l->last_word = now_ns();
	l->ping = loop_timer(l->loop, PING_MS, on_ping, l);
	urgent(l, PACKET_RESUME, l->received);
	/* nothing else is sent before the other side has begun, too */
	write_some(l, l->urgent.p, l->urgent.n, &l->urgent_done);
	if (l->urgent_done == l->urgent.n) {
		buf_clear(&l->urgent);
		l->urgent_done = 0;
	}
	if (early.n) {
		buf_add(&l->got, early.p, early.n);
		took(l);
	}
}
