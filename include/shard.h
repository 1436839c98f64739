/*
 * A rank's part of an object over all ranks, as it is read: type, shape and bytes. A part is a
 * source: this module does not know the ranks' processes, Python, or what the parts are used for.
 * Splitting an object on a push is done in across_ranks.py.
 */
#ifndef SHARD_H
#define SHARD_H
#include "err.h"
#include "source.h"

enum { SHARD_DIMS = 64 };

/* A part. The caller owns its bytes and the line that the slices point into. */
struct shard {
	int rank;
	struct source source;
	uint64_t at, size; /* offset of its bytes in the source, and their number */
	int ranks;	   /* number of ranks combined in it; rank is the first */
	struct slice of;   /* element type of the object; dtype: of the bytes here */
	struct slice kind; /* tensor, array, or object: bytes that are only joined */
	size_t itemsize;
	int dims;
	uint64_t shape[SHARD_DIMS];
	struct slice dtype;
};

/* Parses the line `KIND ITEMSIZE SHAPE DTYPE\n` at the beginning of a source of `size` bytes, and
 * the line `part RANKS OF\n` that precedes it in a part of several ranks. Returns 0, or -EBADMSG
 * with *e set. */
int shard_parse(
    struct shard *p, int rank, const struct source *source, uint64_t size, struct err *e);
/* Makes a part of the whole source, as bytes without further meaning. */
void shard_raw(struct shard *p, int rank, const struct source *source, uint64_t size);
/* Reads exactly n bytes at this offset of the part. Returns 0, or -errno with *e set: -EHOSTDOWN if
 * the rank is gone. */
int shard_read(const struct shard *p, uint64_t offset, char *to, size_t n, struct err *e);
/* Number of elements from this axis on; 0 counts all. */
uint64_t shard_elements(const struct shard *p, int axis);
bool shard_is_object(const struct shard *p);
bool shard_same_type(const struct shard *a, const struct shard *b);
/* Are both arrays of strings of one kind, perhaps of different lengths? */
bool shard_both_strings(const struct shard *a, const struct shard *b);
/* Do they have the same number of axes, and the same extents from this axis on? */
bool shard_same_shape(const struct shard *a, const struct shard *b, int axis);
/* Appends `part RANKS OF\n`. */
void shard_add_origin(struct buf *b, int ranks, struct slice of);
/* Appends the shape: `3,4`, or `-` for a scalar. */
void shard_add_shape(struct buf *b, const struct shard *p);
/* Appends `rank 1 has tensor float32 of shape 3,4`, for messages. */
void shard_describe(struct buf *b, const struct shard *p);

#endif
