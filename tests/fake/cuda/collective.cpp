/* Collectives, sends and receives, and groups of calls, of the fake NCCL. */
#include "communicator.h"
#include <cstdio>

namespace fake
{
static thread_local int depth; /* of group calls */
static thread_local std::vector<Operation *> *pending;
static thread_local ncclResult_t group_error;

/* In the device of the communicator, whose default stream may be meant. */
static void
launch(Operation *o)
{
	int before, device = o->comm->device;

	o->ticket = o->comm->tickets++;
	cudaGetDevice(&before);
	if (before != device)
		cudaSetDevice(device);
	fake_cuda_enqueue(o->stream, run, o); /* it may be freed now */
	if (before != device)
		cudaSetDevice(before);
}

static void
drop(Operation *o)
{
	o->comm->flight--;
	put(o->comm);
	delete o;
}

static void
keep(Operation *o)
{
	if (!pending)
		pending = new std::vector<Operation *>;
	for (Operation *p : *pending) /* sends and receives of a group are one operation */
		if (o->p2p && p->p2p && p->comm == o->comm && p->stream == o->stream) {
			p->transfers.insert(
			    p->transfers.end(), o->transfers.begin(), o->transfers.end());
			drop(o);
			return;
		}
	pending->push_back(o);
}

static ncclResult_t
submit(Operation *o)
{
	bool blocking = o->comm->blocking;

	o->comm->flight++;
	if (depth > 0) {
		keep(o);
		return ncclSuccess;
	}
	if (!blocking)
		o->comm->unseen = 2;
	launch(o);
	return blocking ? ncclSuccess : ncclInProgress;
}

static Operation *
operation(ncclComm *c, cudaStream_t s)
{
	Operation *o = new Operation;

	o->comm = c;
	o->stream = s;
	return o;
}

static char *
host(const void *p)
{
	return (char *)fake_cuda_alias(p);
}

static void
send(Operation *o, int peer, char *p, size_t n)
{
	o->transfers.push_back({peer, true, p, n});
}

static void
receive(Operation *o, int peer, char *p, size_t n)
{
	o->transfers.push_back({peer, false, p, n});
}

/* The parts of all others are received; `own` is this rank's. */
static void
gather_parts(Operation *o, size_t count, ncclDataType_t type, ncclRedOp_t op, char *own)
{
	ncclComm *c = o->comm;
	size_t n = count * size_of(type);

	o->reduces = true;
	o->count = count;
	o->type = type;
	o->op = op;
	o->received.resize(n * (size_t)c->ranks);
	for (int i = 0; i < c->ranks; i++) {
		o->parts.push_back(i == c->rank ? own : o->received.data() + n * (size_t)i);
		if (i != c->rank)
			receive(o, i, o->parts.back(), n);
	}
}

static ncclResult_t
check_arguments(const char *call, ncclComm *c, const void *p, const void *q, ncclDataType_t type)
{
	char text[128];

	if (c->ended())
		return fail(ncclInvalidUsage, "the communicator was revoked or aborted");
	if (c->error)
		return (ncclResult_t)c->error.load();
	if (type > ncclBfloat16)
		return fail(ncclInvalidArgument, "the fake NCCL has no small floats");
	for (const void *each : {p, q})
		if (each && !fake_cuda_is_device(each)) {
			snprintf(text, sizeof(text), "%s: %p is not a device pointer", call, each);
			return fail(ncclInvalidArgument, text);
		}
	return ncclSuccess;
}

/* Another thread may abort the communicator during the call: if it succeeds, the operation has a
 * use of it. */
static ncclResult_t
check(const char *call, ncclComm *c, const void *p, const void *q, ncclDataType_t type)
{
	ncclResult_t r = failure(call);

	if (r != ncclSuccess)
		return r;
	if (!c)
		return fail(ncclInvalidArgument, "comm argument is NULL");
	c->uses++;
	r = check_arguments(call, c, p, q, type);
	if (r != ncclSuccess)
		put(c);
	return r;
}

static ncclResult_t
point_to_point(
    const char *call, bool out, const void *p, size_t n, int peer, ncclComm *c, cudaStream_t s)
{
	ncclResult_t r = check(call, c, p, nullptr, ncclInt8);
	Operation *o;

	if (r == ncclSuccess && (peer < 0 || peer >= c->ranks)) {
		put(c);
		r = fail(ncclInvalidArgument, "no such peer");
	}
	if (r != ncclSuccess) {
		group_error = depth ? r : group_error;
		return r;
	}
	o = operation(c, s);
	o->p2p = true;
	o->transfers.push_back({peer, out, host(p), n});
	return submit(o);
}
} // namespace fake

using namespace fake;

#define CHECK(c, p, q, type)                                                                       \
	if (ncclResult_t wrong = check(__func__, c, p, q, type); wrong != ncclSuccess)             \
	return wrong

extern "C" {
ncclResult_t
ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
    ncclComm_t c, cudaStream_t s)
{
	CHECK(c, from, to, type);
	Operation *o = operation(c, s);

	o->to = host(to);
	for (int i = 0; i < c->ranks; i++)
		if (i != c->rank)
			send(o, i, host(from), n * size_of(type));
	gather_parts(o, n, type, op, host(from));
	return submit(o);
}

ncclResult_t
ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
    ncclComm_t c, cudaStream_t s)
{
	CHECK(c, from, nullptr, type);
	Operation *o = operation(c, s);

	o->to = host(to);
	if (root == c->rank)
		gather_parts(o, n, type, op, host(from));
	else
		send(o, root, host(from), n * size_of(type));
	return submit(o);
}

ncclResult_t
ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
    ncclComm_t c, cudaStream_t s)
{
	CHECK(c, from, to, type);
	Operation *o = operation(c, s);
	size_t size = n * size_of(type);

	o->to = host(to);
	for (int i = 0; i < c->ranks; i++)
		if (i != c->rank)
			send(o, i, host(from) + size * (size_t)i, size);
	gather_parts(o, n, type, op, host(from) + size * (size_t)c->rank);
	return submit(o);
}

ncclResult_t
ncclAllGather(
    const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t c, cudaStream_t s)
{
	CHECK(c, from, to, type);
	Operation *o = operation(c, s);
	size_t size = n * size_of(type);

	o->from = host(from);
	o->to = host(to) + size * (size_t)c->rank;
	o->own = size;
	for (int i = 0; i < c->ranks; i++)
		if (i != c->rank) {
			send(o, i, host(from), size);
			receive(o, i, host(to) + size * (size_t)i, size);
		}
	return submit(o);
}

ncclResult_t
ncclAlltoAll(
    const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t c, cudaStream_t s)
{
	CHECK(c, from, to, type);
	Operation *o = operation(c, s);
	size_t size = n * size_of(type);

	o->from = host(from) + size * (size_t)c->rank;
	o->to = host(to) + size * (size_t)c->rank;
	o->own = size;
	for (int i = 0; i < c->ranks; i++)
		if (i != c->rank) {
			send(o, i, host(from) + size * (size_t)i, size);
			receive(o, i, host(to) + size * (size_t)i, size);
		}
	return submit(o);
}

ncclResult_t
ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root, ncclComm_t c,
    cudaStream_t s)
{
	CHECK(c, to, nullptr, type);
	Operation *o = operation(c, s);
	size_t size = n * size_of(type);

	if (root != c->rank) {
		receive(o, root, host(to), size);
		return submit(o);
	}
	o->from = host(from);
	o->to = host(to);
	o->own = size;
	for (int i = 0; i < c->ranks; i++)
		if (i != root)
			send(o, i, host(from), size);
	return submit(o);
}

ncclResult_t
ncclBcast(void *p, size_t n, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t s)
{
	return ncclBroadcast(p, p, n, type, root, c, s);
}

ncclResult_t
ncclSend(const void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s)
{
	return point_to_point(__func__, true, p, n * size_of(type), peer, c, s);
}

ncclResult_t
ncclRecv(void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s)
{
	return point_to_point(__func__, false, p, n * size_of(type), peer, c, s);
}

ncclResult_t
ncclRedOpCreatePreMulSum(ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t, ncclComm_t)
{
	return fail(ncclInvalidUsage, "the fake NCCL has no PreMulSum");
}

ncclResult_t
ncclRedOpDestroy(ncclRedOp_t, ncclComm_t)
{
	return ncclSuccess;
}

ncclResult_t
ncclGroupStart(void)
{
	depth++;
	return ncclSuccess;
}

ncclResult_t
ncclGroupEnd(void)
{
	std::vector<Operation *> all;
	ncclResult_t error = group_error;
	bool in_progress = false;

	if (depth == 0)
		return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
	if (--depth > 0)
		return ncclSuccess;
	group_error = ncclSuccess;
	if (pending)
		all.swap(*pending);
	for (Operation *o : all) {
		if (error != ncclSuccess) {
			drop(o);
			continue;
		}
		if (!o->comm->blocking) {
			in_progress = true;
			o->comm->unseen = 2;
		}
		launch(o);
	}
	return error != ncclSuccess ? error : in_progress ? ncclInProgress : ncclSuccess;
}
}
