/* Reads of an object on another host request the ranges that they need from the rank there, and
 * little more. An array stands in for the rank. */
#define _GNU_SOURCE
#include "check.h"
#include "base/daemon.h"
#include "conn.h"
#include "object/remote.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64 << 20, BLOCK = 1 << 20, AHEAD_MOST = 16 << 20, MANY = 4096, HANDLE = 7 };

struct daemon daemon_;
static struct agent agent;
static int rank_end; /* of the socket to the agent */
static bool rank_lives = true;
static unsigned char object[SIZE];

static struct {
	reply_fn *fn;
	void *arg;
	uint64_t offset;
	uint32_t n;
} asked[MANY];

static int tags, asked_count, answered_count, done_count, last_result;
static struct buf last_data, stream;

static uint64_t passed_ms;

/* Replaces libc's: time passes when the test says so; otherwise no piece grows old. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	static long ns;

	*t = (struct timespec){.tv_sec = (time_t)(1 + passed_ms / 1000),
	    .tv_nsec = (long)(passed_ms % 1000) * 1000000 + ++ns};
	return 0;
}

bool
agent_slot_lives(const struct agent *a, int slot)
{
	return rank_lives;
}

uint64_t
agent_tag(struct agent *a, int slot, int type, reply_fn *fn, void *arg)
{
	asked[tags % MANY].fn = fn;
	asked[tags % MANY].arg = arg;
	return (uint32_t)++tags;
}

static struct range *victim; /* what the next answer leads to the end of */

static void
done(struct range *x, const struct source *bytes, const struct err *e)
{
	if (victim) {
		range_cancel(victim);
		memset(victim, 0xff, sizeof(*victim)); /* it is its reader's again */
		victim = NULL;
	}
	done_count++;
	last_result = bytes ? 0 : -e->no;
	if (!bytes)
		return;
	buf_clear(&last_data);
	buf_add(&last_data, bytes->head, (size_t)bytes->head_n);
	bytes->sent(bytes->sent_arg);
}

/* Receives the requests that were sent. */
static void
take(void)
{
	char bytes[4096];
	struct msg m;
	ssize_t n;
	long len;

	conn_flush(agent.conn);
	while ((n = recv(rank_end, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		buf_add(&stream, bytes, (size_t)n);
	while ((len = wire_frame(stream.p, stream.n, &m, NULL)) > 0) {
		uint32_t handle;
		int i = asked_count++ % MANY;

		CHECK(m.type == Tread && m.tag == (uint32_t)asked_count);
		CHECK(wire_unpack(&m, Tread, NULL, &handle, &asked[i].offset, &asked[i].n) == 0);
		CHECK(handle == HANDLE && asked[i].offset + asked[i].n <= SIZE);
		buf_drop(&stream, (size_t)len);
	}
}

/* Answers the oldest request; if no is not 0, with that errno. */
static void
answer(int no)
{
	int i = answered_count++ % MANY;
	struct buf b = {0};
	struct msg m;
	struct err e;

	if (no) {
		fail(&e, no, "refused");
		asked[i].fn(asked[i].arg, NULL, &e, (struct slice){0});
		return;
	}
	wire_pack(
	    &b, Rread, 0, 0, 1, ((struct slice){(char *)object + asked[i].offset, asked[i].n}));
	wire_frame(b.p, b.n, &m, NULL);
	asked[i].fn(asked[i].arg, &m, NULL, (struct slice){0});
	buf_free(&b);
}

static void
answer_all(void)
{
	take();
	while (answered_count < asked_count)
		answer(0);
}

static struct source
new_remote(struct slice head)
{
	done_count = 0;
	return (struct source){.kind = SOURCE_PROVIDER,
	    .head = head.p,
	    .head_n = head.n,
	    .fd = -1,
	    .provider = remote_provider(&agent, 1, HANDLE, SIZE)};
}

/* How many bytes were requested since the n-th request. */
static uint64_t
bytes_since(int n)
{
	uint64_t sum = 0;

	take();
	for (int i = n; i < asked_count; i++)
		sum += asked[i % MANY].n;
	return sum;
}

static void
read_at(const struct source *s, struct range *x, uint64_t offset, size_t n)
{
	*x = (struct range){.done = done};
	source_read(s, x, offset, n);
}

static bool
got(uint64_t offset, size_t n)
{
	return last_result == 0 && last_data.n == n && !memcmp(last_data.p, object + offset, n);
}

/* Scattered reads request exactly their ranges. */
static void
test_random(void)
{
	struct source s = new_remote((struct slice){0});
	struct range x;

	for (int i = 0; i < 20; i++) {
		uint64_t at = (uint64_t)(i * 7919 % 61) << 20;
		int before = asked_count;

		read_at(&s, &x, at + 11, 4096);
		CHECK(bytes_since(before) == 4096 && done_count == i);
		answer_all();
		CHECK(done_count == i + 1 && got(at + 11, 4096));
	}
	provider_free(s.provider);
}

/* A sequential reader finds the next bytes already there: nothing is requested twice, nor too far
 * ahead. */
static void
test_in_order(void)
{
	struct source s = new_remote((struct slice){0});
	int begin = asked_count, at_once = 0;
	struct range x;

	for (uint64_t at = 0; at < SIZE; at += BLOCK) {
		int before = done_count;

		read_at(&s, &x, at, BLOCK);
		take();
		CHECK(bytes_since(begin) <= at + BLOCK + AHEAD_MOST);
		at_once += done_count > before;
		answer_all();
		CHECK(got(at, BLOCK));
	}
	CHECK(bytes_since(begin) == SIZE);
	CHECK(at_once > SIZE / BLOCK - 4);
	provider_free(s.provider);
}

/* Bytes that were read ahead long ago are requested again, and the reader gets less read ahead: a
 * slow reader costs the link little more than it reads. */
static void
test_slow_reader(void)
{
	struct source s = new_remote((struct slice){0});
	int begin = asked_count;
	struct range x;

	for (uint64_t at = 0; at < SIZE / 4; at += BLOCK) {
		read_at(&s, &x, at, BLOCK);
		answer_all();
		CHECK(got(at, BLOCK));
		object[at + BLOCK]++;
		passed_ms += 2000;
	}
	CHECK(bytes_since(begin) <= 3 * (SIZE / 4));
	provider_free(s.provider);
}

/* A link that becomes slower: bytes in flight are not requested again. */
static void
test_narrower_link(void)
{
	enum { PIECE_MS = 25, BURST = 8 };
	struct source s = new_remote((struct slice){0});
	int begin = asked_count;
	struct range x;

	for (uint64_t at = 0; at < SIZE; at += BLOCK) {
		int before = done_count;

		read_at(&s, &x, at, BLOCK);
		for (take(); done_count == before; take()) {
			passed_ms += at < SIZE / 4 ? 0 : PIECE_MS;
			answer(0);
		}
		CHECK(got(at, BLOCK));
		/* many arrive before the reader is back */
		for (int i = 0; at == SIZE / 4 && i < BURST; i++)
			answer(0);
	}
	CHECK(bytes_since(begin) == SIZE);
	provider_free(s.provider);
}

/* Several reads at once, in any order, are all answered, and each byte is requested once. */
static void
test_at_once(void)
{
	static const int order[] = {1, 0, 3, 2, 2};
	struct source s = new_remote((struct slice){0});
	struct range x[5];
	int begin = asked_count;

	for (int i = 0; i < 5; i++)
		read_at(&s, &x[i], (uint64_t)order[i] * BLOCK, BLOCK);
	answer_all();
	CHECK(done_count == 5);
	CHECK(bytes_since(begin) <= 8 * BLOCK);
	provider_free(s.provider);
}

/* A reader that has its bytes may end others that have just as much. */
static void
test_end_of_others(void)
{
	struct source s = new_remote((struct slice){0});
	struct range x[3];

	for (int i = 0; i < 3; i++)
		read_at(&s, &x[i], 0, 4096);
	victim = &x[1];
	answer_all();
	CHECK(!victim && done_count == 2 && got(0, 4096));
	provider_free(s.provider);
	CHECK(done_count == 2);
}

/* The head precedes the object's bytes. */
static void
test_head(void)
{
	struct source s = new_remote((struct slice){"head", 4});
	struct range x;

	read_at(&s, &x, 2, 6);
	answer_all();
	CHECK(last_data.n == 6 && !memcmp(last_data.p, "ad", 2));
	CHECK(!memcmp(last_data.p + 2, object, 4));
	read_at(&s, &x, 0, 4);
	CHECK(done_count == 2 && last_data.n == 4 && !memcmp(last_data.p, "head", 4));
	provider_free(s.provider);
}

/* A failure affects only the ranges that it is for; a repeated read is requested again. */
static void
test_failures(void)
{
	struct source s = new_remote((struct slice){0});
	struct range x, other;

	read_at(&s, &x, 0, 4096);
	read_at(&s, &other, SIZE / 2, 4096);
	take();
	answer(EBADMSG);
	CHECK(done_count == 1 && last_result == -EBADMSG);
	answer_all();
	CHECK(done_count == 2 && got(SIZE / 2, 4096));
	read_at(&s, &x, 0, 4096);
	answer_all();
	CHECK(done_count == 3 && got(0, 4096));
	rank_lives = false;
	read_at(&s, &x, 0, 4096);
	CHECK(done_count == 4 && last_result == -EHOSTDOWN);
	rank_lives = true;
	provider_free(s.provider);
}

/* Replies that are no longer wanted are dropped: those to a read that is cancelled, and those that
 * come when the object is freed. */
static void
test_leaving(void)
{
	struct source s = new_remote((struct slice){0});
	struct range x;

	read_at(&s, &x, 0, BLOCK);
	take();
	answer(0);
	range_cancel(&x);
	memset(&x, 0xff, sizeof(x)); /* it is its reader's again */
	answer_all();
	read_at(&s, &x, BLOCK, BLOCK);
	answer_all();
	CHECK(done_count == 1 && got(BLOCK, BLOCK));
	read_at(&s, &x, SIZE / 2, BLOCK);
	take();
	provider_free(s.provider);
	CHECK(done_count == 2 && last_result == -ECANCELED);
	answer_all();
	CHECK(done_count == 2);
}

int
main(void)
{
	int pair[2], space = 1 << 20;

	for (size_t i = 0; i < SIZE; i++)
		object[i] = (unsigned char)(i * 2654435761u >> 24);
	daemon_.loop = loop_new();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &space, sizeof(space));
	agent.conn = conn_new(daemon_.loop, pair[0], pair[0], NULL, NULL, NULL);
	rank_end = pair[1];
	test_random();
	test_in_order();
	test_slow_reader();
	test_narrower_link();
	test_at_once();
	test_end_of_others();
	test_head();
	test_failures();
	test_leaving();
	conn_free(agent.conn);
	close(pair[1]);
	loop_free(daemon_.loop);
	buf_free(&last_data);
	buf_free(&stream);
	return CHECK_DONE();
}
