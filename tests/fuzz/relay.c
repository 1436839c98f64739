/*
 * Fuzzes what the near relay receives from another host: packets of any type with any body, frames
 * of any messages in them, damaged. A protocol violation ends a relay, as it says; nothing else
 * does.
 */
#include "conn.h"
#include "frames.h"
#include <setjmp.h>
#include <stdlib.h>

static _Noreturn void leave_input(int status);

/* A relay that gives up ends the process: here, the input. */
#define exit(status) leave_input(status)
#define conn_flush(c) ((void)(c))
#include "../../engine/relay/near.c"
#undef exit
#undef conn_flush
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Where a relay would exit, it leaves much to the kernel. */
const char *__asan_default_options(void);

const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}

enum { STEPS = 64, SLOTS = 3, TAGS = 8 };

static jmp_buf ended;
static struct conn *daemon_side;

static _Noreturn void
leave_input(int status)
{
	longjmp(ended, 1);
}

static void
drop(void *arg, struct msg *m)
{
}

static void
closed(void *arg, const struct err *e)
{
}

/* As near_main() does, without a command that leads to a host. */
static void
begin(void)
{
	static const struct link_ops ops = {on_packet, on_more, on_up, on_down, on_back};
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		die("socketpair: %s", strerror(errno));
	memset(&near, 0, sizeof(near));
	near.dial.host = "far";
	near.greeted = true;
	near.loop = loop_new();
	near.link = link_new(near.loop, &ops, NULL);
	near.out = outbox_new(near.loop, near.link);
	near.in = inbox_new(deliver, NULL);
	near.daemon = conn_new(near.loop, pair[0], pair[0], on_daemon, on_daemon_close, NULL);
	conn_take_whole(near.daemon);
	near.asked = asked_new(near.out);
	daemon_side = conn_new(near.loop, pair[1], pair[1], drop, closed, NULL);
}

static void
clean(void)
{
	asked_free(near.asked);
	conn_free(near.daemon);
	conn_free(daemon_side);
	loop_once(near.loop, 0); /* frees what callbacks have freed */
	for (size_t i = 0; i < ARRAY_LEN(near.bulks); i++)
		buf_free(&near.bulks[i]);
	inbox_free(near.in);
	outbox_free(near.out);
	link_free(near.link);
	loop_free(near.loop);
}

/* The daemon asks something of a rank. */
static void
ask(void)
{
	static const uint8_t questions[] = {
	    Trun, Tget, Tput, Tread, Tstack, Thas, Ncancel, Tcommit};
	struct buf b = {0};
	struct msg m = {.slot = take() % SLOTS,
	    .tag = 1 + take() % TAGS,
	    .fd = -1,
	    .flags = take() & FLAG_MARK};

	m.type = questions[take() % sizeof(questions)];
	fill(&b, m.type);
	m.body = b.p;
	m.len = (uint32_t)b.n;
	on_daemon(NULL, &m);
	buf_free(&b);
}

/* A frame of the other side. */
static void
add_frame(struct buf *to)
{
	uint8_t how = take(), type = take();
	struct buf b = {0};
	struct msg m = {.slot = take() & 128 ? SLOT_AGENT : take() % SLOTS,
	    .tag = take() % (TAGS + 1),
	    .fd = -1,
	    .flags = how & 64 ? FLAG_MARK : 0};

	while (!wire_name(type))
		type++;
	m.type = type;
	fill(&b, type);
	damage(&b, how);
	m.body = b.p;
	m.len = (uint32_t)b.n;
	wire_pack_raw(to, &m);
	buf_free(&b);
}

/* The blobs that have begun on the other side, by their id: how many bytes are still to come. */
static struct {
	bool known;
	uint64_t left;
} blobs[4];

/* What is still to come of frames in pieces: objects, output. */
static struct buf bulks[ARRAY_LEN(near.bulks)];

/* Bytes of a blob; a byte too many now and then. */
static void
add_bytes(struct buf *to, uint64_t *left)
{
	uint64_t n = take() & 63;

	n = take() < 4 ? n : MIN(n, *left);
	*left -= MIN(n, *left);
	for (; n > 0; n--)
		buf_addc(to, (char)take());
}

static int
of_blob(struct buf *b, uint8_t kind)
{
	static const uint8_t types[] = {PACKET_BYTES, PACKET_WITH, PACKET_FREE};
	uint8_t id = take() % ARRAY_LEN(blobs);
	bool lies = take() < 4;
	int type = blobs[id].known != lies ? types[kind % sizeof(types)] : PACKET_BLOB;

	wire_put_number(b, '4', id);
	if (type == PACKET_BLOB) {
		blobs[id].left = lies ? (uint64_t)take() << 56 : take();
		wire_put_number(b, '8', blobs[id].left);
	} else if (type == PACKET_BYTES) {
		add_bytes(b, &blobs[id].left);
	} else if (type == PACKET_WITH) {
		add_frame(b);
	}
	blobs[id].known = type != PACKET_FREE;
	return type;
}

/* Bytes of frames, which end anywhere. */
static int
of_bulk(struct buf *b, int type)
{
	struct buf *bulk = &bulks[type - PACKET_BULK];
	size_t n;

	while (bulk->n < 64 && (take() & 1))
		add_frame(bulk);
	n = take();
	n = MIN(n, bulk->n);
	buf_add(b, bulk->p, n);
	buf_drop(bulk, n);
	return type;
}

static void
say(void)
{
	uint8_t kind = take();
	struct buf b = {0};
	int type = PACKET_FRAME;

	if (kind < 100)
		add_frame(&b);
	else if (kind < 150)
		type = of_blob(&b, kind);
	else if (kind < 200)
		type = of_bulk(&b, PACKET_BULK);
	else if (kind < 254)
		type = of_bulk(&b, PACKET_OUTPUT);
	else
		type = LINK_PACKET_MIN + take() % (PACKET_REFUSAL - LINK_PACKET_MIN + 3);
	if (take() < 4)
		damage(&b, take());
	on_packet(NULL, type, (struct slice){b.p, b.n});
	buf_free(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	memset(blobs, 0, sizeof(blobs));
	for (size_t i = 0; i < ARRAY_LEN(bulks); i++)
		buf_clear(&bulks[i]);
	input = (struct slice){(const char *)data, size};
	if (setjmp(ended) == 0)
		for (int i = 0; i < STEPS; i++) {
			if (take() < 64)
				ask();
			else
				say();
			loop_once(near.loop, 0);
		}
	clean();
	return 0;
}
