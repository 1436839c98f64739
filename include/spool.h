/*
 * What a rank prints, on disk: three append-only files and an index of their order.
 *
 *   NAME.stdout NAME.stderr   the bytes
 *   NAME.display              JSON lines: rich output (figures, tables, results)
 *   NAME.order                u64 records, stream << 62 | length: bytes written, in order. If the
 *                             first n have been dropped, four words are in their place: 3 << 62 | n
 *                             and, for each stream, the bytes that they described
 *
 * The agent writes (one thread); the daemon reads the same files. Offsets never change. While one
 * stream continues, the last record grows in place. A record is written after its bytes, so the
 * bytes that the index describes always exist. A cut starts a new record: cells begin and end at
 * record boundaries.
 */
#ifndef SPOOL_H
#define SPOOL_H
#include "err.h"

enum { SPOOL_STDOUT, SPOOL_STDERR, SPOOL_DISPLAY, SPOOL_STREAMS };

struct spool_reader;

extern const char *const spool_names[SPOOL_STREAMS + 1]; /* "stdout" "stderr" "display" "order" */

/* A position in a rank's output: the bytes of each stream and the whole records of the index before
 * it. */
struct spool_mark {
	uint64_t size[SPOOL_STREAMS], records;
};

/* Writer. */
struct spool_writer {
	int fd[SPOOL_STREAMS], order;
	struct spool_mark at; /* at.records includes the open record */
	uint64_t open_record; /* the last record, as written; 0: the next bytes start a new one */
	uint64_t dropped;     /* bytes that did not fit on the disk */
};

/* Opens or creates the four files in dir, and continues at their ends. Bytes that a killed writer
 * has not recorded get a record of their own. */
int spool_writer_open(struct spool_writer *w, const char *dir, const char *name, struct err *e);
void spool_writer_close(struct spool_writer *w);
/* The same with the files of a reader, which stays open meanwhile; w is not closed. */
void spool_writer_follow(struct spool_writer *w, const struct spool_reader *r);
/* Moves what the non-blocking pipe contains now to the stream's file. Returns the number of bytes
 * moved; sets *eof at the end of the pipe. Does not block: on a full disk it drops bytes, and
 * counts them. */
uint64_t spool_writer_move(struct spool_writer *w, int stream, int pipefd, bool *eof);
/* The same for bytes in memory. */
void spool_writer_add(struct spool_writer *w, int stream, const void *p, size_t n);
/* Closes the open record and returns the current position. */
struct spool_mark spool_writer_cut(struct spool_writer *w);

/* Reader. */
struct spool_reader {
	int fd[SPOOL_STREAMS], order; /* -1: not open */
	struct spool_mark first;      /* the records before it have been dropped */
};

#define SPOOL_NOT_OPEN ((struct spool_reader){.fd = {-1, -1, -1}, .order = -1})

int spool_reader_open(struct spool_reader *r, const char *dir, const char *name, struct err *e);
void spool_reader_close(struct spool_reader *r);
uint64_t spool_reader_size(const struct spool_reader *r, int stream);

/* The position of one reader in the index. Zero-initialised is the beginning. */
struct spool_cursor {
	/* Whole records passed, and bytes of each stream passed (also inside a record). */
	struct spool_mark at;
	uint64_t inside; /* bytes already taken of record at.records */
};

/* Finds the next piece in order, of at most max bytes: its stream, offset and length. Returns false
 * if there is no more yet. Passes neither the records nor the bytes of end, which may be NULL. */
bool spool_next(const struct spool_reader *r, struct spool_cursor *c, const struct spool_mark *end,
    size_t max, int *stream, uint64_t *offset, size_t *len);

/* Takes a cursor that is before what has been dropped behind it, but not behind end, which may be
 * NULL. Returns how many bytes it has passed; 0: it was not. Call it before spool_next. */
uint64_t spool_skip(
    const struct spool_reader *r, struct spool_cursor *c, const struct spool_mark *end);
/* Bounds the index, which a reader at c follows: once there are 2 * kept records, drops those
 * before *cut, and moves *cut, which begins as zero, to c. */
void spool_trim(
    struct spool_reader *r, struct spool_mark *cut, const struct spool_cursor *c, uint64_t kept);

#endif
