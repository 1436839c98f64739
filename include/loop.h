/* One epoll loop: descriptors, timers, signals. Callbacks run on the thread that calls loop_run. */
#ifndef LOOP_H
#define LOOP_H
#include "util.h"
#include <sys/queue.h>

struct loop;
struct watch; /* one descriptor */
struct timer; /* one shot */

typedef void loop_fd_fn(void *arg, uint32_t events);
typedef void loop_fn(void *arg);
typedef void loop_signal_fn(void *arg, int signo);

struct loop *loop_new(void);
void loop_free(struct loop *l);

/* Watches fd for events (EPOLLIN, EPOLLOUT…). The watch does not own the descriptor. */
struct watch *loop_fd(struct loop *l, int fd, uint32_t events, loop_fd_fn *fn, void *arg);
void loop_fd_events(struct watch *w, uint32_t events);
void loop_fd_del(struct watch *w); /* NULL-safe; safe inside any callback */

/* Calls fn once after ms milliseconds and frees the timer. Until then it can be cancelled;
 * cancelling is NULL-safe. */
struct timer *loop_timer(struct loop *l, uint64_t ms, loop_fn *fn, void *arg);
void loop_timer_del(struct timer *t);

/* Calls fn once at the end of this round, before the loop sleeps. Can be cancelled like a timer. */
struct timer *loop_round_end(struct loop *l, loop_fn *fn, void *arg);
/* Calls those functions now: for a callback that goes on with unrelated work. */
void loop_end_round(struct loop *l);

/* A call that any thread may have the loop make; in the memory of who posts it. */
struct loop_call {
	loop_fn *fn;
	void *arg;
	STAILQ_ENTRY(loop_call) link;
};

/* Has the loop make this call, once, in the order of the calls posted. On any thread. */
void loop_post(struct loop *l, struct loop_call *c);
/* Makes those that are to fn now (NULL: all). */
void loop_make_posted(struct loop *l, loop_fn *fn);

/* Blocks signo for the calling thread and delivers it as a callback (signalfd). */
void loop_signal(struct loop *l, int signo, loop_signal_fn *fn, void *arg);

/* After the last event the loop polls for ns, yielding the CPU, before it sleeps: being woken from
 * another core costs more. */
void loop_spin(struct loop *l, uint64_t ns);

void loop_run(struct loop *l);			/* until loop_stop */
void loop_once(struct loop *l, int timeout_ms); /* one round; -1: no timeout */
void loop_stop(struct loop *l);

#endif
