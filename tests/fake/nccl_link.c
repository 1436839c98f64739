/* How the fake NCCL moves bytes between processes and combines them. */
#include "nccl_inside.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { PAUSE_US = 50 };

struct link_words fake_links[WORDS_MAX];
int fake_link_count;

static void
suffer(int from, int to, char *bytes)
{
	for (int i = 0; i < fake_link_count; i++) {
		const struct link_words *w = &fake_links[i];

		if (w->from != from || w->to != to)
			continue;
		usleep(w->slow_us);
		if (w->wrong)
			*bytes = (char)~*bytes;
	}
}

/* Sends the next piece if the previous one was taken; false: not yet. */
static bool
send_piece(struct ncclComm *c, struct transfer *t)
{
	struct channel *to = &c->meeting->channels[c->rank][t->peer];
	uint64_t sent = atomic_load(&to->sent);

	if (atomic_load(&to->taken) != sent)
		return false;
	to->n = t->n - t->done < PIECE ? t->n - t->done : PIECE;
	memcpy(to->bytes, t->bytes + t->done, to->n);
	suffer(c->rank, t->peer, to->bytes);
	t->done += to->n;
	atomic_store(&to->sent, sent + 1);
	return true;
}

static bool
take_piece(struct ncclComm *c, struct transfer *t)
{
	struct channel *from = &c->meeting->channels[t->peer][c->rank];
	uint64_t taken = atomic_load(&from->taken);

	if (atomic_load(&from->sent) == taken)
		return false;
	memcpy(t->bytes + t->done, from->bytes, from->n);
	t->done += from->n;
	atomic_store(&from->taken, taken + 1);
	return true;
}

bool
fake_nccl_ended(const struct ncclComm *c)
{
	return atomic_load(&c->aborted) || atomic_load(&c->revoked);
}

void
fake_nccl_transfer(struct operation *o)
{
	bool left = true;

	while (left && !fake_nccl_ended(o->comm)) {
		bool moved = false;

		left = false;
		for (int i = 0; i < o->count; i++) {
			struct transfer *t = &o->transfers[i];

			if (t->done < t->n)
				moved |= t->out ? send_piece(o->comm, t) : take_piece(o->comm, t);
			left |= t->done < t->n;
		}
		if (left && !moved)
			usleep(PAUSE_US);
	}
}

/* ---- numbers ---- */

/* 16-bit floats are compared by their code without the sign; sums matter only in whether they are
 * NaN. */
enum { HALF_INFINITY = 0x7c00, BRAIN_INFINITY = 0x7f80, SIGN = 0x8000, NAN_16 = 0x7fff };

static float
order_of(uint16_t code, uint16_t infinity)
{
	float magnitude = (float)(code & ~SIGN);

	if (magnitude > infinity)
		return NAN;
	return code & SIGN ? -magnitude : magnitude;
}

static float
half_order(uint16_t code)
{
	return order_of(code, HALF_INFINITY);
}

static float
brain_order(uint16_t code)
{
	return order_of(code, BRAIN_INFINITY);
}

static uint16_t
add_halves(uint16_t a, uint16_t b)
{
	return isnan(half_order(a) + half_order(b)) ? NAN_16 : 0;
}

static uint16_t
add_brains(uint16_t a, uint16_t b)
{
	return isnan(brain_order(a) + brain_order(b)) ? NAN_16 : 0;
}

#define PLUS(a, b) ((a) + (b))
#define WRAP(a, b) ((uint64_t)(a) + (uint64_t)(b))
#define SAME(a) (a)

/* Any number takes precedence over NaN. */
#define FOLD(name, type, plus, value)                                                              \
	static void name(char *to, const char *from, size_t n, unsigned op)                        \
	{                                                                                          \
		for (size_t i = 0; i < n; i++) {                                                   \
			type a, b;                                                                 \
                                                                                                   \
			memcpy(&a, to + i * sizeof(a), sizeof(a));                                 \
			memcpy(&b, from + i * sizeof(b), sizeof(b));                               \
			if (op == dncclSum)                                                        \
				a = (type)plus(a, b);                                              \
			else if (value(a) != value(a) ||                                           \
				 (op == dncclMin ? value(b) < value(a) : value(a) < value(b)))     \
				a = b;                                                             \
			memcpy(to + i * sizeof(a), &a, sizeof(a));                                 \
		}                                                                                  \
	}

FOLD(fold_int8, int8_t, PLUS, SAME)
FOLD(fold_uint8, uint8_t, PLUS, SAME)
FOLD(fold_int32, int32_t, WRAP, SAME)
FOLD(fold_uint32, uint32_t, PLUS, SAME)
FOLD(fold_int64, int64_t, WRAP, SAME)
FOLD(fold_uint64, uint64_t, PLUS, SAME)
FOLD(fold_half, uint16_t, add_halves, half_order)
FOLD(fold_float, float, PLUS, SAME)
FOLD(fold_double, double, PLUS, SAME)
FOLD(fold_brain, uint16_t, add_brains, brain_order)

static const struct {
	size_t size;
	void (*fold)(char *to, const char *from, size_t n, unsigned op);
} types[] = {
    [dncclInt8] = {1, fold_int8},
    [dncclUint8] = {1, fold_uint8},
    [dncclInt32] = {4, fold_int32},
    [dncclUint32] = {4, fold_uint32},
    [dncclInt64] = {8, fold_int64},
    [dncclUint64] = {8, fold_uint64},
    [dncclFloat16] = {2, fold_half},
    [dncclFloat32] = {4, fold_float},
    [dncclFloat64] = {8, fold_double},
    [dncclBfloat16] = {2, fold_brain},
};

size_t
fake_nccl_size(unsigned type)
{
	return type < sizeof(types) / sizeof(*types) ? types[type].size : 0;
}

void
fake_nccl_combine(struct operation *o)
{
	size_t n = o->elements * types[o->type].size;

	memcpy(o->received[o->comm->rank], o->from, n);
	for (int k = 1; k < o->comm->ranks; k++)
		types[o->type].fold(o->received[0], o->received[k], o->elements, o->op);
	memcpy(o->to, o->received[0], n);
}
