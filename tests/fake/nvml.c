/*
 * An NVML for the tests: $FAKE_NVML describes its GPUs; calls, numbers and errors are those of
 * the real one. Words of $FAKE_NVML, separated by blanks:
 *   gpus=8         number of GPUs      mig=2:3   GPU 2 is in MIG mode with 3 instances
 *   busy=1:71,72   processes on GPU 1  fail=CALL:CODE[:GPU]  that call fails with this number
 *   slow=300       nvmlInit takes this many ms     stuck=FIFO  every nvmlDeviceGetMemoryInfo waits
 *                                                  until this file can be read
 * Built with FAKE_OLD it is the library of an old driver: without MIG, without temperature, and
 * with the first version of the list of processes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GPUS_MAX = 16, INSTANCES_MAX = 7 };

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

struct device {
	int gpu, instance; /* -1: the whole GPU */
};

static struct device devices[GPUS_MAX][INSTANCES_MAX + 1];
static int gpus;
static int instances[GPUS_MAX];
static int started;

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlSystemGetDriverVersion(char *to, unsigned size);
int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle);
int nvmlDeviceGetUUID(void *handle, char *to, unsigned size);
int nvmlDeviceGetName(void *handle, char *to, unsigned size);
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory);
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates);
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *t);
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts);
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz);
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending);
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *n);
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned i, void **mig);
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *n, void *to);
int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *n, void *to);

/* The text behind the i-th `key`; NULL: there are fewer of them. */
static const char *
word(const char *key, int i)
{
	const char *all = getenv("FAKE_NVML"), *p = all ? all : "";
	size_t n = strlen(key);

	for (; (p = strstr(p, key)); p += n)
		if ((p == all || p[-1] == ' ') && p[n] == '=' && i-- == 0)
			return p + n + 1;
	return NULL;
}

/* The error that this call is to return for this GPU (-1: any). */
static int
failure(const char *call, int gpu)
{
	char name[80];
	const char *w;
	int code, which;

	if (!started)
		return UNINITIALIZED;
	for (int i = 0; (w = word("fail", i)); i++) {
		which = -1;
		if (sscanf(w, "%79[^: ]:%d:%d", name, &code, &which) >= 2 &&
		    strcmp(name, call) == 0 && (which < 0 || which == gpu))
			return code;
	}
	return OK;
}

static int
check(const char *call, void *handle)
{
	struct device *d = handle;

	if (!d || d->gpu < 0 || d->gpu >= gpus || d->instance >= instances[d->gpu])
		return INVALID;
	return failure(call, d->gpu);
}

int
nvmlInit_v2(void)
{
	const char *n = word("gpus", 0), *slow = word("slow", 0), *mig;
	int gpu, count;

	if (slow) {
		struct timespec t = {atoi(slow) / 1000, atoi(slow) % 1000 * 1000000L};

		nanosleep(&t, NULL);
	}
	gpus = n ? atoi(n) : 8;
	memset(instances, 0, sizeof(instances));
	for (int i = 0; (mig = word("mig", i)); i++)
		if (sscanf(mig, "%d:%d", &gpu, &count) == 2)
			instances[gpu] = count;
	for (gpu = 0; gpu < GPUS_MAX; gpu++)
		for (int i = 0; i <= INSTANCES_MAX; i++)
			devices[gpu][i] = (struct device){gpu, i - 1};
	started = 1;
	count = failure("nvmlInit_v2", -1);
	started = count == OK;
	return count;
}

int
nvmlShutdown(void)
{
	started = 0;
	return OK;
}

const char *
nvmlErrorString(int code)
{
	static const char *const texts[] = {[OK] = "Success",
	    [UNINITIALIZED] = "Uninitialized",
	    [INVALID] = "Invalid Argument",
	    [NOT_SUPPORTED] = "Not Supported",
	    [4] = "Insufficient Permissions",
	    [NOT_FOUND] = "Not Found",
	    [TOO_SMALL] = "Insufficient Size",
	    [9] = "Driver Not Loaded",
	    [15] = "GPU is lost",
	    [18] = "Driver/library version mismatch"};
	size_t n = sizeof(texts) / sizeof(texts[0]);

	return code >= 0 && (size_t)code < n && texts[code] ? texts[code] : "Unknown Error";
}

int
nvmlDeviceGetCount_v2(unsigned *n)
{
	*n = (unsigned)gpus;
	return failure("nvmlDeviceGetCount_v2", -1);
}

#ifndef FAKE_OLD
int
nvmlSystemGetDriverVersion(char *to, unsigned size)
{
	snprintf(to, size, "580.95.05");
	return failure("nvmlSystemGetDriverVersion", -1);
}

int
nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = 13000;
	return failure("nvmlSystemGetCudaDriverVersion_v2", -1);
}
#endif

int
nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle)
{
	if (i >= (unsigned)gpus)
		return INVALID;
	*handle = &devices[i][0];
	return failure("nvmlDeviceGetHandleByIndex_v2", (int)i);
}

int
nvmlDeviceGetUUID(void *handle, char *to, unsigned size)
{
	struct device *d = handle;
	int r = check("nvmlDeviceGetUUID", handle);

	if (r != OK)
		return r;
	if (d->instance < 0)
		snprintf(to, size, "GPU-%08x-0000-4000-8000-%012x", 0xa0 + d->gpu, d->gpu);
	else
		snprintf(to, size, "MIG-%08x-0000-5000-8000-%012x", 0xb0 + d->gpu, d->instance);
	return OK;
}

int
nvmlDeviceGetName(void *handle, char *to, unsigned size)
{
	struct device *d = handle;

	snprintf(to, size, d->instance < 0 ? "NVIDIA Fake 80GB" : "NVIDIA Fake 80GB MIG 1g.10gb");
	return check("nvmlDeviceGetName", handle);
}

int
nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory)
{
	struct device *d = handle;
	const char *fifo = word("stuck", 0);
	char path[512];

	if (fifo && sscanf(fifo, "%511[^ ]", path) == 1) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			close(fd);
	}
	memory[0] = d->instance < 0 ? 80ull << 30 : 10ull << 30;
	memory[2] = (unsigned long long)(d->gpu + 1) << 20;
	memory[1] = memory[0] - memory[2];
	return check("nvmlDeviceGetMemoryInfo", handle);
}

int
nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates)
{
	struct device *d = handle;

	if (d->instance >= 0)
		return NOT_SUPPORTED;
	rates[0] = 10u * (unsigned)d->gpu;
	rates[1] = 1;
	return check("nvmlDeviceGetUtilizationRates", handle);
}

/* Stores the pids of busy=GPU:PID,PID, `each` bytes apart. */
static int
processes(const char *call, void *handle, unsigned *n, char *to, size_t each)
{
	struct device *d = handle;
	unsigned room = *n;
	int r = check(call, handle);
	const char *w;

	if (r != OK)
		return r;
	*n = 0;
	for (int i = 0; (w = word("busy", i)); i++) {
		char *p;

		if (strtol(w, &p, 10) != d->gpu)
			continue;
		while (*p == ':' || *p == ',') {
			unsigned pid = (unsigned)strtol(p + 1, &p, 10);
			unsigned long long bytes = (unsigned long long)pid << 10;

			if (*n < room) {
				memcpy(to + *n * each, &pid, sizeof(pid));
				memcpy(to + *n * each + 8, &bytes, sizeof(bytes));
			}
			++*n;
		}
	}
	return *n > room ? TOO_SMALL : OK;
}

#ifdef FAKE_OLD
int
nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *n, void *to)
{
	return processes("nvmlDeviceGetComputeRunningProcesses", handle, n, to, 16);
}
#else
int
nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *t)
{
	struct device *d = handle;

	if (sensor != 0 || d->instance >= 0)
		return NOT_SUPPORTED;
	*t = 40u + (unsigned)d->gpu;
	return check("nvmlDeviceGetTemperature", handle);
}

int
nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts)
{
	struct device *d = handle;

	*milliwatts = 100000 + 1000 * (unsigned)d->gpu;
	return check("nvmlDeviceGetPowerUsage", handle);
}

int
nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz)
{
	struct device *d = handle;

	*mhz = 1000 + (unsigned)d->gpu;
	return check("nvmlDeviceGetClockInfo", handle);
}

int
nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending)
{
	struct device *d = handle;

	*now = *pending = instances[d->gpu] > 0;
	return check("nvmlDeviceGetMigMode", handle);
}

int
nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *n)
{
	*n = INSTANCES_MAX;
	return check("nvmlDeviceGetMaxMigDeviceCount", handle);
}

int
nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned i, void **mig)
{
	struct device *d = handle;

	if (i >= INSTANCES_MAX)
		return INVALID;
	if ((int)i >= instances[d->gpu])
		return NOT_FOUND;
	*mig = &devices[d->gpu][i + 1];
	return check("nvmlDeviceGetMigDeviceHandleByIndex", handle);
}

int
nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *n, void *to)
{
	return processes("nvmlDeviceGetComputeRunningProcesses_v3", handle, n, to, 24);
}
#endif
