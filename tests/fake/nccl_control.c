/* The functions by which tests control and query the fake NCCL. */
#include "nccl.h"
#include "nccl_inside.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_nccl fake_nccl = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
add_failure(const char *call, size_t n, unsigned error, int after, int times)
{
	struct failure *f = &fake_nccl.failures[fake_nccl.failure_count++ % FAILURES_MAX];

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
		fake_nccl.async = error;
	else if (sscanf(w, "slow=%d-%d:%u", &link.from, &link.to, &link.slow_us) == 3 ||
		 sscanf(w, "wrong=%d-%d", &link.from, &link.to) == 2) {
		link.wrong = *w == 'w';
		fake_links[fake_link_count++ % WORDS_MAX] = link;
	}
}

/* Call with the lock held. */
static void
read_words(void)
{
	const char *all = getenv("FAKE_NCCL"), *cudart = getenv("DDIP_CUDART");
	char *copy = strdup(all ? all : ""), *rest = NULL;
	void *runtime = dlopen(cudart ? cudart : "libcudart.so.13", RTLD_NOW), *p;

	fake_nccl.read = true;
	for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
		read_word(w);
	free(copy);
	if (!runtime)
		abort();
	p = dlsym(runtime, "fake_cuda_bytes");
	memcpy(&fake_nccl.bytes, &p, sizeof(p));
	p = dlsym(runtime, "fake_cuda_enqueue");
	memcpy(&fake_nccl.enqueue, &p, sizeof(p));
}

void
fake_nccl_fail(const char *call, unsigned error, int after, int times)
{
	pthread_mutex_lock(&fake_nccl.lock);
	if (!fake_nccl.read)
		read_words();
	add_failure(call, strlen(call), error, after, times);
	pthread_mutex_unlock(&fake_nccl.lock);
}

int
fake_nccl_made(void)
{
	return fake_nccl.made;
}

int
fake_nccl_live(void)
{
	return fake_nccl.live;
}

int
fake_nccl_revoked(void)
{
	return fake_nccl.revoked;
}

void
fake_nccl_stall_revoke(int on)
{
	atomic_store(&fake_nccl.stalls_revoke, on);
}

int
fake_nccl_stalled(void)
{
	return atomic_load(&fake_nccl.stalled);
}

int
fake_nccl_aborted(void)
{
	return fake_nccl.aborted;
}

unsigned
fake_nccl_say(const char *call)
{
	unsigned error = 0;

	pthread_mutex_lock(&fake_nccl.lock);
	if (!fake_nccl.read)
		read_words();
	for (int i = 0; i < FAILURES_MAX && !error; i++) {
		struct failure *f = &fake_nccl.failures[i];

		if (strcmp(f->call, call) != 0 || f->times == 0 || f->after-- > 0)
			continue;
		f->times -= f->times > 0;
		error = f->error;
	}
	if (error)
		snprintf(fake_nccl.last, sizeof(fake_nccl.last), "%s was told to fail", call);
	pthread_mutex_unlock(&fake_nccl.lock);
	return error;
}
