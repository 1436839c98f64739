/* Says where the bytes of an object end, for formats that state their own size. */
#ifndef WHOLE_H
#define WHOLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The size that the object in the first n bytes of fd states, by the header of an npy or
 * safetensors file or the end record of a zip file (pt, npz). 0: it is not known, or not yet. view:
 * the name's suffix, without its dot. */
uint64_t whole_size(int fd, uint64_t n, const char *view);
/* May the n bytes p, written at offset, have completed what states it? */
bool whole_may_state(const char *view, uint64_t offset, const char *p, size_t n);

#endif
