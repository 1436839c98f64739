/*
 * Live streams of lines with any number of readers: the bytes are in a file, and a reader is an
 * offset.
 */
#ifndef STREAM_H
#define STREAM_H
#include "base/req.h"

struct stream {
	int fd;
	uint64_t first, size;	 /* the oldest byte that is kept; behind the last */
	struct req_list readers; /* parked */
};

/* One opener of a stream: its file's offset 0 is where the stream was when it opened. Where bytes
 * were dropped before they were read, a line says so instead, and base moves. */
struct stream_reader {
	struct stream *s;
	int64_t base;
	uint64_t next; /* behind the last bytes it got */
};

void stream_reader_init(struct stream_reader *reader, struct stream *s); /* at its end */
bool stream_ready(const struct stream_reader *reader);			 /* a read would not wait */

/* A stream on a file of the run directory, or on an unnamed one (path NULL). NULL with e: there is
 * no place to write. */
struct stream *stream_new(const char *path, struct err *e);
void stream_free(struct stream *s, int error); /* parked readers get -error */
/* Whole lines. The oldest are dropped when there are too many. */
void stream_add(struct stream *s, const char *p, size_t n);
/* Nobody reads it: the bytes so far may go, offsets stay. */
void stream_drop(struct stream *s);
/* Answers r with whole lines from its offset on (shells read ahead and seek back), or parks it at
 * the end; behind the end there is nothing. */
void stream_read(struct stream_reader *reader, struct req *r);

#endif
