/* NCCL for the tests: nccl.h describes what it can do besides NCCL's own calls. */
#include "nccl.h"
#include "nccl_inside.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LOOKS = 2, PAUSE_US = 100 };

#define X(name, type, args, needed) type name args;
NCCL_CALLS(X)
#undef X

/* Per thread, between ncclGroupStart and ncclGroupEnd. */
static __thread struct {
	int depth;
	unsigned error; /* of a call in the group: none of its calls begins */
	struct CUstream_st *stream;
	struct operation *all;
} group;

/* ---- communicators ---- */

unsigned
ncclGetVersion(int *version)
{
	*version = 22809;
	return fake_nccl_say(__func__);
}

unsigned
ncclGetUniqueId(ncclUniqueId *id)
{
	const char *folder = getenv("TMPDIR");
	unsigned error = fake_nccl_say(__func__);
	int fd;

	memset(id, 0, sizeof(*id));
	snprintf(
	    id->internal, sizeof(id->internal), "%s/fake-nccl.XXXXXX", folder ? folder : "/tmp");
	fd = error ? -1 : mkstemp(id->internal);
	if (fd >= 0 && ftruncate(fd, sizeof(struct meeting)) < 0)
		error = dncclSystemError;
	if (fd >= 0)
		close(fd);
	return error || fd >= 0 ? error : (unsigned)dncclSystemError;
}

/* As ncclTopoDumpGraphs does: two rings, which NVLink carries, and no tree. */
static void
dump_graphs(int ranks)
{
	const char *name = getenv("NCCL_GRAPH_DUMP_FILE");
	FILE *f = name ? fopen(name, "w") : NULL;

	if (!f)
		return;
	fprintf(f, "<graphs version=\"1\">\n  <graph id=\"0\" pattern=\"4\" crossnic=\"0\" "
		   "nchannels=\"2\" speedintra=\"20\" speedinter=\"20\" latencyinter=\"0\" "
		   "typeintra=\"NVL\" typeinter=\"PIX\" samechannels=\"1\">\n");
	for (int channel = 0; channel < 2; channel++) {
		fprintf(f, "    <channel>\n");
		for (int i = 0; i < ranks; i++)
			fprintf(f, "      <gpu dev=\"%#x\"/>\n", i);
		fprintf(f, "    </channel>\n");
	}
	fprintf(f, "  </graph>\n  <graph id=\"1\" pattern=\"1\" nchannels=\"0\"/>\n</graphs>\n");
	fclose(f);
}

/* Drops a reference to a communicator; the last one frees it. */
static void
put(struct ncclComm *c)
{
	if (atomic_fetch_sub(&c->uses, 1) != 1)
		return;
	munmap(c->meeting, sizeof(*c->meeting));
	free(c);
}

unsigned
ncclCommInitRankConfig(
    struct ncclComm **comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	unsigned error = fake_nccl_say(__func__);
	struct ncclComm *c;
	int fd;

	if (error)
		return error;
	if (ranks > RANKS_MAX || rank < 0 || rank >= ranks ||
	    config->magic != (unsigned)NCCL_CONFIG_MAGIC)
		return dncclInvalidArgument;
	fd = open(id.internal, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return dncclSystemError;
	c = calloc(1, sizeof(*c));
	*c = (struct ncclComm){.rank = rank, .ranks = ranks, .blocking = config->blocking};
	atomic_store(&c->uses, 1);
	c->meeting = mmap(NULL, sizeof(*c->meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (c->meeting == MAP_FAILED)
		abort();
	if (atomic_fetch_add(&c->meeting->joined, 1) + 1 == ranks)
		unlink(id.internal);
	pthread_mutex_lock(&fake_nccl.lock);
	fake_nccl.made++;
	fake_nccl.live++;
	pthread_mutex_unlock(&fake_nccl.lock);
	*comm = c;
	if (rank == 0)
		dump_graphs(ranks);
	while (c->blocking && atomic_load(&c->meeting->joined) < ranks)
		usleep(PAUSE_US);
	return c->blocking ? dncclSuccess : dncclInProgress;
}

unsigned
ncclCommGetAsyncError(struct ncclComm *c, unsigned *error)
{
	*error = dncclSuccess;
	if (atomic_load(&c->meeting->joined) < c->ranks)
		*error = dncclInProgress;
	else if (fake_nccl.async)
		*error = fake_nccl.async;
	else if (atomic_load(&c->finalized) && atomic_load(&c->uses) > 1)
		*error = dncclInProgress; /* an operation is in flight */
	else if (atomic_load(&c->unseen) > 0 && atomic_fetch_sub(&c->unseen, 1) > 0)
		*error = dncclInProgress;
	return fake_nccl_say(__func__);
}

unsigned
ncclCommFinalize(struct ncclComm *c)
{
	unsigned error = fake_nccl_say(__func__);

	atomic_store(&c->unseen, LOOKS);
	atomic_store(&c->finalized, true);
	return error ? error : (unsigned)dncclInProgress;
}

unsigned
ncclCommDestroy(struct ncclComm *c)
{
	unsigned error = fake_nccl_say(__func__);

	/* NCCL itself would wait */
	if (!atomic_load(&c->finalized) || atomic_load(&c->uses) > 1)
		return dncclInvalidUsage;
	pthread_mutex_lock(&fake_nccl.lock);
	fake_nccl.live--;
	pthread_mutex_unlock(&fake_nccl.lock);
	put(c);
	return error;
}

unsigned
ncclCommAbort(struct ncclComm *c)
{
	unsigned error = fake_nccl_say(__func__);

	atomic_store(&c->aborted, true);
	pthread_mutex_lock(&fake_nccl.lock);
	fake_nccl.live--;
	fake_nccl.aborted++;
	pthread_mutex_unlock(&fake_nccl.lock);
	put(c);
	return error;
}

void
fake_nccl_wait(struct ncclComm *c)
{
	while (atomic_load(&c->uses) > 1)
		usleep(PAUSE_US);
}

unsigned
ncclCommRevoke(struct ncclComm *c, int flags)
{
	unsigned error = fake_nccl_say(__func__);

	if (error || flags)
		return error ? error : (unsigned)dncclInvalidArgument;
	atomic_fetch_add(&fake_nccl.stalled, 1);
	while (atomic_load(&fake_nccl.stalls_revoke))
		usleep(PAUSE_US);
	atomic_fetch_sub(&fake_nccl.stalled, 1);
	atomic_store(&c->revoked, true);
	fake_nccl_wait(c);
	pthread_mutex_lock(&fake_nccl.lock);
	fake_nccl.revoked++;
	pthread_mutex_unlock(&fake_nccl.lock);
	return dncclSuccess;
}

/* ---- operations ---- */

static void
operation_free(struct operation *o)
{
	put(o->comm);
	free(o->spare);
	free(o);
}

static void
run(void *arg)
{
	struct operation *o = arg;

	fake_nccl_transfer(o);
	if (o->finish && !fake_nccl_ended(o->comm))
		o->finish(o);
	operation_free(o);
}

static unsigned
start(struct operation *o, struct CUstream_st *stream)
{
	struct ncclComm *c = o->comm;

	fake_nccl.enqueue(stream, run, o);
	if (c->blocking)
		return dncclSuccess;
	atomic_store(&c->unseen, LOOKS);
	return dncclInProgress;
}

/* NULL if an argument is not device memory. */
static struct operation *
operation_new(struct ncclComm *c, const void *from, size_t from_n, void *to, size_t to_n)
{
	struct operation *o;

	if (atomic_load(&c->revoked))
		return NULL;
	o = calloc(1, sizeof(*o));
	o->from = from_n ? fake_nccl.bytes((uintptr_t)from, from_n) : NULL;
	o->to = to_n ? fake_nccl.bytes((uintptr_t)to, to_n) : NULL;
	if ((from_n && !o->from) || (to_n && !o->to)) {
		free(o);
		return NULL;
	}
	o->comm = c;
	atomic_fetch_add(&c->uses, 1);
	return o;
}

static void
add(struct operation *o, bool out, int peer, char *bytes, size_t n)
{
	o->transfers[o->count++] =
	    (struct transfer){.peer = peer, .out = out, .bytes = bytes, .n = n};
}

/* Receives from all other ranks, to combine the parts. */
static void
receive_all(struct operation *o, size_t count, unsigned type, unsigned op)
{
	struct ncclComm *c = o->comm;
	size_t n = count * fake_nccl_size(type);

	o->elements = count;
	o->type = type;
	o->op = op;
	o->spare = malloc(n * (size_t)c->ranks);
	for (int i = 0; i < c->ranks; i++) {
		o->received[i] = o->spare + n * (size_t)i;
		if (i != c->rank)
			add(o, false, i, o->received[i], n);
	}
	o->finish = fake_nccl_combine;
}

unsigned
ncclAllReduce(const void *from, void *to, size_t count, unsigned type, unsigned op,
    struct ncclComm *c, struct CUstream_st *stream)
{
	size_t n = count * fake_nccl_size(type);
	unsigned error = fake_nccl_say(__func__);
	struct operation *o;

	if (error)
		return error;
	o = n && op == dncclSum ? operation_new(c, from, n, to, n) : NULL;
	if (!o)
		return dncclInvalidArgument;
	for (int i = 0; i < c->ranks; i++)
		if (i != c->rank)
			add(o, true, i, o->from, n);
	receive_all(o, count, type, op);
	return start(o, stream);
}

unsigned
ncclReduce(const void *from, void *to, size_t count, unsigned type, unsigned op, int root,
    struct ncclComm *c, struct CUstream_st *stream)
{
	size_t n = count * fake_nccl_size(type);
	unsigned error = fake_nccl_say(__func__);
	struct operation *o;

	if (error)
		return error;
	o = n ? operation_new(c, from, n, to, root == c->rank ? n : 0) : NULL;
	if (!o)
		return dncclInvalidArgument;
	if (root == c->rank)
		receive_all(o, count, type, op);
	else
		add(o, true, root, o->from, n);
	return start(o, stream);
}

/* Copies this rank's own part into place. */
static void
copy_own(struct operation *o)
{
	memmove(o->to, o->from, o->elements);
}

unsigned
ncclAllGather(const void *from, void *to, size_t count, unsigned type, struct ncclComm *c,
    struct CUstream_st *stream)
{
	size_t n = count * fake_nccl_size(type);
	unsigned error = fake_nccl_say(__func__);
	struct operation *o;

	if (error)
		return error;
	o = n ? operation_new(c, from, n, to, n * (size_t)c->ranks) : NULL;
	if (!o)
		return dncclInvalidArgument;
	for (int i = 0; i < c->ranks; i++) {
		if (i == c->rank)
			continue;
		add(o, true, i, o->from, n);
		add(o, false, i, o->to + n * (size_t)i, n);
	}
	o->to += n * (size_t)c->rank;
	o->elements = n;
	o->finish = copy_own;
	return start(o, stream);
}

unsigned
ncclBroadcast(const void *from, void *to, size_t count, unsigned type, int root, struct ncclComm *c,
    struct CUstream_st *stream)
{
	size_t n = count * fake_nccl_size(type);
	unsigned error = fake_nccl_say(__func__);
	struct operation *o;

	if (error)
		return error;
	o = n ? operation_new(c, from, root == c->rank ? n : 0, to, n) : NULL;
	if (!o)
		return dncclInvalidArgument;
	for (int i = 0; i < c->ranks && root == c->rank; i++)
		if (i != root)
			add(o, true, i, o->from, n);
	if (root != c->rank)
		add(o, false, root, o->to, n);
	o->elements = n;
	o->finish = root == c->rank ? copy_own : NULL;
	return start(o, stream);
}

/* ---- groups: sends and receives in a group run concurrently ---- */

unsigned
ncclGroupStart(void)
{
	unsigned error = fake_nccl_say(__func__);

	group.depth += error == 0;
	return error;
}

static unsigned
group_end(unsigned error)
{
	struct operation *o = group.all;

	if (group.depth == 0)
		return dncclInvalidUsage;
	if (--group.depth > 0)
		return error;
	error = error ? error : group.error;
	group.all = NULL;
	group.error = 0;
	if (!o || !error)
		return o ? start(o, group.stream) : error;
	operation_free(o);
	return error;
}

unsigned
ncclGroupEnd(void)
{
	return group_end(fake_nccl_say(__func__));
}

/* Joins the open group, or forms one of its own. */
static unsigned
exchange(unsigned error, bool out, const void *p, size_t n, int peer, struct ncclComm *c,
    struct CUstream_st *stream)
{
	char *bytes = n ? fake_nccl.bytes((uintptr_t)p, n) : NULL;

	if (!error && (!bytes || peer < 0 || peer >= c->ranks))
		error = dncclInvalidArgument;
	if (error) {
		group.error = group.depth ? error : 0;
		return error;
	}
	group.depth++;
	if (!group.all)
		group.all = operation_new(c, NULL, 0, NULL, 0);
	group.stream = stream;
	add(group.all, out, peer, bytes, n);
	return group_end(0);
}

unsigned
ncclSend(const void *from, size_t count, unsigned type, int peer, struct ncclComm *comm,
    struct CUstream_st *stream)
{
	return exchange(
	    fake_nccl_say(__func__), true, from, count * fake_nccl_size(type), peer, comm, stream);
}

unsigned
ncclRecv(void *to, size_t count, unsigned type, int peer, struct ncclComm *comm,
    struct CUstream_st *stream)
{
	return exchange(
	    fake_nccl_say(__func__), false, to, count * fake_nccl_size(type), peer, comm, stream);
}

/* ---- errors ---- */

const char *
ncclGetErrorString(unsigned error)
{
	static const char *const texts[] = {"no error", "unhandled cuda error",
	    "unhandled system error", "internal error", "invalid argument", "invalid usage",
	    "remote process exited or there was a network error", "NCCL operation in progress"};

	return error < sizeof(texts) / sizeof(*texts) ? texts[error] : "unknown result code";
}

const char *
ncclGetLastError(struct ncclComm *comm)
{
	return fake_nccl.last;
}
