/*
 * Fuzzes what comes from another host: packets of any type with any body at the near end of a line,
 * and in those of its lanes frames of any messages, damaged, blobs among them. A protocol violation
 * ends the line, or the daemon's connection, as it says; nothing else does.
 */
#include "conn.h"
#include "frames.h"
#include "line/lanes.h"
#include <setjmp.h>
#include <stdlib.h>

static _Noreturn void leave_input(int status);

/* A relay that gives up ends the process: here, the input. */
#define exit(status) leave_input(status)
#define lanes_flush(lanes) ((void)(lanes))
#include "../../engine/line/near.c"
#undef exit
#undef lanes_flush
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Where a relay would exit, it leaves much to the kernel. */
const char *__asan_default_options(void);

const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}

enum { STEPS = 64, SLOTS = 3, TAGS = 8, BLOBS = 4, BLOB_SIZE = 48 };

static jmp_buf ended;
static struct conn *daemon_side[LANES];

static _Noreturn void
leave_input(int status)
{
	longjmp(ended, 1);
}

static void
drop(void *arg, struct msg *m)
{
	if (m->fd >= 0 && lseek(m->fd, 0, SEEK_END) < 0)
		abort();
}

static void
closed(void *arg, const struct err *e)
{
}

/* As near_main() does, without a command that leads to a host. */
static void
begin(void)
{
	static const struct line_ops ops = {on_packet, on_more, on_up, on_down, on_back};
	int ours[LINE_LANES], pair[2];

	signal(SIGPIPE, SIG_IGN);
	memset(&near, 0, sizeof(near));
	near.dial.host = "far";
	near.words = open("/dev/null", O_WRONLY | O_CLOEXEC);
	near.loop = loop_new();
	near.line = line_new(near.loop, &ops, NULL);
	for (int i = 0; i < LANES; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			die("socketpair: %s", strerror(errno));
		ours[i] = pair[0];
		daemon_side[i] = conn_new(near.loop, pair[1], pair[1], drop, closed, NULL);
		if (i > 0)
			conn_beside(daemon_side[i], daemon_side[0]);
	}
	near.lanes = lanes_new(near.loop, near.line, ours, end);
}

static void
clean(void)
{
	for (int i = 0; i < LANES; i++)
		conn_free(daemon_side[i]);
	lanes_free(near.lanes);
	line_free(near.line);
	loop_free(near.loop);
	close(near.words);
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

/* The bytes of each blob that are sent. */
static uint64_t sent[BLOBS];

/* A part of a blob, or what comes with one; a wrong one now and then. */
static void
add_blob(struct buf *to)
{
	char bytes[BLOB_SIZE] = {0};
	uint8_t what = take(), id = take() % BLOBS;
	bool lies = take() < 4;
	uint64_t n = MIN((uint64_t)take() % BLOB_SIZE, BLOB_SIZE - sent[id]);
	struct buf frame = {0};

	if (what < 40) {
		wire_pack(to, Nforget, 0, SLOT_AGENT, 0, (uint32_t)id);
		sent[id] = 0;
	} else if (lies || (sent[id] == BLOB_SIZE && what < 200)) {
		add_frame(&frame);
		wire_pack(
		    to, Nwith, 0, SLOT_AGENT, 0, (uint32_t)id, ((struct slice){frame.p, frame.n}));
		buf_free(&frame);
	} else {
		wire_pack(to, Nblob, 0, SLOT_AGENT, 0, (uint32_t)id,
		    take() < 4 ? (uint64_t)take() << 56 : BLOB_SIZE,
		    take() < 4 ? UINT64_MAX - take() : sent[id],
		    ((struct slice){bytes, (size_t)n}));
		sent[id] += n;
	}
}

/* Frames, of which some bytes come now, and the rest later. */
static void
send_some(struct buf *lanes)
{
	uint8_t kind = take();
	int lane = take() % LANES;
	struct buf *b = &lanes[lane];
	size_t n = take();

	if (kind >= 254) {
		on_packet(NULL, LINE_LANE + take() % (LINE_REFUSAL - LINE_LANE + 3),
		    (struct slice){"packet", take() % 7});
		return;
	}
	if (kind < 100)
		add_frame(b);
	else
		add_blob(b);
	n = n < 16 ? MIN(n, b->n) : b->n;
	on_packet(NULL, LINE_LANE + lane, (struct slice){b->p, n});
	buf_drop(b, n);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct buf lanes[LANES];

	begin();
	memset(sent, 0, sizeof(sent));
	for (int i = 0; i < LANES; i++)
		buf_clear(&lanes[i]);
	input = (struct slice){(const char *)data, size};
	if (setjmp(ended) == 0)
		for (int i = 0; i < STEPS; i++) {
			send_some(lanes);
			loop_once(near.loop, 0);
			loop_once(near.loop, 0);
		}
	clean();
	return 0;
}
