/*
 * A rank's part of an object over all ranks: type, shape and bytes. A part is a source: ranks'
 * processes and Python are not known here, nor is what is made of the parts.
 */
#ifndef PORTION_H
#define PORTION_H
#include "copy.h"
#include "err.h"

enum { PORTION_DIMS = 64 };

/* What a rank gave. The bytes, and the line that the slices point into, belong to the caller. */
struct portion {
	int rank;
	struct source source;
	uint64_t at, size; /* where its bytes begin in the source, and how many they are */
	struct slice kind; /* tensor, array; object: bytes that are only joined */
	size_t itemsize;
	int dims;
	uint64_t shape[PORTION_DIMS];
	struct slice dtype;
};

/* Reads the line `KIND ITEMSIZE SHAPE DTYPE\n` that a source of so many bytes begins with.
 * -EBADMSG. */
int portion_parse(
    struct portion *p, int rank, const struct source *source, uint64_t size, struct err *e);
/* The whole source as bytes of no further meaning. */
void portion_raw(struct portion *p, int rank, const struct source *source, uint64_t size);
/* n bytes at this offset of the part, all of them; -EHOSTDOWN if the rank has gone. */
int portion_read(const struct portion *p, uint64_t offset, char *to, size_t n, struct err *e);
/* Elements from this axis on: 0 for all. */
uint64_t portion_elements(const struct portion *p, int axis);
bool portion_is_object(const struct portion *p);
bool portion_same_type(const struct portion *a, const struct portion *b);
/* The same number of axes, and extents from this axis on. */
bool portion_same_shape(const struct portion *a, const struct portion *b, int axis);
/* `3,4`; `-` of a number. */
void portion_add_shape(struct buf *b, const struct portion *p);
/* `rank 1 has tensor float32 of shape 3,4`, for messages. */
void portion_describe(struct buf *b, const struct portion *p);

#endif
