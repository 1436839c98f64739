/* The transport between two lines. */
#include "fake_streams.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct loop *loop;
uint64_t passed_ms;
int send_buffer;

static char piece[LINE_PIECE];

/* Replaces libc's: time passes when the test says so. */
int
clock_gettime(clockid_t clock, struct timespec *t)
{
	*t = (struct timespec){.tv_sec = (time_t)(1 + passed_ms / 1000),
	    .tv_nsec = (long)(passed_ms % 1000) * 1000000};
	return 0;
}

static void
on_packet(void *arg, int type, struct slice body)
{
	struct side *s = arg;
	uint32_t number = 0;

	CHECK(body.n >= sizeof(number));
	memcpy(&number, body.p, sizeof(number));
	CHECK(number == s->got[type - SMALL]);
	for (size_t i = sizeof(number); i < body.n; i++)
		if (body.p[i] != (char)number) {
			CHECK(body.p[i] == (char)number);
			break;
		}
	s->got[type - SMALL]++;
}

void
send_numbered(struct side *s, int type, size_t n)
{
	uint32_t number = s->sent[type - SMALL]++;

	memset(piece, (char)number, n);
	line_send(s->l, type, type == BULK, (struct slice){(const char *)&number, sizeof(number)},
	    (struct slice){piece, n});
}

static bool
on_more(void *arg)
{
	struct side *s = arg;

	if (!s->bulk_left)
		return false;
	s->bulk_left--;
	send_numbered(s, BULK, s->whole_pieces ? line_piece(s->l) - 4 : (size_t)rand() % 5000);
	return true;
}

static void
on_up(void *arg)
{
	((struct side *)arg)->ups++;
}

static void
on_down(void *arg, const struct err *why)
{
	struct side *s = arg;

	s->downs++;
	s->why = why->no;
}

static void
on_back(void *arg, const struct err *why)
{
	struct side *s = arg;

	s->backs++;
	s->why = why->no;
}

static const struct line_ops ops = {on_packet, on_more, on_up, on_down, on_back};

void
unplug(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int
make_plug(int *ours)
{
	int pair[2];

	unplug(ours);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
	if (send_buffer)
		CHECK(setsockopt(
			  pair[0], SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer)) == 0);
	*ours = pair[1];
	return pair[0];
}

void
plug(struct side *s)
{
	int fd = make_plug(&s->ours);

	line_attach(s->l, fd, fd, (struct slice){0});
}

size_t
carry_bytes(int from, int to, size_t n)
{
	static char bytes[1 << 16];
	ssize_t got = read(from, bytes, MIN(n, sizeof(bytes)));

	if (got <= 0)
		return 0;
	/* what does not fit is lost, and the stream with it, as when a cable is cut */
	return write(to, bytes, (size_t)got) == got ? (size_t)got : n;
}

size_t
carry(struct side *from, struct side *to, size_t n)
{
	return carry_bytes(from->ours, to->ours, n);
}

size_t
carry_direct(struct side *from, struct side *to, size_t n)
{
	return carry_bytes(from->direct, to->direct, n);
}

void
step(void)
{
	for (int i = 0; i < 4; i++)
		loop_once(loop, 0);
}

void
settle(struct side *a, struct side *b)
{
	size_t moved;

	do {
		step();
		moved = carry(a, b, 1 << 16) + carry(b, a, 1 << 16) + carry_direct(a, b, 1 << 16) +
			carry_direct(b, a, 1 << 16);
	} while (moved);
}

void
side_new(struct side *s)
{
	*s = (struct side){.ours = -1, .direct = -1};
	s->l = line_new(loop, &ops, s);
}

void
side_free(struct side *s)
{
	line_free(s->l);
	unplug(&s->ours);
	unplug(&s->direct);
}

void
check_all_came(const struct side *a, const struct side *b)
{
	for (int i = 0; i < 2; i++) {
		CHECK(a->sent[i] == b->got[i] && a->sent[i] > 0);
		CHECK(b->sent[i] == a->got[i] && b->sent[i] > 0);
	}
	CHECK(line_unacked(a->l) == 0 && line_unacked(b->l) == 0);
}
