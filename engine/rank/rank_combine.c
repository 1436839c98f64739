/* The daemon's requests to the engine's own communicator, and the replies. */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sends the reply in b, or the error if there is one. Frees b. */
static void
answer(struct buf *b, uint64_t tag, const struct err *e)
{
	struct msg m;

	if (e->no) {
		buf_clear(b);
		wire_pack_error(b, 0, tag, e);
	}
	if (wire_frame(b->p, b->n, &m, NULL) > 0)
		rank_link_send(&m);
	buf_free(b);
}

static void
id_ended(const struct nccl_job *j, const struct err *e)
{
	struct buf b = {0};

	wire_pack(&b, Rncclid, 0, 0, j->tag, (struct slice){j->id, NCCL_ID_SIZE});
	answer(&b, j->tag, e);
}

int
rank_combine_id(const struct msg *m, struct err *e)
{
	struct nccl_job j = {.kind = NCCL_ID, .ended = id_ended, .tag = m->tag};

	return rank_nccl_begin(&j, e);
}

static void
drop_parts(const struct nccl_job *j)
{
	if (j->combine.fd >= 0)
		close(j->combine.fd);
	rank_pin_release(j->handle);
}

static void
combine_ended(const struct nccl_job *j, const struct err *e)
{
	struct buf b = {0};

	drop_parts(j);
	wire_pack(&b, Rcombine, 0, 0, j->tag);
	answer(&b, j->tag, e);
}

/* Reads the request, except for the memory and the file. */
static int
read_job(const struct msg *m, struct nccl_job *j, struct err *e)
{
	struct slice op, dtype, id;
	uint32_t rank, ranks;
	uint64_t count;
	char *op_text, *dtype_text;
	bool can;

	if (wire_unpack(m, Tcombine, e, &j->handle, &rank, &ranks, &count, &op, &dtype, &id) < 0)
		return -e->no;
	op_text = slice_dup(op);
	dtype_text = slice_dup(dtype);
	can = nccl_combine_plan(&j->combine, op_text, dtype_text);
	free(op_text);
	free(dtype_text);
	j->rank = (int)rank;
	j->ranks = (int)ranks;
	j->combine.count = count;
	if (!can || id.n != NCCL_ID_SIZE || rank >= ranks || (rank == 0) != (m->fd >= 0))
		return fail(e, EINVAL, "combine: rank %u of %u, %.*s of %.*s", rank, ranks,
		    (int)op.n, op.p, (int)dtype.n, dtype.p);
	memcpy(j->id, id.p, NCCL_ID_SIZE);
	return 0;
}

int
rank_combine_begin(struct msg *m, struct err *e)
{
	struct nccl_job j = {
	    .kind = NCCL_COMBINE, .ended = combine_ended, .tag = m->tag, .combine.fd = -1};
	int r = read_job(m, &j, e);

	if (r < 0)
		return r;
	if (rank_queue_main_busy())
		return fail(e, EBUSY, "combine: this rank has work");
	r = rank_pin_hold(
	    j.handle, 0, (size_t)nccl_combine_size(&j.combine), &j.combine.address, &j.device, e);
	if (r < 0)
		return r;
	j.combine.fd = m->fd;
	m->fd = -1;
	r = rank_nccl_begin(&j, e);
	if (r < 0)
		drop_parts(&j);
	return r;
}
