/* All calls of NCCL. nccl_api.h has their table. */
#define _GNU_SOURCE
#include "rank/nccl.h"
#include "rank/library.h"
#include "rank/nccl_api.h"
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

/* 0, or what the call said, with what NCCL has to say about it. */
static int
check(const char *what, unsigned code, struct ncclComm *comm, struct err *e)
{
	static const int remote = 6; /* ncclRemoteError: before 2.13 there was none */
	const char *more;
	int no;

	if (code == dncclSuccess || code == dncclInProgress)
		return 0;
	more = api.ncclGetLastError ? api.ncclGetLastError(comm) : "";
	no = code == (unsigned)remote || code == dncclSystemError ? EHOSTDOWN : EREMOTEIO;
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
	ncclUniqueId given;

	*comm = NULL;
	memcpy(given.internal, id, NCCL_ID_SIZE);
	return CALL(e, NULL, ncclCommInitRank, comm, ranks, given, rank);
}
