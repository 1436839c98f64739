/* Tests of engine/line/direct.c: the two sides find each other; only who says the token
 * gets the connection, and the answer; nobody is waited for longer than was said; bytes behind the
 * tokens are left in the socket. */
#include "check.h"
#include "line/direct.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE "DDIP_TEST_ADDRESS"

enum { OFFER_MS = 10000, REACH_MS = 5000 };

static struct loop *loop;
static uint64_t passed_ms;
static struct buf offered, refused; /* the last packets */
static int moved[2] = {-1, -1};	    /* to these descriptors: of the near side, of the far one */
static struct line *const near = (struct line *)&moved[0], *const far = (struct line *)&moved[1];
static unsigned ends; /* of offers */
static int why_no;

/* Replaces libc's: time passes when the test says so. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	*t = (struct timespec){.tv_sec = (time_t)(1 + passed_ms / 1000),
	    .tv_nsec = (long)(passed_ms % 1000) * 1000000};
	return 0;
}

/* In place of line.c. */
void
line_send(struct line *l, int type, bool bulk, struct slice head, struct slice body)
{
	struct buf *b = type == LINE_OFFER ? &offered : &refused;

	CHECK(l == (type == LINE_OFFER ? near : far));
	buf_drop(b, b->n);
	buf_add(b, head.p, head.n);
	buf_add(b, body.p, body.n);
}

bool
line_attach_direct(struct line *l, int fd)
{
	moved[l == far] = fd;
	return true;
}

static void
on_offer(const struct err *why)
{
	ends++;
	why_no = why->no;
}

static void
steps(void)
{
	for (int i = 0; i < 10; i++)
		loop_once(loop, 1); /* ms: the kernel carries bytes in its own time */
}

static void
offer(void)
{
	ends = 0;
	buf_drop(&refused, refused.n);
	for (int i = 0; i < 2; i++) {
		if (moved[i] >= 0)
			close(moved[i]);
		moved[i] = -1;
	}
	direct_offer(loop, near, VARIABLE, on_offer);
	CHECK(offered.n == 2 + 2 * DIRECT_TOKEN + strlen(VARIABLE) && !ends);
}

static uint16_t
port(void)
{
	return (uint16_t)((uint8_t)offered.p[0] | (uint8_t)offered.p[1] << 8);
}

static const char *
token(bool of_near)
{
	return offered.p + 2 + (of_near ? DIRECT_TOKEN : 0);
}

/* A stranger's connection to the listener. */
static int
call(void)
{
	const struct sockaddr_in a = {
	    .sin_family = AF_INET, .sin_port = htons(port()), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	CHECK(connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0);
	steps();
	return fd;
}

static void
far_gets_offer(void)
{
	direct_reach(loop, far, (struct slice){offered.p, offered.n});
}

/* What has come there, at most n bytes; 0: it was closed; -1: nothing yet. */
static ssize_t
heard(int fd, char *p, size_t n)
{
	steps();
	return recv(fd, p, n, MSG_DONTWAIT);
}

static void
test_both(void)
{
	char word[8];
	struct buf first = {0};

	offer();
	buf_add(&first, offered.p, offered.n);
	far_gets_offer();
	steps();
	CHECK(ends == 1 && !why_no && moved[0] >= 0 && moved[1] >= 0 && !refused.n);
	CHECK(write(moved[0], "down", 4) == 4 && heard(moved[1], word, 8) == 4);
	CHECK(write(moved[1], "up", 2) == 2 && heard(moved[0], word, 8) == 2);
	offer();
	CHECK(memcmp(token(false), first.p + 2, DIRECT_TOKEN) != 0);
	CHECK(memcmp(token(true), first.p + 2 + DIRECT_TOKEN, DIRECT_TOKEN) != 0);
	CHECK(memcmp(token(true), token(false), DIRECT_TOKEN) != 0);
	direct_withdraw();
	buf_free(&first);
}

/* A wrong token, a part of the right one, and that of the near side get no answer, and the far side
 * still gets the connection. Bytes behind the token are the line's. */
static void
test_strangers(void)
{
	char said[DIRECT_TOKEN + 4], word[DIRECT_TOKEN];
	int wrong, early, part, right;

	offer();
	wrong = call();
	early = call();
	part = call();
	right = call();
	memcpy(said, token(false), DIRECT_TOKEN);
	said[DIRECT_TOKEN - 1] ^= 1;
	CHECK(write(wrong, said, DIRECT_TOKEN) == DIRECT_TOKEN && heard(wrong, word, 1) == 0);
	CHECK(
	    write(early, token(true), DIRECT_TOKEN) == DIRECT_TOKEN && heard(early, word, 1) == 0);
	CHECK(write(part, token(false), DIRECT_TOKEN - 1) == DIRECT_TOKEN - 1);
	CHECK(heard(part, word, 1) == -1 && !ends);
	memcpy(said, token(false), DIRECT_TOKEN);
	memcpy(said + DIRECT_TOKEN, "next", 4);
	for (size_t i = 0; i < sizeof(said); i++) { /* it may come in pieces */
		CHECK(write(right, said + i, 1) == 1);
		if (i < DIRECT_TOKEN)
			steps();
	}
	CHECK(heard(right, word, sizeof(word)) == DIRECT_TOKEN);
	CHECK(memcmp(word, token(true), DIRECT_TOKEN) == 0 && ends == 1 && !why_no);
	CHECK(heard(moved[0], word, 4) == 4 && !memcmp(word, "next", 4));
	CHECK(heard(part, word, 1) <= 0 && heard(moved[0], word, 1) == -1);
	close(wrong);
	close(early);
	close(part);
	close(right);
}

/* Nobody comes, or says nothing; after that the port is closed. */
static void
test_silence(void)
{
	char word;
	int fd;

	offer();
	fd = call();
	passed_ms += OFFER_MS - 1;
	steps();
	CHECK(!ends && heard(fd, &word, 1) == -1);
	passed_ms += 2;
	CHECK(heard(fd, &word, 1) == 0 && ends == 1 && why_no == ETIMEDOUT);
	close(fd);
	far_gets_offer();
	steps();
	CHECK(moved[1] < 0 && strstr(refused.p, "Connection refused"));
	offer();
	direct_refused(slice_text("no way"));
	CHECK(ends == 1 && why_no == ECONNREFUSED);
}

/* Says this, and no more, to the far side, which connects to a listener of the test. */
static void
pretend(const void *said, size_t n, uint64_t ms, const char *why)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	char word[DIRECT_TOKEN];

	CHECK(bind(listener, (const struct sockaddr *)&a, sizeof(a)) == 0);
	CHECK(listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&a, &size) == 0);
	offer();
	direct_withdraw();
	offered.p[0] = (char)(ntohs(a.sin_port) & 0xff);
	offered.p[1] = (char)(ntohs(a.sin_port) >> 8);
	far_gets_offer();
	steps();
	fd = accept(listener, NULL, NULL);
	CHECK(heard(fd, word, sizeof(word)) == DIRECT_TOKEN);
	CHECK(memcmp(word, token(false), DIRECT_TOKEN) == 0);
	if (!said)
		said = word; /* its own, back */
	CHECK(write(fd, said, n) == (ssize_t)n);
	steps();
	if (ms) {
		passed_ms += ms - 1;
		steps();
		CHECK(!refused.n);
		passed_ms += 2;
		steps();
	}
	CHECK(moved[1] < 0 && refused.n && strstr(refused.p, why));
	CHECK(heard(fd, word, 1) <= 0);
	close(fd);
	close(listener);
}

int
main(void)
{
	signal(SIGPIPE, SIG_IGN);
	setenv(VARIABLE, "127.0.0.1", 1);
	loop = loop_new();
	test_both();
	test_strangers();
	test_silence();
	pretend("not the near side", DIRECT_TOKEN, 0, "does not know the token");
	pretend(NULL, DIRECT_TOKEN, 0, "does not know the token");
	pretend("", 0, REACH_MS, "said nothing for 5 s");
	pretend("part", 4, REACH_MS, "said nothing for 5 s");
	for (int i = 0; i < 2; i++)
		if (moved[i] >= 0)
			close(moved[i]);
	loop_free(loop);
	buf_free(&offered);
	buf_free(&refused);
	return CHECK_DONE();
}
