/* One epoll loop: descriptors, timers in a sorted list, signals through signalfd. */
#include "loop.h"
#include "thread.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EVENTS = 64 };

struct watch {
	struct loop *loop;
	int fd;
	bool dead; /* deleted during a round; freed at its end */
	loop_fd_fn *fn;
	void *arg;
	TAILQ_ENTRY(watch) link;
};

struct timer {
	struct loop *loop;
	uint64_t at; /* 0: at the end of the round */
	loop_fn *fn;
	void *arg;
	TAILQ_ENTRY(timer) link;
};

struct loop {
	int epoll, sigfd;
	sigset_t signals;
	bool stop;
	uint64_t spin, last; /* how long to poll; time of the last event */
	loop_signal_fn *on_signal[NSIG];
	void *signal_arg[NSIG];
	TAILQ_HEAD(, watch) watches, dead;
	TAILQ_HEAD(timers, timer) timers, ends;
	int posted_fd;	      /* eventfd: there are posted calls */
	pthread_mutex_t lock; /* of these */
	STAILQ_HEAD(calls, loop_call) posted;
};

static void
on_posted(void *arg, uint32_t events)
{
	struct loop *l = arg;
	uint64_t count;

	(void)!read(l->posted_fd, &count, sizeof(count));
	loop_make_posted(l, NULL);
}

struct loop *
loop_new(void)
{
	struct loop *l = xcalloc(1, sizeof(*l));

	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0)
		die("epoll_create1: %s", strerror(errno));
	l->sigfd = -1;
	sigemptyset(&l->signals);
	TAILQ_INIT(&l->watches);
	TAILQ_INIT(&l->dead);
	TAILQ_INIT(&l->timers);
	TAILQ_INIT(&l->ends);
	STAILQ_INIT(&l->posted);
	pthread_mutex_init(&l->lock, NULL);
	l->posted_fd = fault("loop.eventfd", EMFILE) ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->posted_fd < 0)
		die("eventfd: %s", strerror(errno));
	loop_fd(l, l->posted_fd, EPOLLIN, on_posted, l);
	return l;
}

static void
bury(struct loop *l)
{
	struct watch *w;

	while ((w = TAILQ_FIRST(&l->dead))) {
		TAILQ_REMOVE(&l->dead, w, link);
		free(w);
	}
}

void
loop_free(struct loop *l)
{
	struct watch *w;
	struct timer *t;

	if (!l)
		return;
	while ((w = TAILQ_FIRST(&l->watches)))
		loop_fd_del(w);
	bury(l);
	while ((t = TAILQ_FIRST(&l->timers)) || (t = TAILQ_FIRST(&l->ends)))
		loop_timer_del(t);
	if (l->sigfd >= 0)
		close(l->sigfd);
	close(l->posted_fd);
	close(l->epoll);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

struct watch *
loop_fd(struct loop *l, int fd, uint32_t events, loop_fd_fn *fn, void *arg)
{
	struct watch *w = xcalloc(1, sizeof(*w));
	struct epoll_event ev = {.events = events, .data.ptr = w};

	*w = (struct watch){.loop = l, .fd = fd, .fn = fn, .arg = arg};
	if (fault("loop.add", ENOSPC) || epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		die("epoll: descriptor %d: %s", fd, strerror(errno));
	TAILQ_INSERT_TAIL(&l->watches, w, link);
	return w;
}

void
loop_fd_events(struct watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	if (epoll_ctl(w->loop->epoll, EPOLL_CTL_MOD, w->fd, &ev) < 0)
		die("epoll: descriptor %d: %s", w->fd, strerror(errno));
}

void
loop_fd_del(struct watch *w)
{
	if (!w || w->dead)
		return;
	epoll_ctl(w->loop->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	w->dead = true;
	TAILQ_REMOVE(&w->loop->watches, w, link);
	TAILQ_INSERT_TAIL(&w->loop->dead, w, link);
}

struct timer *
loop_timer(struct loop *l, uint64_t ms, loop_fn *fn, void *arg)
{
	struct timer *t = xcalloc(1, sizeof(*t)), *after;

	*t = (struct timer){.loop = l, .at = now_ns() + ms * 1000000u, .fn = fn, .arg = arg};
	TAILQ_FOREACH (after, &l->timers, link) {
		if (after->at > t->at) {
			TAILQ_INSERT_BEFORE(after, t, link);
			return t;
		}
	}
	TAILQ_INSERT_TAIL(&l->timers, t, link);
	return t;
}

struct timer *
loop_round_end(struct loop *l, loop_fn *fn, void *arg)
{
	struct timer *t = xcalloc(1, sizeof(*t));

	*t = (struct timer){.loop = l, .fn = fn, .arg = arg};
	TAILQ_INSERT_TAIL(&l->ends, t, link);
	return t;
}

void
loop_timer_del(struct timer *t)
{
	struct timers *list;

	if (!t)
		return;
	list = t->at ? &t->loop->timers : &t->loop->ends;
	TAILQ_REMOVE(list, t, link);
	free(t);
}

void
loop_post(struct loop *l, struct loop_call *c)
{
	uint64_t one = 1;

	pthread_mutex_lock(&l->lock);
	STAILQ_INSERT_TAIL(&l->posted, c, link);
	(void)!write(l->posted_fd, &one, sizeof(one)); /* counter full: a wakeup is pending */
	pthread_mutex_unlock(&l->lock);
}

/* Removes and returns the first posted call that is to fn. */
static struct loop_call *
take_posted(struct loop *l, loop_fn *fn)
{
	struct loop_call *c;

	pthread_mutex_lock(&l->lock);
	STAILQ_FOREACH (c, &l->posted, link)
		if (!fn || c->fn == fn)
			break;
	if (c)
		STAILQ_REMOVE(&l->posted, c, loop_call, link);
	pthread_mutex_unlock(&l->lock);
	return c;
}

void
loop_make_posted(struct loop *l, loop_fn *fn)
{
	struct loop_call *c;

	while ((c = take_posted(l, fn)))
		c->fn(c->arg);
}

static void
take_signals(void *arg, uint32_t events)
{
	struct loop *l = arg;
	struct signalfd_siginfo si;

	while (read(l->sigfd, &si, sizeof(si)) == sizeof(si)) {
		int n = (int)si.ssi_signo;

		if (l->on_signal[n])
			l->on_signal[n](l->signal_arg[n], n);
	}
}

void
loop_signal(struct loop *l, int signo, loop_signal_fn *fn, void *arg)
{
	bool first = l->sigfd < 0;

	l->on_signal[signo] = fn;
	l->signal_arg[signo] = arg;
	sigaddset(&l->signals, signo);
	sigprocmask(SIG_BLOCK, &l->signals, NULL);
	l->sigfd = signalfd(l->sigfd, &l->signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (l->sigfd < 0)
		die("signalfd: %s", strerror(errno));
	if (first)
		loop_fd(l, l->sigfd, EPOLLIN, take_signals, l);
}

void
loop_spin(struct loop *l, uint64_t ns)
{
	l->spin = ns;
}

/* Milliseconds until the next timer, at most max (-1: no limit). Rounded up, so that the loop does
 * not spin. */
static int
wait_ms(struct loop *l, int max)
{
	struct timer *t = TAILQ_FIRST(&l->timers);
	uint64_t now, ms;

	if (!t)
		return max;
	now = now_ns();
	ms = t->at <= now ? 0 : (t->at - now + 999999) / 1000000;
	ms = MIN(ms, (uint64_t)1 << 30);
	return max < 0 ? (int)ms : MIN(max, (int)ms);
}

static void
fire(struct timer *t)
{
	loop_fn *fn = t->fn;
	void *arg = t->arg;

	loop_timer_del(t);
	fn(arg);
}

static void
fire_timers(struct loop *l)
{
	struct timer *t;
	uint64_t now = now_ns();

	while ((t = TAILQ_FIRST(&l->timers)) && t->at <= now)
		fire(t);
}

void
loop_end_round(struct loop *l)
{
	struct timer *t;

	while ((t = TAILQ_FIRST(&l->ends)))
		fire(t);
}

static int
poll_events(struct loop *l, struct epoll_event *ev, int timeout)
{
	int n;

	if (l->spin && timeout != 0) {
		while (
		    (n = epoll_wait(l->epoll, ev, EVENTS, 0)) == 0 && now_ns() - l->last < l->spin)
			sched_yield();
		if (n != 0)
			return n;
	}
	return epoll_wait(l->epoll, ev, EVENTS, timeout);
}

void
loop_once(struct loop *l, int timeout_ms)
{
	struct epoll_event ev[EVENTS];
	int n;

	loop_end_round(l); /* left from before the first round */
	n = poll_events(l, ev, wait_ms(l, timeout_ms));
	if (n < 0 && errno != EINTR)
		die("epoll_wait: %s", strerror(errno));
	for (int i = 0; i < n; i++) {
		struct watch *w = ev[i].data.ptr;

		if (!w->dead)
			w->fn(w->arg, ev[i].events);
	}
	if (n > 0 && l->spin)
		l->last = now_ns();
	fire_timers(l);
	loop_end_round(l);
	bury(l);
}

void
loop_run(struct loop *l)
{
	l->stop = false;
	thread_short_slice();
	while (!l->stop)
		loop_once(l, -1);
}

void
loop_stop(struct loop *l)
{
	l->stop = true;
}
