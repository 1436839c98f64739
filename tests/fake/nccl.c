/* NCCL for the tests: nccl.h says what it can do beside NCCL's own calls. */
#include "nccl.h"
#include "nccl_inside.h"
#include "cudart.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FAILURES_MAX = 16, LOOKS = 2, PAUSE_US = 100 };

#define X(name, type, args, needed) type name args;
NCCL_CALLS(X)
#undef X

static struct {
	pthread_mutex_t lock;
	bool read;

	struct failure {
		char call[64];
		unsigned error;
		int after, times;
	} failures[FAILURES_MAX];

	int failure_count, live, aborted;
	unsigned async;
	char last[200];
	void *(*bytes)(uint64_t, size_t);
	void (*enqueue)(struct CUstream_st *, void (*)(void *), void *);
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Of this thread, between ncclGroupStart and ncclGroupEnd. */
static __thread struct {
	int depth;
	unsigned error; /* of a call in it: none of them begins */
	struct CUstream_st *stream;
	struct operation *all;
} group;

/* ---- what tests say ---- */

static void
add_failure(const char *call, size_t n, unsigned error, int after, int times)
{
	struct failure *f = &fake.failures[fake.failure_count++ % FAILURES_MAX];

	*f = (struct failure){.error = error, .after = after, .times = times};
	memcpy(f->call, call, n < sizeof(f->call) ? n : sizeof(f->call) - 1);
}

static void
read_word(const char *w)
{
	struct link_words link = {0};
	unsigned error;
	int after = 0, times = -1, n = 0;

	if (sscanf(w, "fail=%*[^:]%n:%u:%d:%d", &n, &error, &after, &times) >= 1)
		add_failure(w + 5, (size_t)n - 5, error, after, times);
	else if (sscanf(w, "async=%u", &error) == 1)
		fake.async = error;
	else if (sscanf(w, "slow=%d-%d:%u", &link.from, &link.to, &link.slow_us) == 3 ||
		 sscanf(w, "wrong=%d-%d", &link.from, &link.to) == 2) {
		link.wrong = *w == 'w';
		fake_links[fake_link_count++ % WORDS_MAX] = link;
	}
}

/* With the lock held. */
static void
read_words(void)
{
	const char *all = getenv("FAKE_NCCL"), *cudart = getenv("DDIP_CUDART");
	char *copy = strdup(all ? all : ""), *rest = NULL;
	void *runtime = dlopen(cudart ? cudart : "libcudart.so.13", RTLD_NOW), *p;

	fake.read = true;
	for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
		read_word(w);
	free(copy);
	if (!runtime)
		abort();
	p = dlsym(runtime, "fake_cuda_bytes");
	memcpy(&fake.bytes, &p, sizeof(p));
	p = dlsym(runtime, "fake_cuda_enqueue");
	memcpy(&fake.enqueue, &p, sizeof(p));
}

void
fake_nccl_fail(const char *call, unsigned error, int after, int times)
{
	pthread_mutex_lock(&fake.lock);
	if (!fake.read)
		read_words();
	add_failure(call, strlen(call), error, after, times);
	pthread_mutex_unlock(&fake.lock);
}

int
fake_nccl_live(void)
{
	return fake.live;
}

int
fake_nccl_aborted(void)
{
	return fake.aborted;
}

/* What this call is to say. */
static unsigned
say(const char *call)
{
	unsigned error = 0;

	pthread_mutex_lock(&fake.lock);
	if (!fake.read)
		read_words();
	for (int i = 0; i < FAILURES_MAX && !error; i++) {
		struct failure *f = &fake.failures[i];

		if (strcmp(f->call, call) != 0 || f->times == 0 || f->after-- > 0)
			continue;
		f->times -= f->times > 0;
		error = f->error;
	}
	if (error)
		snprintf(fake.last, sizeof(fake.last), "%s was told to fail", call);
	pthread_mutex_unlock(&fake.lock);
	return error;
}

/* ---- communicators ---- */

unsigned
ncclGetVersion(int *version)
{
	*version = 22809;
	return say(__func__);
}

unsigned
ncclGetUniqueId(ncclUniqueId *id)
{
	const char *folder = getenv("TMPDIR");
	unsigned error = say(__func__);
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

/* Lets go of a communicator: who is the last one frees it. */
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
	unsigned error = say(__func__);
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
	pthread_mutex_lock(&fake.lock);
	fake.live++;
	pthread_mutex_unlock(&fake.lock);
	*comm = c;
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
	else if (fake.async)
		*error = fake.async;
	else if (atomic_load(&c->finalized) && atomic_load(&c->uses) > 1)
		*error = dncclInProgress; /* something is under way */
	else if (atomic_load(&c->unseen) > 0 && atomic_fetch_sub(&c->unseen, 1) > 0)
		*error = dncclInProgress;
	return say(__func__);
}

unsigned
ncclCommFinalize(struct ncclComm *c)
{
	unsigned error = say(__func__);

	atomic_store(&c->unseen, LOOKS);
	atomic_store(&c->finalized, true);
	return error ? error : (unsigned)dncclInProgress;
}

unsigned
ncclCommDestroy(struct ncclComm *c)
{
	unsigned error = say(__func__);

	/* by itself it would wait */
	if (!atomic_load(&c->finalized) || atomic_load(&c->uses) > 1)
		return dncclInvalidUsage;
	pthread_mutex_lock(&fake.lock);
	fake.live--;
	pthread_mutex_unlock(&fake.lock);
	put(c);
	return error;
}

unsigned
ncclCommAbort(struct ncclComm *c)
{
	unsigned error = say(__func__);

	atomic_store(&c->aborted, true);
	pthread_mutex_lock(&fake.lock);
	fake.live--;
	fake.aborted++;
	pthread_mutex_unlock(&fake.lock);
	put(c);
	return error;
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
	if (o->finish && !atomic_load(&o->comm->aborted))
		o->finish(o);
	operation_free(o);
}

static unsigned
start(struct operation *o, struct CUstream_st *stream)
{
	struct ncclComm *c = o->comm;

	fake.enqueue(stream, run, o);
	if (c->blocking)
		return dncclSuccess;
	atomic_store(&c->unseen, LOOKS);
	return dncclInProgress;
}

/* NULL: it is no operation on memory of a device. */
static struct operation *
operation_new(struct ncclComm *c, const void *from, size_t from_n, void *to, size_t to_n)
{
	struct operation *o = calloc(1, sizeof(*o));

	o->from = from_n ? fake.bytes((uintptr_t)from, from_n) : NULL;
	o->to = to_n ? fake.bytes((uintptr_t)to, to_n) : NULL;
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

unsigned
ncclAllReduce(const void *from, void *to, size_t count, unsigned type, unsigned op,
    struct ncclComm *c, struct CUstream_st *stream)
{
	size_t n = count * fake_nccl_size(type);
	unsigned error = say(__func__);
	struct operation *o;

	if (error)
		return error;
	o = n && op == dncclSum ? operation_new(c, from, n, to, n) : NULL;
	if (!o)
		return dncclInvalidArgument;
	o->elements = count;
	o->spare = malloc(n * (size_t)c->ranks);
	for (int i = 0; i < c->ranks; i++) {
		o->received[i] = o->spare + n * (size_t)i;
		if (i == c->rank)
			continue;
		add(o, false, i, o->received[i], n);
		add(o, true, i, o->from, n);
	}
	o->finish = fake_nccl_sum;
	return start(o, stream);
}

/* This rank's part is where it is to be. */
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
	unsigned error = say(__func__);
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
	unsigned error = say(__func__);
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

/* ---- groups: what is sent and received in one goes on side by side ---- */

unsigned
ncclGroupStart(void)
{
	unsigned error = say(__func__);

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
	return group_end(say(__func__));
}

/* Within a group, or as one of its own. */
static unsigned
exchange(unsigned error, bool out, const void *p, size_t n, int peer, struct ncclComm *c,
    struct CUstream_st *stream)
{
	char *bytes = n ? fake.bytes((uintptr_t)p, n) : NULL;

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
	    say(__func__), true, from, count * fake_nccl_size(type), peer, comm, stream);
}

unsigned
ncclRecv(void *to, size_t count, unsigned type, int peer, struct ncclComm *comm,
    struct CUstream_st *stream)
{
	return exchange(say(__func__), false, to, count * fake_nccl_size(type), peer, comm, stream);
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
	return fake.last;
}
