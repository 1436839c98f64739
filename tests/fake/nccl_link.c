/* How the fake NCCL moves bytes between processes, and adds. */
#include "nccl_inside.h"
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

/* Sends the next piece if the last one was taken; false: not yet. */
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

void
fake_nccl_transfer(struct operation *o)
{
	bool left = true;

	while (left && !atomic_load(&o->comm->aborted)) {
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

size_t
fake_nccl_size(unsigned type)
{
	return type == dncclFloat32 ? sizeof(float) : 0;
}

void
fake_nccl_sum(struct operation *o)
{
	memcpy(o->received[o->comm->rank], o->from, o->elements * sizeof(float));
	for (size_t i = 0; i < o->elements; i++) {
		float sum = 0, part;

		for (int k = 0; k < o->comm->ranks; k++) {
			memcpy(&part, o->received[k] + i * sizeof(part), sizeof(part));
			sum += part;
		}
		memcpy(o->to + i * sizeof(sum), &sum, sizeof(sum));
	}
}
