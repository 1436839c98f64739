/* Two sides of a connection prove that they know a secret. */
#include "relay/proof.h"
#include "relay/sha256.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NONCE = 32, MAC = SHA256_SIZE, SAID_MAX = NONCE + MAC };

struct proof {
	struct loop *loop;
	int fd;
	enum proof_side side;
	unsigned char secret[PROOF_SECRET];
	proof_fn *fn;
	void *arg;
	struct watch *watch;
	struct timer *patience;
	unsigned char nonces[2][NONCE]; /* indexed by enum proof_side */
	unsigned char heard[SAID_MAX];	/* what has arrived of the other side's next message */
	size_t n_heard;
	bool connected, challenged; /* challenged: by the listener's nonce */
};

static const char *const roles[] = {"listener", "caller"};

int
proof_random(void *p, size_t n, struct err *e)
{
	ssize_t got = getrandom(p, n, 0);

	if (got < 0)
		return fail_errno(e, "getrandom");
	return (size_t)got == n ? 0 : fail(e, EIO, "getrandom: too few bytes");
}

void
proof_end(struct proof *p)
{
	if (!p)
		return;
	loop_fd_del(p->watch);
	loop_timer_del(p->patience);
	if (p->fd >= 0)
		close(p->fd);
	explicit_bzero(p->secret, sizeof(p->secret));
	free(p);
}

/* The exchange is over. why->no 0: the other side knows the secret. */
static void
finish(struct proof *p, const struct err *why)
{
	proof_fn *fn = p->fn;
	void *arg = p->arg;
	int fd = -1;

	if (!why->no) {
		fd = p->fd;
		p->fd = -1;
	}
	loop_fd_del(p->watch); /* fd belongs to someone else from here on */
	p->watch = NULL;
	fn(arg, p, fd, why);
	proof_end(p);
}

static void
on_patience(void *arg)
{
	struct proof *p = arg;
	struct err e;

	p->patience = NULL;
	if (p->connected)
		fail(&e, ETIMEDOUT, "the other side said nothing for %d s", PROOF_MS / 1000);
	else
		fail(&e, ETIMEDOUT, "nobody answered for %d s", PROOF_MS / 1000);
	finish(p, &e);
}

/* Computes what a side sends to prove that it knows the secret. */
static void
mac_of(const struct proof *p, enum proof_side side, unsigned char mac[MAC])
{
	struct buf b = {0};

	buf_adds(&b, roles[side]);
	buf_add(&b, p->nonces, sizeof(p->nonces));
	sha256_hmac(p->secret, sizeof(p->secret), b.p, b.n, mac);
	buf_free(&b);
}

/* Compares in constant time. */
static bool
is_mac(const struct proof *p, enum proof_side side, const unsigned char said[MAC])
{
	unsigned char want[MAC], differs = 0;

	mac_of(p, side, want);
	for (size_t i = 0; i < MAC; i++)
		differs |= (unsigned char)(want[i] ^ said[i]);
	return !differs;
}

/* Sends without waiting: a new connection has room for this little. */
static int
say(struct proof *p, const void *bytes, size_t n, struct err *e)
{
	ssize_t w = send(p->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (w < 0)
		return fail_errno(e, "the connection");
	return (size_t)w == n ? 0 : fail(e, EIO, "the connection takes too little");
}

static int
say_caller(struct proof *p, struct err *e)
{
	unsigned char said[NONCE + MAC];

	memcpy(p->nonces[PROOF_LISTENER], p->heard, NONCE);
	p->challenged = true;
	memcpy(said, p->nonces[PROOF_CALLER], NONCE);
	mac_of(p, PROOF_CALLER, said + NONCE);
	return say(p, said, sizeof(said), e);
}

static int
say_listener(struct proof *p, struct err *e)
{
	unsigned char mac[MAC];

	mac_of(p, PROOF_LISTENER, mac);
	return say(p, mac, sizeof(mac), e);
}

static int
refuse(struct err *e)
{
	return fail(e, EACCES, "the other side does not know the secret");
}

/* Number of bytes in the other side's next message. */
static size_t
wanted(const struct proof *p)
{
	if (p->side == PROOF_LISTENER)
		return NONCE + MAC;
	return p->challenged ? MAC : NONCE;
}

/* Handles a complete message. Returns 1 when the exchange is over, 0 before that, or -errno. */
static int
heard(struct proof *p, struct err *e)
{
	p->n_heard = 0;
	if (p->side == PROOF_LISTENER) {
		memcpy(p->nonces[PROOF_CALLER], p->heard, NONCE);
		if (!is_mac(p, PROOF_CALLER, p->heard + NONCE))
			return refuse(e);
		return say_listener(p, e) < 0 ? -e->no : 1;
	}
	if (!p->challenged)
		return say_caller(p, e);
	return is_mac(p, PROOF_LISTENER, p->heard) ? 1 : refuse(e);
}

/* Reads what has arrived of a message, and handles it once complete. Returns as heard() does. */
static int
hear(struct proof *p, struct err *e)
{
	ssize_t n = recv(p->fd, p->heard + p->n_heard, wanted(p) - p->n_heard, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0)
		return fail_errno(e, "the connection");
	if (n == 0)
		return fail(e, ECONNRESET, "the other side has closed it");
	p->n_heard += (size_t)n;
	return p->n_heard == wanted(p) ? heard(p, e) : 0;
}

static void
on_word(void *arg, uint32_t events)
{
	struct proof *p = arg;
	struct err e = {0};

	if (hear(p, &e) != 0)
		finish(p, &e);
}

static void
on_connected(void *arg, uint32_t events)
{
	struct proof *p = arg;
	int no = 0;
	socklen_t n = sizeof(no);
	struct err e;

	getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &no, &n);
	if (no) {
		fail(&e, no, "%s", strerror(no));
		finish(p, &e);
		return;
	}
	p->connected = true;
	loop_fd_del(p->watch);
	p->watch = loop_fd(p->loop, p->fd, EPOLLIN, on_word, p);
}

struct proof *
proof_start(struct loop *loop, int fd, enum proof_side side,
    const unsigned char secret[PROOF_SECRET], proof_fn *fn, void *arg, struct err *e)
{
	struct proof *p = xcalloc(1, sizeof(*p));

	*p = (struct proof){.loop = loop, .fd = fd, .side = side, .fn = fn, .arg = arg};
	memcpy(p->secret, secret, sizeof(p->secret));
	if (proof_random(p->nonces[side], NONCE, e) < 0 ||
	    (side == PROOF_LISTENER && say(p, p->nonces[side], NONCE, e) < 0)) {
		proof_end(p);
		return NULL;
	}
	p->patience = loop_timer(loop, PROOF_MS, on_patience, p);
	p->connected = side == PROOF_LISTENER;
	p->watch = p->connected ? loop_fd(loop, fd, EPOLLIN, on_word, p)
				: loop_fd(loop, fd, EPOLLOUT, on_connected, p);
	return p;
}
