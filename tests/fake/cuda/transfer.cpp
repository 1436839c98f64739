/* How operations of the fake NCCL run: pieces between ranks, and reductions in the order of ranks.
 */
#include "communicator.h"
#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace fake
{
struct Bfloat16 {
	uint16_t bits;

	Bfloat16() = default;

	explicit Bfloat16(float f)
	{
		uint32_t u;

		memcpy(&u, &f, sizeof(u));
		bits = f != f ? 0x7fc0 : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
	}

	explicit operator float() const
	{
		uint32_t u = (uint32_t)bits << 16;
		float f;

		memcpy(&f, &u, sizeof(f));
		return f;
	}
};

size_t
size_of(ncclDataType_t type)
{
	switch (type) {
	case ncclFloat16:
	case ncclBfloat16:
		return 2;
	case ncclInt32:
	case ncclUint32:
	case ncclFloat32:
		return 4;
	case ncclInt64:
	case ncclUint64:
	case ncclFloat64:
		return 8;
	default:
		return 1;
	}
}

template <class Sum>
static Sum
combine(ncclRedOp_t op, Sum a, Sum b)
{
	switch (op) {
	case ncclProd:
		return a * b;
	case ncclMax:
		return std::max(a, b);
	case ncclMin:
		return std::min(a, b);
	default:
		return a + b;
	}
}

template <class Element, class Sum>
static void
fold(Operation *o)
{
	for (size_t i = 0; i < o->count; i++) {
		Sum sum = (Sum)((Element *)o->parts[0])[i];

		for (int k = 1; k < o->comm->ranks; k++)
			sum = combine<Sum>(o->op, sum, (Sum)((Element *)o->parts[k])[i]);
		if (o->op == ncclAvg)
			sum = (Sum)(sum / (Sum)o->comm->ranks);
		((Element *)o->to)[i] = (Element)sum;
	}
}

void
reduce(Operation *o)
{
	switch (o->type) {
	case ncclInt8:
		return fold<int8_t, int>(o);
	case ncclUint8:
		return fold<uint8_t, unsigned>(o);
	case ncclInt32:
		return fold<int32_t, int32_t>(o);
	case ncclUint32:
		return fold<uint32_t, uint32_t>(o);
	case ncclInt64:
		return fold<int64_t, int64_t>(o);
	case ncclUint64:
		return fold<uint64_t, uint64_t>(o);
	case ncclFloat16:
		return fold<_Float16, float>(o);
	case ncclBfloat16:
		return fold<Bfloat16, float>(o);
	case ncclFloat32:
		return fold<float, float>(o);
	case ncclFloat64:
		return fold<double, double>(o);
	default:
		return; /* small floats: refused at the call */
	}
}

static void
wait_us(ncclComm *c, unsigned us)
{
	for (; us > 0 && !c->ended(); us -= std::min(us, 1000u))
		usleep(std::min(us, 1000u));
}

/* One piece, if there is one or room for one. */
static bool
move(ncclComm *c, Transfer &t)
{
	Channel &ch = t.out ? c->channel(c->rank, t.peer) : c->channel(t.peer, c->rank);
	uint64_t sent = ch.sent, taken = ch.taken;
	size_t n;

	if (t.out != (sent == taken))
		return false;
	if (t.out) {
		Link link = link_between(c->rank, t.peer);

		if (link.hangs)
			return false;
		wait_us(c, link.slow_us);
		n = ch.n = std::min(PIECE, t.n - t.done);
		memcpy(ch.bytes, t.p + t.done, n);
		ch.bytes[0] ^= link.wrong ? 1 : 0;
		ch.sent = sent + 1;
	} else {
		n = std::min(ch.n, t.n - t.done);
		memcpy(t.p + t.done, ch.bytes, n);
		ch.taken = taken + 1;
	}
	t.done += n;
	return true;
}

static void
transfer(Operation *o)
{
	ncclComm *c = o->comm;

	for (bool left = true; left && !c->ended();) {
		bool moved = false;

		left = false;
		for (Transfer &t : o->transfers) {
			if (t.done < t.n)
				moved |= move(c, t);
			left |= t.done < t.n;
		}
		if (left && !moved)
			usleep(PAUSE_US);
	}
}

void
run(void *operation)
{
	Operation *o = (Operation *)operation;
	ncclComm *c = o->comm;

	while (c->turn != o->ticket && !c->ended())
		usleep(PAUSE_US);
	c->running++;
	wait_us(c, delay_us());
	transfer(o);
	if (!c->ended()) {
		if (o->reduces)
			reduce(o);
		else if (o->own)
			memmove(o->to, o->from, o->own);
	}
	c->turn++;
	c->running--;
	c->flight--;
	put(c);
	delete o;
}
} // namespace fake
