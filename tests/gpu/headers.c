/* Compares the engine's declarations of CUDA and NCCL with NVIDIA's own: it compiles if they
 * agree. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include "rank/cuda_api.h"
#include "rank/nccl_api.h"

/* The compiler must see the same type, or the assignment is an error. */
#define X(name, type, args, needed) static type(*our_##name) args = &name;
CUDA_CALLS(X)
NCCL_CALLS(X)
#undef X

#define X(name, value) _Static_assert((int)(name) == (value), #name);
CUDA_VALUES(X)
NCCL_VALUES(X)
#undef X

_Static_assert(sizeof(struct cudaPointerAttributes) <= sizeof(struct cuda_attributes), "size");
#define SAME(field, ours)                                                                          \
	_Static_assert(offsetof(struct cudaPointerAttributes, field) ==                            \
			   offsetof(struct cuda_attributes, ours),                                 \
	    #field)
SAME(type, type);
SAME(device, device);
SAME(devicePointer, device_pointer);
SAME(hostPointer, host_pointer);
_Static_assert(sizeof(ncclUniqueId) == NCCL_ID_BYTES, "id");
_Static_assert(NCCL_API_MAGIC == (unsigned)NCCL_CONFIG_MAGIC, "magic");
_Static_assert(NCCL_CONFIG_VERSION == NCCL_VERSION(2, 14, 0), "version");
_Static_assert(sizeof(struct nccl_config) <= sizeof(ncclConfig_t), "config");
#define SAME_CONFIG(field)                                                                         \
	_Static_assert(                                                                            \
	    offsetof(ncclConfig_t, field) == offsetof(struct nccl_config, field) &&                \
		sizeof(((ncclConfig_t *)0)->field) == sizeof(((struct nccl_config *)0)->field),    \
	    #field)
SAME_CONFIG(size);
SAME_CONFIG(magic);
SAME_CONFIG(version);
SAME_CONFIG(blocking);

int
main(void)
{
#define X(name, type, args, needed) +(our_##name != 0)
	return (0 CUDA_CALLS(X) NCCL_CALLS(X)) == 0;
#undef X
}
