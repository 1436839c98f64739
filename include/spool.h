/*
 * What a rank prints, on disk: three append-only files and an index of their order.
 *
 *   NAME.stdout NAME.stderr   the bytes
 *   NAME.display              JSON lines: rich output (figures, tables, results)
 *   NAME.order                u64 records, stream << 62 | length: who wrote how much, in turn
 *
 * The agent writes (one thread), the daemon reads the same files. Offsets never move. The last
 * record grows in place while one stream goes on; a record is written after its bytes, so what the
 * index tells is always there. A cut starts a new record: cells begin and end at whole records.
 */
#ifndef SPOOL_H
#define SPOOL_H
#include "err.h"

enum { SPOOL_STDOUT, SPOOL_STDERR, SPOOL_DISPLAY, SPOOL_STREAMS };

extern const char *const spool_names[SPOOL_STREAMS + 1]; /* "stdout" "stderr" "display" "order" */

/* A point in a rank's output: bytes of each stream and whole records of the index before it. */
struct spool_mark {
	uint64_t size[SPOOL_STREAMS], records;
};

/* Writer. */
struct spool_writer {
	int fd[SPOOL_STREAMS], order;
	struct spool_mark at; /* at.records counts the open record too */
	uint64_t open_record; /* the last record, as written; 0: the next bytes start a new one */
	uint64_t dropped;     /* bytes that did not fit on the disk */
};

/* Opens or makes the four files in dir, going on where they end. */
int spool_writer_open(struct spool_writer *w, const char *dir, const char *name, struct err *e);
void spool_writer_close(struct spool_writer *w);
/* Moves what is in the non-blocking pipe to the stream's file until it is empty.
 * Returns bytes moved; *eof is set at the pipe's end. A full disk drops (and counts), never blocks.
 */
uint64_t spool_writer_move(struct spool_writer *w, int stream, int pipefd, bool *eof);
/* The same for bytes in memory. */
void spool_writer_add(struct spool_writer *w, int stream, const void *p, size_t n);
/* Closes the open record and tells where we are. */
struct spool_mark spool_writer_cut(struct spool_writer *w);

/* Reader. */
struct spool_reader {
	int fd[SPOOL_STREAMS], order; /* -1: it is not open */
};

#define SPOOL_NOT_OPEN ((struct spool_reader){.fd = {-1, -1, -1}, .order = -1})

int spool_reader_open(struct spool_reader *r, const char *dir, const char *name, struct err *e);
void spool_reader_close(struct spool_reader *r);
uint64_t spool_reader_size(const struct spool_reader *r, int stream);

/* Walks the index: the position of one reader. Zero is the beginning. */
struct spool_cursor {
	struct spool_mark
	    at; /* whole records passed, and bytes of each stream passed (inside a record too) */
	uint64_t inside; /* bytes taken of the record at.records */
};

/* The next piece in order, at most max bytes: its stream and offset. False: nothing more (now).
 * end (may be NULL) bounds it by records. */
bool spool_next(const struct spool_reader *r, struct spool_cursor *c, const struct spool_mark *end,
    size_t max, int *stream, uint64_t *offset, size_t *len);

#endif
