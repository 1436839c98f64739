/* A READ is answered with the bytes of its source, whoever provides them, and once: also when its
 * client stops, the source is freed, or the bytes come short or not at all. */
#include "base/req.h"
#include "check.h"
#include "source.h"
#include "loop.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BIG = 1 << 20 }; /* for the copy threads */

/* ---- a front end ---- */

static struct {
	int answers, result, parked, copies;
	struct buf data;
} seen;

static void
done(struct req *r, int result)
{
	seen.answers++;
	seen.result = result;
}

static void
data(struct req *r, const void *p, size_t n)
{
	done(r, 0);
	buf_clear(&seen.data);
	buf_add(&seen.data, p, n);
}

/* As a front end does: the request is gone when the copy thread has the bytes. */
static struct req gone;

static void
copied(void *arg, const char *p, ssize_t n)
{
	if (n < 0)
		done(arg, -req_copy_errno(n));
	else
		data(arg, p, (size_t)n);
}

static void
copy(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	seen.copies++;
	memset(r, 0xff, sizeof(*r));
	copy_later(s, offset, n, copied, &gone);
}

static void
park(struct req *r)
{
	seen.parked++;
}

static void
unpark(struct req *r)
{
	seen.parked--;
}

static const struct req_ops front = {
    .done = done, .data = data, .copy = copy, .park = park, .unpark = unpark};

static void
read_at(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	*r = (struct req){.ops = &front};
	seen.answers = seen.result = seen.copies = 0;
	buf_clear(&seen.data);
	req_copy(r, s, offset, n);
}

static bool
is_answered(const char *text)
{
	return seen.answers == 1 && seen.parked == 0 && seen.result == 0 &&
	       seen.data.n == strlen(text) && memcmp(seen.data.p, text, seen.data.n) == 0;
}

/* ---- a provider ---- */

static struct {
	struct range *asked; /* the last range; NULL: it was cancelled */
	int frees, sent;
} provided;

static void
ask(struct range *x)
{
	provided.asked = x;
	TAILQ_INSERT_TAIL(&x->of->ranges, x, link);
}

static void
cancel(struct range *x)
{
	provided.asked = NULL;
}

static void
free_provider(struct provider *p)
{
	provided.frees++;
	free(p);
}

static struct source
new_source(const char *head)
{
	static const struct provider_ops ops = {ask, cancel, free_provider};
	struct provider *p = xcalloc(1, sizeof(*p));

	p->ops = &ops;
	TAILQ_INIT(&p->ranges);
	return (struct source){
	    .kind = SOURCE_PROVIDER, .head = head, .head_n = strlen(head), .fd = -1, .provider = p};
}

static void
on_sent(void *arg)
{
	provided.sent++;
	memset(arg, 'x', 4); /* nobody may need them any more */
}

static void
provide(char *p, size_t n)
{
	struct source bytes = {.kind = SOURCE_MEMORY,
	    .fd = -1,
	    .head = p,
	    .head_n = n,
	    .sent = on_sent,
	    .sent_arg = p};

	range_answer(provided.asked, &bytes, NULL);
}

/* ---- tests ---- */

/* Which part of a range is of the head, and which is the provider's. */
static void
test_parts(void)
{
	static const struct {
		uint64_t offset;
		size_t n;
		const char *head;
		uint64_t from;
		size_t left;
	} cases[] = {{0, 8, "head", 0, 4}, {1, 2, "ea", 0, 0}, {3, 1, "d", 0, 0}, {3, 2, "d", 0, 1},
	    {4, 4, "", 0, 4}, {9, 1, "", 5, 1}};
	struct source s = new_source("head");
	struct req r;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct range *x = &r.range;

		read_at(&r, &s, cases[i].offset, cases[i].n);
		CHECK(provided.asked == x && seen.parked == 1 && seen.answers == 0);
		CHECK(slice_eq(x->head, cases[i].head));
		CHECK(x->offset == cases[i].from && x->n == cases[i].left);
		range_cancel(&r.range);
		seen.parked = 0;
	}
	provider_free(s.provider);
	CHECK(provided.frees == 1);
}

/* The answer has what the provider gives, though it is less, and then lets go of it. */
static void
test_short(void)
{
	struct source s = new_source("");
	char text[] = "text";
	struct req r;

	provided.sent = 0;
	read_at(&r, &s, 10, 100);
	provide(text, 3);
	CHECK(is_answered("tex") && provided.sent == 1);
	provider_free(s.provider);
	CHECK(seen.answers == 1);
}

static void
test_errno(void)
{
	struct source s = new_source("");
	struct err e;
	struct req r;

	read_at(&r, &s, 0, 100);
	fail(&e, EHOSTDOWN, "the rank is gone");
	range_answer(provided.asked, NULL, &e);
	CHECK(seen.answers == 1 && seen.result == -EHOSTDOWN && seen.parked == 0);
	CHECK_STR(r.err.text, "the rank is gone");
	provider_free(s.provider);
	CHECK(seen.answers == 1);
}

/* The client gets a signal, or ends: the provider is told, and keeps nothing of the request. */
static void
test_client(void)
{
	static const enum interrupt all[] = {STOP_WORK, CLIENT_ENDS, DETACH};
	struct source s = new_source("");

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		struct req *r = xmalloc(sizeof(*r));

		read_at(r, &s, 0, 100);
		req_interrupt(r, all[i]);
		CHECK(seen.answers == 1 && seen.result == -EINTR && seen.parked == 0);
		CHECK(!provided.asked && TAILQ_EMPTY(&s.provider->ranges));
		free(r);
	}
	provider_free(s.provider);
	CHECK(seen.answers == 1);
}

static void
test_freed(void)
{
	struct source s = new_source("");
	struct req r[3];

	for (int i = 0; i < 3; i++)
		read_at(&r[i], &s, 0, 100);
	provided.frees = 0;
	provider_free(s.provider);
	CHECK(seen.answers == 3 && seen.result == -ECANCELED && seen.parked == 0);
	CHECK(provided.frees == 1);
	provider_free(NULL);
}

/* What a file or a process has not, and what cannot be read. */
static void
test_direct(void)
{
	int fd = memfd_create("source", MFD_CLOEXEC);
	struct source s = {.kind = SOURCE_FD, .head = "head", .head_n = 4, .fd = fd};
	char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct req r;

	CHECK(write(fd, "body", 4) == 4);
	read_at(&r, &s, 2, 100);
	CHECK(is_answered("adbody") && !provided.asked);
	read_at(&r, &s, 8, 100);
	CHECK(is_answered(""));
	close(fd);
	read_at(&r, &s, 2, 100);
	CHECK(seen.answers == 1 && seen.result == -EBADF);
	read_at(&r, &s, 1, 3);
	CHECK(is_answered("ead"));
	s = (struct source){.kind = SOURCE_PROCESS, .fd = -1, .pid = getpid(), .pidfd = -1};
	s.addr = (uintptr_t)page;
	CHECK(munmap(page, 4096) == 0);
	read_at(&r, &s, 0, 100);
	CHECK(seen.answers == 1 && seen.result == -EFAULT);
}

/* Much is answered by a copy thread, from the provider's memory itself; the client cannot stop it
 * any more, and the provider may be freed meanwhile. */
static void
test_much(void)
{
	struct source s = new_source("");
	char *memory = xmalloc(BIG);
	struct err e;
	struct req r;

	memset(memory, 'm', BIG);
	provided.sent = 0;
	read_at(&r, &s, 0, BIG);
	provide(memory, BIG);
	CHECK(seen.copies == 1 && seen.parked == 0 && seen.answers == 0 && provided.sent == 0);
	provider_free(s.provider);
	CHECK(copy_start(&e) == 0);
	copy_stop();
	CHECK(seen.answers == 1 && seen.data.n == BIG && provided.sent == 1);
	CHECK(seen.data.p[0] == 'm' && memcmp(seen.data.p, seen.data.p + 1, BIG - 1) == 0);
	free(memory);
}

int
main(void)
{
	test_parts();
	test_short();
	test_errno();
	test_client();
	test_freed();
	test_direct();
	test_much();
	buf_free(&seen.data);
	return CHECK_DONE();
}
