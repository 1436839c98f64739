/* Shared by tests that use the fake CUDA runtime. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H
#include "check.h"
#include <dlfcn.h>
#include <string.h>

/* Stores the address of a function of the loaded fake in *to, which is a pointer to a function. */
static inline void
find_fake(void *handle, const char *name, void *to)
{
	void *p = dlsym(handle, name);

	CHECK(p != NULL);
	memcpy(to, &p, sizeof(p));
}

#endif
