/*
 * Tests of engine/rank/rank_flight.c: the main thread's state; a flight recorder that answers, a
 * torch without its function, where what Python was told serves, and a function that throws, after
 * which only that serves.
 */
#define _GNU_SOURCE
#include "check.h"
#include "loop.h"
#include "rank/flight.h"
#include "rank/rank.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static void *fake_dlopen(const char *name, int flags);
static void *fake_dlsym(void *library, const char *symbol);
#define dlopen fake_dlopen
#define dlsym fake_dlsym
/* NOLINTNEXTLINE(bugprone-suspicious-include): in the place of libtorch */
#include "../../engine/rank/rank_flight.c"

#define SAYS(number)                                                                               \
	"{\"entries\":[{\"record_id\":1,\"collective_seq_id\":" #number                            \
	",\"process_group\":[\"0\",\"\"],\"profiling_name\":\"gloo:barrier\"}]}"

enum { LIMIT_MS = 60000 };

static bool has_function, throws;
static _Atomic bool thrown;
static terminate_fn *_Atomic handler; /* of std::terminate() */
static struct loop *loop;
static int answers;

static void *
fake_dlopen(const char *name, int flags)
{
	return strcmp(name, "libtorch_cpu.so") == 0 ? &loop : NULL;
}

static terminate_fn *
set_terminate(terminate_fn *f)
{
	terminate_fn *before = handler;

	handler = f;
	return before;
}

static struct string
dump(bool collectives, bool only_active)
{
	struct string s = {xstrdup(SAYS(5)), strlen(SAYS(5)), ""};

	if (throws) { /* nobody catches it */
		free(s.p);
		thrown = true;
		handler();
	}
	return s;
}

static void *
fake_dlsym(void *library, const char *symbol)
{
	if (strcmp(symbol, "_ZdlPv") == 0)
		return (void *)free;
	if (strstr(symbol, "set_terminate"))
		return (void *)set_terminate;
	return has_function ? (void *)dump : NULL;
}

static void
on_terminated(void)
{
	abort();
}

static void
on_answer(void)
{
	answers++;
}

/* Asks, and waits for an answer if one is waited for. */
static void
asks(bool waits)
{
	int before = answers;

	rank_flight_ask();
	CHECK(rank_flight_waits() == waits);
	for (int i = 0; i < LIMIT_MS && waits && answers == before; i++)
		loop_once(loop, 1);
	CHECK(answers == before + waits);
}

/* Behind the line of the main thread, this is said. */
static void
says(const char *wanted)
{
	struct buf out = {0};
	char *behind;

	rank_flight_print(&out);
	buf_addc(&out, '\0');
	behind = strchr(out.p, '\n');
	CHECK(behind != NULL);
	if (behind && strncmp(behind + 1, wanted, strlen(wanted)) != 0)
		CHECK_STR(behind + 1, wanted);
	CHECK(behind && (behind[1] != '\0') == (*wanted != '\0'));
	buf_free(&out);
}

/* What Python has been told serves. */
static void
serves_python(void)
{
	asks(false);
	says("");
	rank_flight_text(FLIGHT_GLOO, slice_text(SAYS(3)));
	says("group 0 gloo 3 0-1\nop 3 barrier -1 - 0 ");
}

/* Prints while the main thread sleeps. */
static void *
prints(void *arg)
{
	while (rank_flight_state() != 'S')
		sched_yield();
	rank_flight_print(arg);
	return NULL;
}

/* What has been done since it was asked, such as a signal that woke the main thread or let it wait
 * for a lock, says nothing of what that did itself: here it ran. */
static void
test_main_thread(void)
{
	struct buf out = {0};
	pthread_t thread;

	rank_flight_ask();
	CHECK(pthread_create(&thread, NULL, prints, &out) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	buf_addc(&out, '\0');
	CHECK(strncmp(out.p, "main R\n", 7) == 0);
	buf_free(&out);
}

int
main(void)
{
	loop = loop_new();
	handler = on_terminated;
	rank_flight_init(loop, on_answer);
	test_main_thread();
	rank_flight_groups(slice_text("0 gloo 0 0-1\n"));
	CHECK(rank_flight_find() == 0);
	serves_python();
	has_function = true;
	CHECK(rank_flight_find() == 1);
	asks(true);
	says("group 0 gloo 5 0-1\nop 5 barrier -1 - 0 ");
	CHECK(handler == on_terminated);
	throws = true;
	rank_flight_ask();
	CHECK(rank_flight_waits());
	for (int i = 0; i < LIMIT_MS && !(thrown && handler == on_terminated); i++)
		loop_once(loop, 1);
	CHECK(thrown && handler == on_terminated); /* other threads terminate as before */
	serves_python();
	CHECK(answers == 1);
	return CHECK_DONE();
}
