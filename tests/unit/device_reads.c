/* Reads of an object on a GPU, which the daemon divides into slots, are all answered, and a stuck
 * GPU holds only some of the slots. An array stands in for the rank. */
#define _GNU_SOURCE
#include "check.h"
#include "base/daemon.h"
#include "conn.h"
#include "object/device.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD = 64, MANY = 50000, PER_GPU = DEVICE_SLOTS / 4 };

struct daemon daemon_;
static struct agent agent;
static const struct slice none = {"", 0};
static bool rank_lives = true;

static struct {
	reply_fn *fn;
	void *arg;
} asked[MANY];

static int asked_count, done_count, copied_count, last_result;
static struct source last_source;

bool
agent_slot_lives(const struct agent *a, int slot)
{
	return rank_lives;
}

uint64_t
agent_tag(struct agent *a, int slot, int type, reply_fn *fn, void *arg)
{
	asked[asked_count].fn = fn;
	asked[asked_count].arg = arg;
	return (uint32_t)++asked_count;
}

int
req_park(struct req *r, req_interrupt_fn *fn)
{
	r->on_interrupt = fn;
	return PARKED;
}

void
req_done(struct req *r, int result)
{
	done_count++;
	last_result = result;
}

void
req_copy(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	copied_count++;
	last_source = *s;
}

static void
answer_copy(int i)
{
	struct msg m = {.type = Rcopy};

	asked[i].fn(asked[i].arg, &m, NULL, (struct slice){0});
}

static int
memory_of_rank(int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(ftruncate(fd, (off_t)DEVICE_SLOTS * DEVICE_SLOT) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static struct device *
new_device(int slot, unsigned gpu)
{
	struct err e = {0};
	struct device *d = device_new(&agent, slot, 1, gpu, memory_of_rank(F_SEAL_SHRINK), &e);

	CHECK(d != NULL);
	asked_count = done_count = copied_count = 0;
	return d;
}

static void
interrupt_read(struct req *r)
{
	r->on_interrupt(r, DETACH);
	CHECK(last_result == -EINTR);
}

/* Memory that the rank could shrink is refused: it would let the daemon die of SIGBUS. */
static void
test_seals(void)
{
	struct err e = {0};

	CHECK(!device_new(&agent, 9, 1, 0, memory_of_rank(F_SEAL_GROW), &e) && e.no == EBADMSG);
	CHECK_STR(e.text, "the rank's memory for copies can be made shorter");
}

/* A request that leaves the queue keeps no reference to its object, which is freed together with
 * its head. */
static void
test_leaving_the_line(void)
{
	struct device *d = new_device(1, 0), *other = new_device(1, 0);
	struct req r[PER_GPU + 1] = {0}, last = {0};
	char *head = xmalloc(HEAD), second[HEAD] = "head";

	for (int i = 0; i <= PER_GPU; i++)
		device_read(d, &r[i], (struct slice){head, HEAD}, 0, 2 * HEAD);
	CHECK(asked_count == PER_GPU);
	for (int i = 0; i <= PER_GPU; i++)
		interrupt_read(&r[i]);
	CHECK(done_count == PER_GPU + 1);
	device_free(d);
	free(head);
	device_read(other, &last, (struct slice){second, HEAD}, 0, 2 * HEAD);
	for (int i = 0; i < PER_GPU; i++)
		answer_copy(i);
	CHECK(asked_count == PER_GPU + 1 && copied_count == 0);
	answer_copy(PER_GPU);
	CHECK(copied_count == 1 && memcmp(last_source.head, second, HEAD) == 0);
	last_source.sent(last_source.sent_arg);
	loop_once(daemon_.loop, 0);
	device_free(other);
}

/* Any number of requests queued for a rank that has died are answered without recursion. */
static void
test_long_line(void)
{
	struct device *d = new_device(2, 0);
	struct req *r = xcalloc(MANY, sizeof(*r));

	for (int i = 0; i < MANY; i++)
		device_read(d, &r[i], none, 0, HEAD);
	CHECK(asked_count == PER_GPU && done_count == 0);
	rank_lives = false;
	for (int i = 0; i < PER_GPU; i++)
		answer_copy(i);
	CHECK(copied_count == PER_GPU);
	last_source.sent(last_source.sent_arg);
	loop_once(daemon_.loop, 0);
	CHECK(done_count == MANY - PER_GPU && last_result == -EHOSTDOWN);
	rank_lives = true;
	device_free(d);
	free(r);
}

/* A GPU that is stuck holds only some of the slots: another GPU of the rank can still be read. */
static void
test_other_gpu(void)
{
	struct device *stuck = new_device(3, 0), *works = new_device(3, 1);
	struct req *r = xcalloc(DEVICE_SLOTS, sizeof(*r)), one = {0};

	for (int i = 0; i < DEVICE_SLOTS; i++)
		device_read(stuck, &r[i], none, 0, HEAD);
	for (int i = 0; i < DEVICE_SLOTS; i++)
		interrupt_read(&r[i]);
	device_read(works, &one, none, 0, HEAD);
	CHECK(asked_count == PER_GPU + 1);
	answer_copy(PER_GPU);
	CHECK(copied_count == 1);
	last_source.sent(last_source.sent_arg);
	for (int i = 0; i < PER_GPU; i++)
		answer_copy(i);
	loop_once(daemon_.loop, 0);
	CHECK(copied_count == 1 && done_count == DEVICE_SLOTS);
	device_free(stuck);
	device_free(works);
	free(r);
}

static int
free_descriptor(void)
{
	int fd = dup(STDIN_FILENO);

	close(fd);
	return fd;
}

/* The descriptor by which a copy thread reports stays open: the thread may be about to write to
 * it. */
static void
test_late_word(void)
{
	struct device *d = new_device(4, 0);
	int next = free_descriptor();

	device_free(d);
	CHECK(free_descriptor() == next);
}

int
main(void)
{
	int pair[2];

	daemon_.loop = loop_new();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	agent.conn = conn_new(daemon_.loop, pair[0], pair[0], NULL, NULL, NULL);
	test_seals();
	test_leaving_the_line();
	test_long_line();
	test_other_gpu();
	test_late_word();
	conn_free(agent.conn);
	close(pair[1]);
	loop_free(daemon_.loop);
	return CHECK_DONE();
}
