/* Tests of fs/base/stream.c: readers at any offset get the lines that are kept, and learn what was
 * dropped. */
#include "base/stream.h"
#include "check.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* In place of the session: the last reply. */
static struct buf answer;
static int result;
static bool parked;

void
req_done(struct req *r, int res)
{
	result = res;
	buf_clear(&answer);
	parked = false;
}

void
req_data(struct req *r, const void *p, size_t n)
{
	result = 0;
	buf_clear(&answer);
	buf_add(&answer, p, n);
	buf_addc(&answer, '\0');
	answer.n--;
	parked = false;
}

int
req_park(struct req *r, req_interrupt_fn *fn)
{
	parked = true;
	return PARKED;
}

void
req_wake_pollers(void)
{
}

static struct req req;

static void
ask(struct stream_reader *reader, uint64_t offset, size_t want)
{
	req.offset = offset;
	req.want = want;
	result = 1;
	stream_read(reader, &req);
}

static void
test_places(void)
{
	struct err e = {0};
	struct stream *s = stream_new(NULL, &e);
	struct stream_reader reader;

	stream_add(s, "before\n", 7);
	stream_reader_init(&reader, s);
	CHECK(!stream_ready(&reader));
	req.nonblock = true;
	ask(&reader, 0, 100);
	CHECK(result == -EAGAIN);
	ask(&reader, 1, 100);
	CHECK(result == 0 && answer.n == 0);
	ask(&reader, INT64_MAX, 100);
	CHECK(result == 0 && answer.n == 0);
	stream_add(s, "one\ntwo\n", 8);
	CHECK(stream_ready(&reader));
	ask(&reader, 0, 6);
	CHECK(strcmp(answer.p, "one\n") == 0);
	ask(&reader, 4, 100);
	CHECK(strcmp(answer.p, "two\n") == 0 && !stream_ready(&reader));
	req.nonblock = false;
	ask(&reader, 8, 100);
	CHECK(parked);
	stream_add(s, "three\n", 6);
	CHECK(!parked && strcmp(answer.p, "three\n") == 0);
	stream_free(s, ENODEV);
}

/* Adds a line of 100 bytes with a number. */
static void
add(struct stream *s, unsigned i)
{
	char line[101];

	snprintf(line, sizeof(line), "%-99u\n", i);
	stream_add(s, line, 100);
}

static void
test_bound(void)
{
	enum { LINES = 400000, LEAST = 160000, MOST = 260000 };
	struct err e = {0};
	struct stream *s = stream_new(NULL, &e);
	struct stream_reader reader;
	unsigned long long lost;
	unsigned next = 0, lines = 0;
	uint64_t at;

	stream_reader_init(&reader, s);
	for (unsigned i = 0; i < LINES; i++)
		add(s, i);
	req.nonblock = true;
	ask(&reader, 0, 4096);
	CHECK(sscanf(answer.p, "- %*f dropped bytes=%llu\n", &lost) == 1);
	CHECK(lost % 100 == 0 && strchr(answer.p, '\n') == answer.p + answer.n - 1);
	at = answer.n;
	next = (unsigned)(lost / 100);
	for (;; lines++) {
		ask(&reader, at, 100);
		CHECK(!parked);
		if (result < 0 || parked)
			break;
		CHECK(answer.n == 100 && (unsigned)atoi(answer.p) == next++);
		at += answer.n;
	}
	CHECK(result == -EAGAIN && next == LINES);
	CHECK(lines >= LEAST && lines <= MOST);
	/* back to an offset where everything is dropped: reported again, followed by the oldest
	 * line */
	ask(&reader, 0, 4096);
	CHECK(strstr(answer.p, "dropped bytes="));
	at = answer.n;
	ask(&reader, at, 100);
	CHECK((unsigned)atoi(answer.p) == LINES - lines);
	stream_drop(s);
	ask(&reader, at, 100);
	CHECK(strstr(answer.p, "dropped bytes="));
	stream_free(s, ENODEV);
}

int
main(void)
{
	test_places();
	test_bound();
	buf_free(&answer);
	return CHECK_DONE();
}
