/*
 * A rank's part of an object over all ranks, as it is read: type, shape and bytes. A part is a
 * source: ranks' processes, Python and the use of the parts are not known here. Splitting on a push
 * is across_ranks.py's.
 */
#ifndef SHARD_H
#define SHARD_H
#include "copy.h"
#include "err.h"

enum { SHARD_DIMS = 64 };

/* What a rank gave. The bytes, and the line that the slices point into, belong to the caller. */
struct shard {
	int rank;
	struct source source;
	uint64_t at, size; /* where its bytes begin in the source, and how many they are */
	int ranks;	   /* that it is made of; the first of them is rank */
	struct slice of;   /* the type of their elements; dtype: that of the bytes here */
	struct slice kind; /* tensor, array; object: bytes that are only joined */
	size_t itemsize;
	int dims;
	uint64_t shape[SHARD_DIMS];
	struct slice dtype;
};

/* Reads the line `KIND ITEMSIZE SHAPE DTYPE\n` that a source of so many bytes begins with, and
 * before it that of a part of several ranks, `part RANKS OF\n`. -EBADMSG. */
int shard_parse(
    struct shard *p, int rank, const struct source *source, uint64_t size, struct err *e);
/* The whole source as bytes of no further meaning. */
void shard_raw(struct shard *p, int rank, const struct source *source, uint64_t size);
/* n bytes at this offset of the part, all of them; -EHOSTDOWN if the rank has gone. */
int shard_read(const struct shard *p, uint64_t offset, char *to, size_t n, struct err *e);
/* Elements from this axis on: 0 for all. */
uint64_t shard_elements(const struct shard *p, int axis);
bool shard_is_object(const struct shard *p);
bool shard_same_type(const struct shard *a, const struct shard *b);
/* The same number of axes, and extents from this axis on. */
bool shard_same_shape(const struct shard *a, const struct shard *b, int axis);
/* `part RANKS OF\n` */
void shard_add_origin(struct buf *b, int ranks, struct slice of);
/* `3,4`; `-` of a number. */
void shard_add_shape(struct buf *b, const struct shard *p);
/* `rank 1 has tensor float32 of shape 3,4`, for messages. */
void shard_describe(struct buf *b, const struct shard *p);

#endif
