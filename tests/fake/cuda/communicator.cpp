/*
 * NCCL without a GPU, for the CUDA build of torch. Ranks are processes of one machine (or threads
 * of one), which meet in a file that the unique id names, in $FAKE_NCCL_DIR or /dev/shm: it stays
 * there if a rank dies before all have joined. Operations are tasks of the fake runtime's streams.
 * It does what nccl.h says; a wrong belief about NCCL is in it, too.
 * Words of $FAKE_NCCL, separated by blanks; ranks are those of the communicator:
 *   fail=CALL:ERROR[:AFTER[:TIMES]]  as fake_nccl_fail()
 *   delay=US          each operation takes this much longer
 *   slow=A-B:US       each piece from rank A to rank B takes this much longer
 *   hang=A-B          nothing from A to B ever arrives
 *   wrong=A-B         the first byte of each piece from A to B is corrupted
 *   async=ERROR       ncclCommGetAsyncError returns this once all ranks have joined
 */
#include "communicator.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sstream>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

namespace fake
{
struct Failure {
	std::string call;
	unsigned error;
	int after, times;
};

static struct {
	std::mutex lock;
	bool read, stalls_revoke;
	std::vector<Failure> failures;
	std::vector<Link> links;
	unsigned delay_us, async;
	std::atomic<int> made, live, aborted, revoked, stalled;
} &self = *new std::remove_reference_t<decltype(self)>();

static thread_local std::string last_error;

static void
read_word(const char *w)
{
	char call[64];
	unsigned error;
	int after = 0, times = -1;
	Link link = {};

	if (sscanf(w, "fail=%63[^:]:%u:%d:%d", call, &error, &after, &times) >= 2)
		self.failures.push_back({call, error, after, times});
	else if (sscanf(w, "delay=%u", &error) == 1)
		self.delay_us = error;
	else if (sscanf(w, "async=%u", &error) == 1)
		self.async = error;
	else if (sscanf(w, "slow=%d-%d:%u", &link.from, &link.to, &link.slow_us) == 3 ||
		 sscanf(w, "wrong=%d-%d", &link.from, &link.to) == 2 ||
		 sscanf(w, "hang=%d-%d", &link.from, &link.to) == 2) {
		link.wrong = *w == 'w';
		link.hangs = *w == 'h';
		self.links.push_back(link);
	}
}

/* Call with the lock held. */
static void
read_words()
{
	const char *words = getenv("FAKE_NCCL");
	std::istringstream all(words ? words : "");

	if (self.read)
		return;
	self.read = true;
	for (std::string w; all >> w;)
		read_word(w.c_str());
}

ncclResult_t
fail(ncclResult_t result, const char *text)
{
	last_error = text;
	return result;
}

ncclResult_t
failure(const char *call)
{
	std::lock_guard lock(self.lock);

	read_words();
	for (Failure &f : self.failures)
		if (f.call == call && f.times != 0 && f.after-- <= 0) {
			f.times -= f.times > 0;
			return fail((ncclResult_t)f.error, (f.call + " was told to fail").c_str());
		}
	return ncclSuccess;
}

Link
link_between(int from, int to)
{
	Link all = {from, to, 0, false, false};
	std::lock_guard lock(self.lock);

	for (const Link &l : self.links)
		if (l.from == from && l.to == to) {
			all.slow_us += l.slow_us;
			all.wrong |= l.wrong;
			all.hangs |= l.hangs;
		}
	return all;
}

unsigned
delay_us()
{
	return self.delay_us;
}

static std::string
path_of(const std::string &name)
{
	const char *folder = getenv("FAKE_NCCL_DIR");

	return (folder ? folder : "/dev/shm") + ("/" + name);
}

void
put(ncclComm *c)
{
	if (--c->uses > 0 || c->owned || c->gone.exchange(true))
		return;
	if (c->meeting->joined < c->ranks)
		unlink(path_of(c->name).c_str());
	munmap(c->meeting, c->bytes);
	self.live--;
}

/* The owner gives it up. What is left of a communicator is never freed, so that a second time is
 * noticed. */
static void
give_up(ncclComm *c, const char *call)
{
	if (!c->owned.exchange(false)) {
		fprintf(
		    stderr, "%s: the communicator %s is already freed\n", call, c->name.c_str());
		abort();
	}
	put(c);
}

/* The GPU and the host: NCCL refuses ranks of one host that share a GPU. */
static int
own_gpu(int device)
{
	char bus[32] = "0000:00";
	unsigned host = 0;

	cudaDeviceGetPCIBusId(bus, sizeof(bus), device);
	for (const char *h = getenv("NCCL_HOSTID"); h && *h; h++)
		host = host * 31 + (unsigned char)*h;
	return (int)(host << 8 | (strtoul(bus + 5, nullptr, 16) & 255));
}

static ncclResult_t
check_gpus(ncclComm *c)
{
	const char *shares = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
	const int *gpu = c->meeting->gpu;
	char text[128];

	for (int i = 0; i < c->ranks && !(shares && *shares == '1'); i++)
		for (int j = 0; j < i; j++)
			if (gpu[i] == gpu[j]) {
				snprintf(text, sizeof(text),
				    "Duplicate GPU detected : rank %d and rank %d both on CUDA "
				    "device %x000",
				    i, j, gpu[i] & 255);
				return fail(ncclInvalidUsage, text);
			}
	return ncclSuccess;
}

/* As NCCL says it: rings over NVLink. */
static void
dump_graphs(int ranks)
{
	const char *name = getenv("NCCL_GRAPH_DUMP_FILE");
	FILE *f = name ? fopen(name, "w") : nullptr;

	if (!f)
		return;
	fprintf(f, "<graphs version=\"1\">\n  <graph id=\"0\" pattern=\"4\" crossnic=\"0\" "
		   "nchannels=\"2\" "
		   "speedintra=\"20\" speedinter=\"20\" latencyinter=\"0\" typeintra=\"NVL\" "
		   "typeinter=\"PIX\" samechannels=\"1\">\n");
	for (int channel = 0; channel < 2; channel++) {
		fprintf(f, "    <channel>\n");
		for (int i = 0; i < ranks; i++)
			fprintf(f, "      <gpu dev=\"%#x\"/>\n", (unsigned)i);
		fprintf(f, "    </channel>\n");
	}
	fprintf(f, "  </graph>\n</graphs>\n");
	fclose(f);
}

static ncclResult_t
map_meeting(ncclComm *c)
{
	int fd = open(path_of(c->name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *p = MAP_FAILED;

	c->bytes = sizeof(Meeting) + sizeof(Channel) * (size_t)(c->ranks * c->ranks);
	if (fd >= 0 && ftruncate(fd, (off_t)c->bytes) == 0)
		p = mmap(nullptr, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	c->meeting = (Meeting *)p;
	return p == MAP_FAILED ? fail(ncclSystemError, "no shared memory") : ncclSuccess;
}

static ncclResult_t
join(ncclComm **out, int ranks, const std::string &name, int rank, bool blocking)
{
	ncclComm *c = new ncclComm;

	*out = nullptr;
	c->rank = rank;
	c->ranks = ranks;
	c->name = name;
	c->blocking = blocking;
	if (ranks > RANKS_MAX || rank < 0 || rank >= ranks || map_meeting(c) != ncclSuccess) {
		delete c;
		return fail(ncclInvalidArgument, "invalid rank, or no shared memory");
	}
	self.made++;
	self.live++;
	*out = c;
	cudaGetDevice(&c->device);
	c->meeting->gpu[rank] = own_gpu(c->device);
	if (++c->meeting->joined == ranks)
		unlink(path_of(name).c_str());
	if (rank == 0)
		dump_graphs(ranks);
	if (!blocking)
		return ncclInProgress;
	while (c->meeting->joined < ranks && !c->aborted)
		usleep(PAUSE_US);
	c->error = check_gpus(c);
	return (ncclResult_t)c->error.load();
}

static void
wait_until_idle(ncclComm *c)
{
	while (c->running)
		usleep(PAUSE_US);
}
} // namespace fake

using namespace fake;

#define MAY_FAIL()                                                                                 \
	if (ncclResult_t told = failure(__func__); told != ncclSuccess)                            \
	return told

extern "C" {
/* ---- for tests ---- */

void
fake_nccl_fail(const char *call, unsigned error, int after, int times)
{
	std::lock_guard lock(self.lock);

	read_words();
	self.failures.push_back({call, error, after, times});
}

void
fake_nccl_word(const char *word)
{
	std::lock_guard lock(self.lock);

	read_words();
	read_word(word);
}

int
fake_nccl_made(void)
{
	return self.made;
}

int
fake_nccl_live(void)
{
	return self.live;
}

int
fake_nccl_aborted(void)
{
	return self.aborted;
}

int
fake_nccl_revoked(void)
{
	return self.revoked;
}

void
fake_nccl_wait(ncclComm *c)
{
	while (c->flight)
		usleep(PAUSE_US);
}

void
fake_nccl_stall_revoke(int on)
{
	self.stalls_revoke = on;
}

int
fake_nccl_stalled(void)
{
	return self.stalled;
}

/* ---- communicators ---- */

ncclResult_t
ncclGetVersion(int *version)
{
	MAY_FAIL();
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

ncclResult_t
ncclGetUniqueId(ncclUniqueId *id)
{
	unsigned long random;

	MAY_FAIL();
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return fail(ncclSystemError, "getrandom");
	memset(id, 0, sizeof(*id));
	snprintf(id->internal, sizeof(id->internal), "fake-nccl-%d-%016lx", getpid(), random);
	return ncclSuccess;
}

ncclResult_t
ncclCommInitRankConfig(ncclComm_t *c, int n, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	/* its magic has a name from NCCL 2.29 on */
	const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;

	MAY_FAIL();
	if (config && config->magic != initial.magic)
		return fail(ncclInvalidArgument,
		    "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
	return join(c, n, id.internal, rank, !config || config->blocking != 0);
}

ncclResult_t
ncclCommInitRank(ncclComm_t *c, int n, ncclUniqueId id, int rank)
{
	MAY_FAIL();
	return join(c, n, id.internal, rank, true);
}

ncclResult_t
ncclCommInitRankScalable(
    ncclComm_t *c, int n, int rank, int, ncclUniqueId *ids, ncclConfig_t *config)
{
	MAY_FAIL();
	return ncclCommInitRankConfig(c, n, ids[0], rank, config);
}

/* All ranks are in this process. */
ncclResult_t
ncclCommInitAll(ncclComm_t *c, int n, const int *devices)
{
	ncclUniqueId id;
	int before;

	MAY_FAIL();
	ncclGetUniqueId(&id);
	cudaGetDevice(&before);
	for (int i = 0; i < n; i++) {
		cudaSetDevice(devices ? devices[i] : i);
		ncclResult_t r = join(&c[i], n, id.internal, i, false);
		if (r != ncclInProgress)
			return r;
		c[i]->blocking = true;
	}
	cudaSetDevice(before);
	return ncclSuccess;
}

ncclResult_t
ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
	bool joined = c->meeting->joined == c->ranks;

	MAY_FAIL();
	if (c->error == 0 && !c->ended() && joined)
		c->error = self.async ? (ncclResult_t)self.async : check_gpus(c);
	if (c->error)
		*error = (ncclResult_t)c->error.load();
	else if (!joined || (c->revoked && c->running) || (c->finalized && c->flight) ||
		 (c->unseen > 0 && c->unseen-- > 0))
		*error = ncclInProgress;
	else
		*error = ncclSuccess;
	return ncclSuccess;
}

ncclResult_t
ncclCommFinalize(ncclComm_t c)
{
	MAY_FAIL();
	if (c->revoked)
		return fail(ncclInvalidUsage, "finalize after revoke");
	c->finalized = true;
	while (c->blocking && c->flight && !c->ended())
		usleep(PAUSE_US);
	return c->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t
ncclCommDestroy(ncclComm_t c)
{
	MAY_FAIL();
	while (c && c->flight && !c->ended())
		usleep(PAUSE_US);
	if (c)
		give_up(c, __func__);
	return ncclSuccess;
}

ncclResult_t
ncclCommAbort(ncclComm_t c)
{
	MAY_FAIL();
	if (!c)
		return ncclSuccess;
	self.aborted++;
	c->aborted = true;
	wait_until_idle(c);
	give_up(c, __func__);
	return ncclSuccess;
}

ncclResult_t
ncclCommRevoke(ncclComm_t c, int flags)
{
	MAY_FAIL();
	if (flags)
		return fail(ncclInvalidArgument, "revokeFlags");
	self.stalled++;
	while (self.stalls_revoke)
		usleep(PAUSE_US);
	self.stalled--;
	self.revoked++;
	c->revoked = true;
	wait_until_idle(c);
	return ncclSuccess;
}

/* The ranks say color and key in the meeting. */
ncclResult_t
ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
	int n = ++c->splits, size = 0, rank = 0;
	Post *posts = c->meeting->posts[n & 1];

	MAY_FAIL();
	*out = nullptr;
	posts[c->rank].color = color;
	posts[c->rank].key = key;
	posts[c->rank].number = n;
	for (int i = 0; i < c->ranks; i++)
		while (posts[i].number < n) {
			if (c->ended())
				return fail(ncclInternalError, "the parent was aborted");
			usleep(PAUSE_US);
		}
	if (color == NCCL_SPLIT_NOCOLOR)
		return ncclSuccess;
	for (int i = 0; i < c->ranks; i++)
		if (posts[i].color == color) {
			size++;
			rank += posts[i].key < key || (posts[i].key == key && i < c->rank);
		}
	std::string name = c->name + "." + std::to_string(n) + "." + std::to_string(color);
	return join(out, size, name, rank, config ? config->blocking != 0 : c->blocking);
}

ncclResult_t
ncclCommShrink(
    ncclComm_t c, int *gone, int gone_count, ncclComm_t *out, ncclConfig_t *config, int flags)
{
	int rank = c->rank;

	MAY_FAIL();
	if (flags & NCCL_SHRINK_ABORT) {
		c->revoked = true;
		wait_until_idle(c);
	}
	for (int i = 0; i < gone_count; i++)
		rank -= gone[i] < c->rank;
	return join(out, c->ranks - gone_count, c->name + ".s" + std::to_string(++c->splits), rank,
	    config ? config->blocking != 0 : c->blocking);
}

ncclResult_t
ncclCommCount(const ncclComm_t c, int *n)
{
	*n = c->ranks;
	return ncclSuccess;
}

ncclResult_t
ncclCommUserRank(const ncclComm_t c, int *rank)
{
	*rank = c->rank;
	return ncclSuccess;
}

ncclResult_t
ncclCommCuDevice(const ncclComm_t c, int *device)
{
	*device = c->device;
	return ncclSuccess;
}

ncclResult_t
ncclCommRegister(const ncclComm_t, void *p, size_t, void **handle)
{
	*handle = p;
	return ncclSuccess;
}

ncclResult_t
ncclCommDeregister(const ncclComm_t, void *)
{
	return ncclSuccess;
}

ncclResult_t
ncclMemAlloc(void **p, size_t n)
{
	return cudaMalloc(p, n) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t
ncclMemFree(void *p)
{
	return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

const char *
ncclGetErrorString(ncclResult_t code)
{
	static const char *const texts[] = {"no error",
	    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
	    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
	    "internal error - please report this issue to the NCCL developers",
	    "invalid argument (run with NCCL_DEBUG=WARN for details)",
	    "invalid usage (run with NCCL_DEBUG=WARN for details)",
	    "remote process exited or there was a network error", "NCCL operation in progress"};

	return (size_t)code < std::size(texts) ? texts[code] : "unknown result code";
}

const char *
ncclGetLastError(ncclComm_t)
{
	return last_error.c_str();
}
}
