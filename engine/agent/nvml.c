/*
 * NVML through dlopen. Its header is not needed: the few prototypes and structures used here are
 * part of its stable interface. If an older driver lacks a symbol, only the values from that call
 * are missing.
 */
#include "agent/nvml.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CLOCK_SM = 1 }; /* NVML_CLOCK_SM */

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, PROCESSES_MAX = 4096 };

struct memory {
	unsigned long long total, free, used;
};

struct utilization {
	unsigned gpu, memory;
};

/* Of the unversioned call; _v2 and _v3 append two numbers. */
struct process_v1 {
	unsigned pid;
	unsigned long long used;
};

struct process_v2 {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};

static struct {
	void *library;
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*error_string)(int);
	int (*count)(unsigned *);
	int (*by_index)(unsigned, void **);
	int (*uuid)(void *, char *, unsigned);
	int (*name)(void *, char *, unsigned);
	int (*memory)(void *, struct memory *);
	int (*utilization)(void *, struct utilization *);
	int (*temperature)(void *, int, unsigned *);
	int (*power)(void *, unsigned *);
	int (*clock)(void *, int, unsigned *);
	int (*mig_mode)(void *, unsigned *, unsigned *);
	int (*mig_count)(void *, unsigned *);
	int (*mig_by_index)(void *, unsigned, void **);
	int (*processes)(void *, unsigned *, void *);
	int (*processes_v1)(void *, unsigned *, void *);
} nvml;

/* The newest name first. If a needed function exists under none of its names, the library is
 * rejected. */
static const struct {
	void *to;
	bool needed;
	const char *names[2];
} symbols[] = {
    {&nvml.init, true, {"nvmlInit_v2", "nvmlInit"}},
    {&nvml.shutdown, true, {"nvmlShutdown"}},
    {&nvml.error_string, true, {"nvmlErrorString"}},
    {&nvml.count, true, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}},
    {&nvml.by_index, true, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"}},
    {&nvml.uuid, true, {"nvmlDeviceGetUUID"}},
    {&nvml.name, false, {"nvmlDeviceGetName"}},
    {&nvml.memory, false, {"nvmlDeviceGetMemoryInfo"}},
    {&nvml.utilization, false, {"nvmlDeviceGetUtilizationRates"}},
    {&nvml.temperature, false, {"nvmlDeviceGetTemperature"}},
    {&nvml.power, false, {"nvmlDeviceGetPowerUsage"}},
    {&nvml.clock, false, {"nvmlDeviceGetClockInfo"}},
    {&nvml.mig_mode, false, {"nvmlDeviceGetMigMode"}},
    {&nvml.mig_count, false, {"nvmlDeviceGetMaxMigDeviceCount"}},
    {&nvml.mig_by_index, false, {"nvmlDeviceGetMigDeviceHandleByIndex"}},
    {&nvml.processes, false,
	{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}},
    {&nvml.processes_v1, false, {"nvmlDeviceGetComputeRunningProcesses"}},
};

static const char *
library_name(void)
{
	const char *given = getenv("DDIP_NVML");

	return given && *given ? given : "libnvidia-ml.so.1";
}

/* Fills the table. Returns 0, or -ENOSYS if the library is not NVML. */
static int
load_symbols(struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
		void *p = NULL;

		for (size_t k = 0; k < ARRAY_LEN(symbols[i].names) && symbols[i].names[k] && !p;
		     k++)
			p = dlsym(nvml.library, symbols[i].names[k]);
		if (!p && symbols[i].needed)
			return fail(e, ENOSYS,
			    "%s has no %s: it is no NVML, or one of a driver too old",
			    library_name(), symbols[i].names[0]);
		if (!p)
			debug("gpus", "%s has no %s", library_name(), symbols[i].names[0]);
		memcpy(symbols[i].to, &p, sizeof(p));
	}
	return 0;
}

static int
call_failed(struct err *e, const char *what, int code)
{
	return fail(e, EIO, "NVML: %s: %s", what, nvml.error_string(code));
}

int
nvml_open(struct err *e)
{
	int r;

	nvml.library = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL);
	if (!nvml.library) {
		const char *why = dlerror();

		return fail(e, ENOENT, "no NVML: %s", why ? why : library_name());
	}
	r = load_symbols(e);
	if (r == 0 && (r = nvml.init()) != OK)
		r = call_failed(e, "nvmlInit", r);
	if (r < 0) {
		dlclose(nvml.library);
		memset(&nvml, 0, sizeof(nvml));
	}
	return r;
}

void
nvml_close(void)
{
	if (!nvml.library)
		return;
	nvml.shutdown();
	dlclose(nvml.library);
	memset(&nvml, 0, sizeof(nvml));
}

/* The properties that GPUs and instances share. */
static int
describe(struct nvml_gpu *gpu)
{
	int r = nvml.uuid(gpu->handle, gpu->uuid, sizeof(gpu->uuid));

	if (r == OK && (!nvml.name || nvml.name(gpu->handle, gpu->name, sizeof(gpu->name)) != OK))
		memcpy(gpu->name, "?", 2);
	return r;
}

static void
add(struct nvml_gpu **list, size_t *n, const struct nvml_gpu *gpu)
{
	*list = xrealloc(*list, (*n + 1) * sizeof(**list));
	(*list)[(*n)++] = *gpu;
}

static void
add_instances(struct nvml_gpu **list, size_t *n, const struct nvml_gpu *card)
{
	unsigned slots = 0;
	int found = 0, r = nvml.mig_count(card->handle, &slots);

	if (r != OK)
		note("GPU %d: nvmlDeviceGetMaxMigDeviceCount: %s", card->index,
		    nvml.error_string(r));
	for (unsigned i = 0; i < slots; i++) {
		struct nvml_gpu gpu = {.card = card->handle, .index = card->index, .mig = found};

		r = nvml.mig_by_index(card->handle, i, &gpu.handle);
		if (r == NOT_FOUND)
			continue; /* a slot without an instance */
		if (r == OK)
			r = describe(&gpu);
		if (r != OK) {
			note("GPU %d: MIG instance %u: %s", card->index, i, nvml.error_string(r));
			continue;
		}
		found++;
		add(list, n, &gpu);
	}
}

int
nvml_list(struct nvml_gpu **list, size_t *n, struct err *e)
{
	unsigned count = 0, mode, pending;
	int r = nvml.count(&count);

	*list = NULL;
	*n = 0;
	if (r != OK)
		return call_failed(e, "nvmlDeviceGetCount", r);
	for (unsigned i = 0; i < count; i++) {
		struct nvml_gpu gpu = {.index = (int)i, .mig = NVML_WHOLE};

		r = nvml.by_index(i, &gpu.handle);
		gpu.card = gpu.handle;
		if (r == OK)
			r = describe(&gpu);
		if (r != OK) { /* fallen off the bus, or not accessible: continue with the others */
			note("GPU %u: %s", i, nvml.error_string(r));
			continue;
		}
		gpu.split = nvml.mig_mode && nvml.mig_count && nvml.mig_by_index &&
			    nvml.mig_mode(gpu.handle, &mode, &pending) == OK && mode == 1;
		add(list, n, &gpu);
		if (gpu.split)
			add_instances(list, n, &gpu);
	}
	return 0;
}

/* Returns true if the call worked. Keeps the first error other than "not supported". */
static bool
worked(struct nvml_use *u, const char *what, int code)
{
	struct err e;

	if (code == OK)
		return true;
	if (code != NOT_SUPPORTED && !*u->error) {
		call_failed(&e, what, code);
		memcpy(u->error, e.text, MIN(sizeof(u->error) - 1, strlen(e.text)));
	}
	return false;
}

static void
ask_processes(void *handle, struct nvml_use *u)
{
	size_t each = nvml.processes ? sizeof(struct process_v2) : sizeof(struct process_v1);
	int (*call)(void *, unsigned *, void *) =
	    nvml.processes ? nvml.processes : nvml.processes_v1;
	unsigned n = 0, capacity = 0;
	char *all = NULL;
	int r;

	if (!call)
		return;
	while ((r = call(handle, &n, all)) == INSUFFICIENT_SIZE && capacity < PROCESSES_MAX) {
		capacity = n + 8; /* more may start in the meantime */
		all = xrealloc(all, capacity * each);
		n = capacity;
	}
	if (worked(u, "nvmlDeviceGetComputeRunningProcesses", r)) {
		u->n = (int)MIN(n, capacity);
		u->process = xcalloc(MAX(n, 1u), sizeof(*u->process));
	}
	for (int i = 0; i < u->n; i++) {
		struct process_v1 p; /* process_v2 begins with the same fields */

		memcpy(&p, all + (size_t)i * each, sizeof(p));
		u->process[i] = (struct nvml_process){p.pid, p.used};
	}
	free(all);
}

void
nvml_use(const struct nvml_gpu *gpu, struct nvml_use *u)
{
	struct memory memory = {0};
	struct utilization util = {0};
	unsigned temp = 0, power = 0, clock = 0;

	*u = (struct nvml_use){.util = -1, .temp = -1, .milliwatts = -1, .mhz = -1, .n = -1};
	if (nvml.memory &&
	    worked(u, "nvmlDeviceGetMemoryInfo", nvml.memory(gpu->handle, &memory))) {
		u->has_memory = true;
		u->used = memory.used;
		u->total = memory.total;
	}
	/* NVML reports no utilization for an instance. The temperature and the values after it are
	 * those of the whole GPU. */
	if (nvml.utilization && gpu->mig == NVML_WHOLE &&
	    worked(u, "nvmlDeviceGetUtilizationRates", nvml.utilization(gpu->handle, &util)))
		u->util = (int)util.gpu;
	if (nvml.temperature &&
	    worked(u, "nvmlDeviceGetTemperature", nvml.temperature(gpu->card, 0, &temp)))
		u->temp = (int)temp;
	if (nvml.power && worked(u, "nvmlDeviceGetPowerUsage", nvml.power(gpu->card, &power)))
		u->milliwatts = (int)power;
	if (nvml.clock &&
	    worked(u, "nvmlDeviceGetClockInfo", nvml.clock(gpu->card, CLOCK_SM, &clock)))
		u->mhz = (int)clock;
	ask_processes(gpu->handle, u);
}
