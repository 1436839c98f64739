/* The spools of the ranks' output: writing (agent) and reading in order (daemon). */
#include "spool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	CHUNK = 1 << 20,
	RECORD = sizeof(uint64_t),
	CHUNK_RECORDS = 4096,
	STREAM_SHIFT = 62,
	DROPPED = 3,		       /* in place of a stream */
	HEAD_WORDS = 1 + SPOOL_STREAMS /* of an index whose beginning has been dropped */
};

static const uint64_t LENGTH_MASK = ((uint64_t)1 << STREAM_SHIFT) - 1;

const char *const spool_names[SPOOL_STREAMS + 1] = {"stdout", "stderr", "display", "order"};

/* Opens all four files into fds[4], or none. */
static int
open_files(int fds[SPOOL_STREAMS + 1], const char *dir, const char *name, struct err *e)
{
	for (int i = 0; i <= SPOOL_STREAMS; i++) {
		char *path = xasprintf("%s/%s.%s", dir, name, spool_names[i]);
		int r;

		fds[i] = fault("spool.open", EMFILE)
			     ? -1
			     : open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fds[i] < 0) {
			r = fail_errno(e, "spool %s", path);
			free(path);
			while (i-- > 0)
				close(fds[i]);
			return r;
		}
		free(path);
	}
	return 0;
}

static uint64_t
size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? 0 : (uint64_t)st.st_size;
}

void
spool_writer_close(struct spool_writer *w)
{
	for (int i = 0; i < SPOOL_STREAMS; i++)
		close(w->fd[i]);
	close(w->order);
}

/* Records in the index that stream has n more bytes. */
static void
record(struct spool_writer *w, int stream, uint64_t n)
{
	uint64_t rec = (uint64_t)stream << STREAM_SHIFT | n;

	w->at.size[stream] += n;
	if (w->open_record && w->open_record >> STREAM_SHIFT == (uint64_t)stream) {
		rec = w->open_record + n;
	} else {
		w->at.records++;
	}
	if (!fault("spool.order", ENOSPC) &&
	    pwrite(w->order, &rec, RECORD, (off_t)((w->at.records - 1) * RECORD)) == RECORD) {
		w->open_record = rec;
		return;
	}
	/* No room for the index. Bytes that it does not describe do not count: the next bytes
	 * overwrite them. */
	w->dropped += n;
	w->at.size[stream] -= n;
	if (ftruncate(w->fd[stream], (off_t)w->at.size[stream]) < 0)
		debug("agent", "ftruncate: %s", strerror(errno));
	if (!w->open_record || rec != w->open_record + n)
		w->at.records--;
	w->open_record = 0;
}

/* What has been dropped from the index. */
static struct spool_mark
dropped(int order)
{
	uint64_t head[HEAD_WORDS];
	struct spool_mark at = {0};

	if (pread(order, head, sizeof(head), 0) != sizeof(head) ||
	    head[0] >> STREAM_SHIFT != DROPPED)
		return at;
	at.records = head[0] & LENGTH_MASK;
	memcpy(at.size, &head[1], sizeof(at.size));
	return at;
}

/* Sums up the index: the number of its records, and the bytes of each stream that they describe. */
static struct spool_mark
described(int order)
{
	uint64_t rec[CHUNK_RECORDS];
	struct spool_mark at = dropped(order);
	ssize_t n;

	while ((n = pread(order, rec, sizeof(rec), (off_t)(at.records * RECORD))) >= RECORD)
		for (ssize_t i = 0; i < n / RECORD; i++, at.records++)
			if (rec[i] >> STREAM_SHIFT < SPOOL_STREAMS)
				at.size[rec[i] >> STREAM_SHIFT] += rec[i] & LENGTH_MASK;
	return at;
}

int
spool_writer_open(struct spool_writer *w, const char *dir, const char *name, struct err *e)
{
	struct spool_reader files;
	int r = spool_reader_open(&files, dir, name, e);

	if (r == 0)
		spool_writer_follow(w, &files);
	return r;
}

void
spool_writer_follow(struct spool_writer *w, const struct spool_reader *r)
{
	*w = (struct spool_writer){.order = r->order};
	memcpy(w->fd, r->fd, sizeof(w->fd));
	w->at = described(w->order);
	/* the last writer may have been killed before it could record what it had written */
	for (int i = 0; i < SPOOL_STREAMS; i++)
		if (size_of(w->fd[i]) > w->at.size[i])
			record(w, i, size_of(w->fd[i]) - w->at.size[i]);
	w->open_record = 0;
}

void
spool_writer_add(struct spool_writer *w, int stream, const void *p, size_t n)
{
	size_t done = pwrite_all("spool.write", w->fd[stream], p, n, w->at.size[stream]);

	w->dropped += n - done;
	if (done)
		record(w, stream, done);
}

/* The file is full. Empties the pipe nevertheless, so that the rank can continue. */
static bool
discard(struct spool_writer *w, int pipefd)
{
	char waste[16 << 10];
	ssize_t n = read(pipefd, waste, sizeof(waste));

	if (n > 0)
		w->dropped += (uint64_t)n;
	return n > 0;
}

uint64_t
spool_writer_move(struct spool_writer *w, int stream, int pipefd, bool *eof)
{
	uint64_t moved = 0;
	int waiting = 0;

	*eof = false;
	/* move only what is in the pipe now: a child may write as fast as we read */
	if (ioctl(pipefd, FIONREAD, &waiting) < 0)
		waiting = 0;
	do {
		loff_t to = (loff_t)w->at.size[stream];
		ssize_t n = splice(
		    pipefd, NULL, w->fd[stream], &to, CHUNK, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

		if (n > 0) {
			record(w, stream, (uint64_t)n);
			moved += (uint64_t)n;
			continue;
		}
		*eof = n == 0;
		if (n == 0 || errno == EAGAIN || (errno != EINTR && !discard(w, pipefd)))
			break;
	} while (moved < (uint64_t)waiting);
	return moved;
}

struct spool_mark
spool_writer_cut(struct spool_writer *w)
{
	w->open_record = 0;
	return w->at;
}

int
spool_reader_open(struct spool_reader *r, const char *dir, const char *name, struct err *e)
{
	int fds[SPOOL_STREAMS + 1];
	int n = open_files(fds, dir, name, e);

	if (n < 0)
		return n;
	memcpy(r->fd, fds, sizeof(r->fd));
	r->order = fds[SPOOL_STREAMS];
	r->first = dropped(r->order);
	return 0;
}

void
spool_reader_close(struct spool_reader *r)
{
	for (int i = 0; i < SPOOL_STREAMS; i++)
		if (r->fd[i] >= 0)
			close(r->fd[i]);
	if (r->order >= 0)
		close(r->order);
	*r = SPOOL_NOT_OPEN;
}

uint64_t
spool_reader_size(const struct spool_reader *r, int stream)
{
	return r->fd[stream] < 0 ? 0 : size_of(r->fd[stream]);
}

bool
spool_next(const struct spool_reader *r, struct spool_cursor *c, const struct spool_mark *end,
    size_t max, int *stream, uint64_t *offset, size_t *len)
{
	uint64_t rec, n;

	while (!end || c->at.records < end->records) {
		uint64_t following;

		if (pread(r->order, &rec, RECORD, (off_t)(c->at.records * RECORD)) != RECORD)
			return false;
		n = rec & LENGTH_MASK;
		*stream = (int)(rec >> STREAM_SHIFT);
		/* the last one may have grown since the end was marked */
		if (end)
			n = MIN(n, c->inside + end->size[*stream] - c->at.size[*stream]);
		if (c->inside < n) {
			*offset = c->at.size[*stream];
			*len = (size_t)MIN(n - c->inside, (uint64_t)max);
			c->inside += *len;
			c->at.size[*stream] += *len;
			return true;
		}
		/* The whole record has been read. It is closed only if another record follows (or
		 * it is before the end). */
		if (!end && pread(r->order, &following, RECORD,
				(off_t)((c->at.records + 1) * RECORD)) != RECORD)
			return false;
		if (!end) {
			/* it may have grown between the two reads */
			if (pread(r->order, &rec, RECORD, (off_t)(c->at.records * RECORD)) ==
				RECORD &&
			    (rec & LENGTH_MASK) != n)
				continue;
		}
		c->at.records++;
		c->inside = 0;
	}
	return false;
}

uint64_t
spool_skip(const struct spool_reader *r, struct spool_cursor *c, const struct spool_mark *end)
{
	const struct spool_mark *to = &r->first;
	uint64_t n = 0;

	if (end && end->records < to->records)
		to = end;
	if (c->at.records >= to->records)
		return 0;
	for (int i = 0; i < SPOOL_STREAMS; i++)
		n += to->size[i] - MIN(to->size[i], c->at.size[i]);
	*c = (struct spool_cursor){.at = *to};
	return n;
}

static void
drop(struct spool_reader *r, const struct spool_mark *to)
{
	uint64_t head[HEAD_WORDS] = {(uint64_t)DROPPED << STREAM_SHIFT | to->records};
	off_t page = (off_t)sysconf(_SC_PAGESIZE),
	      end = (off_t)(to->records * RECORD) / page * page;

	memcpy(&head[1], to->size, sizeof(to->size));
	if (end <= page || pwrite(r->order, head, sizeof(head), 0) != sizeof(head))
		return;
	r->first = *to;
	if (fallocate(r->order, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page, end - page) < 0)
		debug("cell", "fallocate: %s", strerror(errno));
}

void
spool_trim(
    struct spool_reader *r, struct spool_mark *cut, const struct spool_cursor *c, uint64_t kept)
{
	struct spool_mark at = c->at;
	uint64_t rec;

	if (at.records - cut->records < kept)
		return;
	if (c->inside) { /* from there to where its record begins */
		if (pread(r->order, &rec, RECORD, (off_t)(at.records * RECORD)) != RECORD ||
		    rec >> STREAM_SHIFT >= SPOOL_STREAMS)
			return;
		at.size[rec >> STREAM_SHIFT] -= c->inside;
	}
	if (cut->records)
		drop(r, cut);
	*cut = at;
}
