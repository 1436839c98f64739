/* Tests of engine/relay/proof.c and sha256.c: only a peer that knows the secret can prove it, the
 * secret itself is never sent, and bytes behind the proof are left in the socket; sums match those
 * of the standards. */
#include "relay/proof.h"
#include "check.h"
#include "relay/sha256.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { NONCE = 32, MAC = 32 };

static struct loop *loop;
static uint64_t passed_ms;
static const unsigned char secret[PROOF_SECRET] = "the secret that both sides know";
static const unsigned char other[PROOF_SECRET] = "the secret that both sides knew";

/* One side of a connection, and how it ended. */
struct side {
	struct proof *p;
	int fd; /* the descriptor returned after the proof; -1: none */
	unsigned ends;
	int why;
};

/* Replaces libc's: time passes when the test says so. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	*t = (struct timespec){.tv_sec = (time_t)(1 + passed_ms / 1000),
	    .tv_nsec = (long)(passed_ms % 1000) * 1000000};
	return 0;
}

static void
on_proof(void *arg, struct proof *p, int fd, const struct err *why)
{
	struct side *s = arg;

	CHECK(p == s->p && (fd >= 0) == !why->no);
	*s = (struct side){.fd = fd, .ends = s->ends + 1, .why = why->no};
}

static void
begin(struct side *s, int fd, enum proof_side side, const unsigned char *knows)
{
	struct err e = {0};

	*s = (struct side){.fd = -1};
	fd_nonblock(fd, true);
	s->p = proof_start(loop, fd, side, knows, on_proof, s, &e);
	CHECK(s->p && !e.no);
}

static void
steps(void)
{
	for (int i = 0; i < 20; i++)
		loop_once(loop, 0);
}

static void
make_pair(int pair[2])
{
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	for (int i = 0; i < 2; i++)
		fd_nonblock(pair[i], true);
}

static void
finish(struct side *s)
{
	proof_end(s->p);
	if (s->fd >= 0)
		close(s->fd);
}

/* Connects both sides and carries their bytes one by one; said collects them. */
static void
talk(
    struct side *listener, struct side *caller, const unsigned char *caller_knows, struct buf *said)
{
	int near[2], far[2];
	size_t before;

	make_pair(near);
	make_pair(far);
	begin(listener, near[0], PROOF_LISTENER, secret);
	begin(caller, far[0], PROOF_CALLER, caller_knows);
	do {
		char c;

		steps();
		before = said->n;
		if (read(near[1], &c, 1) == 1 && write(far[1], &c, 1) == 1)
			buf_add(said, &c, 1);
		if (read(far[1], &c, 1) == 1 && write(near[1], &c, 1) == 1)
			buf_add(said, &c, 1);
	} while (said->n > before);
	close(near[1]);
	close(far[1]);
	steps();
}

static void
test_proof(void)
{
	struct side listener, caller;
	struct buf said = {0}, again = {0};

	talk(&listener, &caller, secret, &said);
	CHECK(listener.ends == 1 && listener.fd >= 0);
	CHECK(caller.ends == 1 && caller.fd >= 0);
	CHECK(said.n == 2 * NONCE + 2 * MAC);
	CHECK(!memmem(said.p, said.n, secret, PROOF_SECRET / 4));
	finish(&listener);
	finish(&caller);
	talk(&listener, &caller, secret, &again);
	CHECK(again.n == said.n && memcmp(said.p, again.p, said.n) != 0);
	finish(&listener);
	finish(&caller);
	buf_free(&said);
	buf_free(&again);
}

static void
test_wrong_secret(void)
{
	struct side listener, caller;
	struct buf said = {0};

	talk(&listener, &caller, other, &said);
	CHECK(listener.ends == 1 && listener.fd < 0 && listener.why == EACCES);
	CHECK(caller.ends == 1 && caller.fd < 0 && caller.why == ECONNRESET);
	CHECK(said.n ==
	      2 * NONCE +
		  MAC); /* the listener proves nothing to a peer that does not know the secret */
	finish(&listener);
	finish(&caller);
	buf_free(&said);
}

/* The caller's own proof, echoed, is not accepted as the listener's. */
static void
test_echo(void)
{
	struct side caller;
	char said[NONCE + MAC];
	int pair[2];

	make_pair(pair);
	begin(&caller, pair[0], PROOF_CALLER, secret);
	memset(said, 'n', sizeof(said));
	CHECK(write(pair[1], said, NONCE) == NONCE);
	steps();
	CHECK(read(pair[1], said, sizeof(said)) == sizeof(said));
	CHECK(write(pair[1], said + NONCE, MAC) == MAC);
	steps();
	CHECK(caller.ends == 1 && caller.fd < 0 && caller.why == EACCES);
	finish(&caller);
	close(pair[1]);
}

/* Bytes behind the proof stay for the new owner of the connection. */
static void
test_bytes_behind(void)
{
	struct side listener, caller;
	char word[4];
	int near[2], far[2];
	char said[NONCE + MAC + 4];

	make_pair(near);
	make_pair(far);
	begin(&listener, near[0], PROOF_LISTENER, secret);
	begin(&caller, far[0], PROOF_CALLER, secret);
	steps();
	CHECK(read(near[1], said, NONCE) == NONCE && write(far[1], said, NONCE) == NONCE);
	steps();
	CHECK(read(far[1], said, NONCE + MAC) == NONCE + MAC);
	memcpy(said + NONCE + MAC, "next", 4);
	CHECK(write(near[1], said, sizeof(said)) == sizeof(said));
	steps();
	CHECK(listener.fd >= 0 && read(listener.fd, word, 4) == 4 && !memcmp(word, "next", 4));
	CHECK(read(near[1], said, MAC) == MAC);
	memcpy(said + MAC, "more", 4);
	CHECK(write(far[1], said, MAC + 4) == MAC + 4);
	steps();
	CHECK(caller.fd >= 0 && read(caller.fd, word, 4) == 4 && !memcmp(word, "more", 4));
	finish(&listener);
	finish(&caller);
	close(near[1]);
	close(far[1]);
}

/* A peer that sends nothing, or not all of its proof, is waited for no longer than PROOF_MS. */
static void
test_silence(enum proof_side side, size_t words)
{
	char said[NONCE + MAC] = {0};
	struct side s;
	int pair[2];

	make_pair(pair);
	begin(&s, pair[0], side, secret);
	CHECK(write(pair[1], said, words) == (ssize_t)words);
	passed_ms += PROOF_MS - 1;
	steps();
	CHECK(s.ends == 0);
	passed_ms += 2;
	steps();
	CHECK(s.ends == 1 && s.fd < 0 && s.why == ETIMEDOUT);
	finish(&s);
	close(pair[1]);
}

static void
test_end(void)
{
	struct side s;
	struct err e = {0};
	int pair[2];

	make_pair(pair);
	begin(&s, pair[0], PROOF_CALLER, secret);
	close(pair[1]);
	steps();
	CHECK(s.ends == 1 && s.why == ECONNRESET);
	make_pair(pair);
	close(pair[1]);
	CHECK(!proof_start(loop, pair[0], PROOF_LISTENER, secret, on_proof, &s, &e));
	CHECK(e.no == EPIPE && fcntl(pair[0], F_GETFD) < 0);
	make_pair(pair);
	begin(&s, pair[0], PROOF_LISTENER, secret);
	proof_end(s.p);
	steps();
	CHECK(s.ends == 0 && fcntl(pair[0], F_GETFD) < 0);
	close(pair[1]);
}

static void
check_sum(const unsigned char sum[SHA256_SIZE], const char *want)
{
	char hex[2 * SHA256_SIZE + 1];

	for (size_t i = 0; i < SHA256_SIZE; i++)
		snprintf(hex + 2 * i, 3, "%02x", sum[i]);
	CHECK_STR(hex, want);
}

static void
check_hmac(const void *key, size_t key_n, const void *p, size_t n, const char *want)
{
	unsigned char mac[SHA256_SIZE];

	sha256_hmac(key, key_n, p, n, mac);
	check_sum(mac, want);
}

/* From FIPS 180-4 and RFC 4231. */
static void
test_sums(void)
{
	unsigned char sum[SHA256_SIZE], key[20], data[50];

	sha256("abc", 3, sum);
	check_sum(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	memset(key, 0x0b, sizeof(key));
	check_hmac(key, sizeof(key), "Hi There", 8,
	    "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	check_hmac("Jefe", 4, "what do ya want for nothing?", 28,
	    "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	memset(key, 0xaa, sizeof(key));
	memset(data, 0xdd, sizeof(data));
	check_hmac(key, sizeof(key), data, sizeof(data),
	    "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
}

int
main(void)
{
	loop = loop_new();
	test_proof();
	test_wrong_secret();
	test_echo();
	test_bytes_behind();
	test_silence(PROOF_LISTENER, 0);
	test_silence(PROOF_LISTENER, NONCE);
	test_silence(PROOF_CALLER, NONCE / 2);
	test_silence(PROOF_CALLER, NONCE);
	test_end();
	test_sums();
	loop_free(loop);
	return CHECK_DONE();
}
