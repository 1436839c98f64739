/* Packs and unpacks what relays say to each other. */
#include "relay/packet.h"
#include "signal_name.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

enum { LINGER_MAX = 1000000000 }; /* LINGER_MAX in seconds */

bool
packet_linger(const char *seconds, uint64_t *ms)
{
	char *rest;
	double s = strtod(seconds, &rest);

	if (rest == seconds || *rest || !(s >= 0 && s <= LINGER_MAX))
		return false;
	*ms = (uint64_t)(s * MS_PER_S);
	return true;
}

void
packet_send(struct link *l, int type, bool bulk, uint32_t id, struct slice body)
{
	struct buf head = {0};

	wire_put_number(&head, '4', id);
	link_send(l, type, bulk, (struct slice){head.p, head.n}, body);
	buf_free(&head);
}

bool
packet_id(struct slice *body, uint32_t *id)
{
	uint64_t v;

	if (!wire_get('4', &body->p, &body->n, &v, NULL))
		return false;
	*id = (uint32_t)v;
	return true;
}

/* Packs m as a frame without a descriptor. */
static struct buf
frame_of(const struct msg *m)
{
	struct msg plain = *m;
	struct buf b = {0};

	plain.flags &= (uint8_t)~FLAG_FD;
	plain.fd = -1;
	wire_pack_raw(&b, &plain);
	return b;
}

void
packet_send_frame(struct link *l, const struct msg *m)
{
	struct buf b = frame_of(m);

	link_send(l, PACKET_FRAME, false, (struct slice){0}, (struct slice){b.p, b.n});
	buf_free(&b);
}

void
packet_send_with(struct link *l, uint32_t id, const struct msg *m)
{
	struct buf b = frame_of(m);

	packet_send(l, PACKET_WITH, false, id, (struct slice){b.p, b.n});
	buf_free(&b);
}

void
packet_send_error(struct link *l, unsigned slot, uint64_t tag, const struct err *e)
{
	struct buf b = {0};

	wire_pack_error(&b, slot, tag, e);
	link_send(l, PACKET_FRAME, false, (struct slice){b.p, b.n}, (struct slice){0});
	buf_free(&b);
}

void
packet_cancelled(struct err *e)
{
	fail(e, EINTR, "cancelled: no longer wanted");
}

int
packet_frame(struct slice body, struct msg *m, struct err *e)
{
	long n = wire_frame(body.p, body.n, m, e);

	if (n < 0)
		return (int)n;
	if (n == 0 || (size_t)n != body.n || m->flags & FLAG_FD)
		return fail(e, EBADMSG, "relay: a packet is no whole frame");
	return 0;
}

bool
packet_is_secret(const void *said, const void *secret, size_t n)
{
	const unsigned char *a = said, *b = secret;
	unsigned char differs = 0;

	for (size_t i = 0; i < n; i++)
		differs |= (unsigned char)(a[i] ^ b[i]);
	return !differs;
}

bool
packet_spares_term(const struct msg *m)
{
	struct slice env;

	return wire_unpack(m, Tzygote, NULL, NULL, NULL, &env, NULL, NULL) == 0 &&
	       signal_on_preempt(env) == SIGTERM;
}
