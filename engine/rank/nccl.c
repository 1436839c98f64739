/* All calls of NCCL. Their table is in nccl_api.h. */
#define _GNU_SOURCE
#include "rank/nccl.h"
#include "rank/library.h"
#include "rank/nccl_api.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)NCCL_ID_SIZE == (int)NCCL_ID_BYTES, "an id is what NCCL says");

static const char *const names[] = {"libnccl.so.2"};

static struct {
#define X(name, type, args, needed) type(*name) args;
	NCCL_CALLS(X)
#undef X
} api;

static const struct symbol symbols[] = {
#define X(name, type, args, needed) {#name, &api.name, needed},
    NCCL_CALLS(X)
#undef X
};

/* Returns 0, or -errno with the call's error and NCCL's own message about it. */
static int
check(const char *what, unsigned code, struct ncclComm *comm, struct err *e)
{
	const char *more;
	int no;

	if (code == dncclSuccess || code == dncclInProgress)
		return 0;
	more = api.ncclGetLastError ? api.ncclGetLastError(comm) : "";
	no = code == dncclRemoteError || code == dncclSystemError ? EHOSTDOWN : EREMOTEIO;
	return fail(e, no, "NCCL: %s: %s%s%.300s", what, api.ncclGetErrorString(code),
	    more && *more ? ": " : "", more ? more : "");
}

#define CALL(e, comm, name, ...) check(#name, api.name(__VA_ARGS__), comm, e)

/* 2.28.9 is 22809. */
static int
describe(char *text, size_t size, struct err *e)
{
	int version = 0, r = CALL(e, NULL, ncclGetVersion, &version);

	if (r == 0)
		snprintf(text, size, "NCCL %d.%d.%d", version / 10000, version % 10000 / 100,
		    version % 100);
	return r;
}

static struct library library = {.title = "NCCL",
    .variable = "DDIP_NCCL",
    .names = names,
    .names_count = ARRAY_LEN(names),
    .symbols = symbols,
    .symbols_count = ARRAY_LEN(symbols),
    .describe = describe,
    .lock = PTHREAD_MUTEX_INITIALIZER};

int
nccl_open(const char *folders, struct err *e)
{
	return library_open(&library, folders, e);
}

bool
nccl_is_open(void)
{
	return library_is_open(&library);
}

void
nccl_close(void)
{
	library_close(&library);
}

const char *
nccl_version(void)
{
	return library.version;
}

int
nccl_id(char id[NCCL_ID_SIZE], struct err *e)
{
	ncclUniqueId made = {{0}};
	int r = CALL(e, NULL, ncclGetUniqueId, &made);

	memcpy(id, made.internal, NCCL_ID_SIZE);
	return r;
}

int
nccl_new(struct ncclComm **comm, const char id[NCCL_ID_SIZE], int rank, int ranks, struct err *e)
{
	struct nccl_config config = {
	    sizeof(config), (unsigned)NCCL_CONFIG_MAGIC, NCCL_CONFIG_VERSION, .blocking = 0};
	ncclUniqueId given;

	*comm = NULL;
	memcpy(given.internal, id, NCCL_ID_SIZE);
	return CALL(e, NULL, ncclCommInitRankConfig, comm, ranks, given, rank, &config);
}

int
nccl_state(struct ncclComm *comm, struct err *e)
{
	unsigned error = dncclSuccess;
	int r = CALL(e, comm, ncclCommGetAsyncError, comm, &error);

	if (r == 0 && error == dncclInProgress)
		return 0;
	if (r == 0)
		r = check("a communicator", error, comm, e);
	return r < 0 ? r : 1;
}

int
nccl_finalize(struct ncclComm *comm, struct err *e)
{
	return CALL(e, comm, ncclCommFinalize, comm);
}

int
nccl_free(struct ncclComm *comm, struct err *e)
{
	return CALL(e, NULL, ncclCommDestroy, comm);
}

void
nccl_abort(struct ncclComm *comm)
{
	struct err e;

	if (comm)
		CALL(&e, NULL, ncclCommAbort, comm);
}

int
nccl_can_revoke(const char *owner, struct err *e)
{
	void *handle = dlopen(owner, RTLD_LAZY | RTLD_NOLOAD), *theirs, *ours;

	theirs = handle ? dlsym(handle, "ncclCommRevoke") : NULL;
	memcpy(&ours, &api.ncclCommRevoke, sizeof(ours));
	if (handle)
		dlclose(handle); /* it stays loaded for its other users */
	if (!library_is_open(&library) || !ours || theirs != ours)
		return fail(e, EOPNOTSUPP, "NCCL: %s has no ncclCommRevoke that is ours", owner);
	return 0;
}

/* All in one group: revoked one by one, they can block each other. */
int
nccl_revoke(struct ncclComm *const *comms, int n, struct err *e)
{
	struct err more;
	int r = CALL(e, NULL, ncclGroupStart), end;

	if (r < 0)
		return r;
	for (int i = 0; i < n; i++) {
		int one = CALL(r < 0 ? &more : e, NULL, ncclCommRevoke, comms[i], 0);

		r = r < 0 ? r : one;
	}
	end = CALL(r < 0 ? &more : e, NULL, ncclGroupEnd);
	return r < 0 ? r : end;
}

/* ---- operations ---- */

static void *
at(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

int
nccl_all_reduce(
    struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d, struct err *e)
{
	return CALL(e, comm, ncclAllReduce, at(d->from), at(d->to), d->count, dncclFloat32,
	    dncclSum, comm, stream);
}

int
nccl_all_gather(
    struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d, struct err *e)
{
	return CALL(
	    e, comm, ncclAllGather, at(d->from), at(d->to), d->count, dncclFloat32, comm, stream);
}

int
nccl_reduce(struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d,
    unsigned type, enum nccl_op op, struct err *e)
{
	static const unsigned ops[] = {
	    [NCCL_SUM] = dncclSum, [NCCL_MIN] = dncclMin, [NCCL_MAX] = dncclMax};

	return CALL(
	    e, comm, ncclReduce, at(d->from), at(d->to), d->count, type, ops[op], 0, comm, stream);
}

int
nccl_broadcast(struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d,
    int root, struct err *e)
{
	return CALL(e, comm, ncclBroadcast, at(d->from), at(d->to), d->count, dncclFloat32, root,
	    comm, stream);
}

int
nccl_exchange(struct ncclComm *comm, struct CUstream_st *stream, const struct nccl_data *d,
    int receiver, int sender, struct err *e)
{
	struct err own;
	int r = CALL(e, comm, ncclGroupStart), end;

	if (r < 0)
		return r;
	r = CALL(e, comm, ncclSend, at(d->from), d->count, dncclFloat32, receiver, comm, stream);
	if (r == 0)
		r = CALL(
		    e, comm, ncclRecv, at(d->to), d->count, dncclFloat32, sender, comm, stream);
	end = CALL(r < 0 ? &own : e, comm, ncclGroupEnd);
	return r < 0 ? r : end;
}
