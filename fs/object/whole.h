/* Says where the bytes of an object end, for formats that state their own size. */
#ifndef WHOLE_H
#define WHOLE_H
#include <stdbool.h>
#include <stdint.h>

/* The size that the object in the first n bytes of fd states, by the header of an npy or
 * safetensors file or the end record of a zip file (pt, npz). 0: it is not known, or not yet. view:
 * the name's suffix, without its dot. */
uint64_t whole_size(int fd, uint64_t n, const char *view);

#endif
