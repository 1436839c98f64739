/*
 * Live streams of lines with any number of readers. The bytes are in a file; a reader is an offset.
 */
#ifndef STREAM_H
#define STREAM_H
#include "base/req.h"

struct stream {
	int fd;
	uint64_t first, size;	 /* offset of the oldest byte kept; end offset */
	struct req_list readers; /* parked */
};

/* One open file on a stream. Its offsets count from the end that the stream had at the open. Where
 * bytes were dropped before it read them, it gets a line that says so instead, and base moves. */
struct stream_reader {
	struct stream *s;
	int64_t base;
	uint64_t next; /* offset after the last byte it got */
};

void stream_reader_init(struct stream_reader *reader, struct stream *s); /* starts at its end */
bool stream_ready(const struct stream_reader *reader); /* a read would not block */

/* Creates a stream on a file of the run directory, or on an anonymous file if path is NULL. Returns
 * NULL with *e set if the file cannot be created. */
struct stream *stream_new(const char *path, struct err *e);
void stream_answer(struct stream *s, int error); /* parked readers get -error */
void stream_free(struct stream *s, int error);	 /* the same */
/* Appends whole lines. Drops the oldest ones when the stream grows too large. */
void stream_add(struct stream *s, const char *p, size_t n);
/* Appends the last whole lines, at most max bytes. */
void stream_last(const struct stream *s, size_t max, struct buf *out);
/* Drops all bytes so far, when there are no readers. Offsets continue from there. */
void stream_drop(struct stream *s);
/* Answers r with whole lines from its offset on (shells read ahead and seek back), or parks it at
 * the end of the stream. Beyond the end it answers with no bytes. */
void stream_read(struct stream_reader *reader, struct req *r);

#endif
