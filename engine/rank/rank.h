/*
 * A rank's C half. One I/O thread, with all signals blocked, owns the control socket and never
 * takes the GIL, so that it answers whatever Python does.
 *
 *   rank.c        the I/O thread: one row per message; start, fork of user code, end
 *   rank_link.c   sending, from any thread
 *   rank_queue.c  what waits for a Python thread
 *   rank_request.c  what the ranks' threads were asked, and cancelling it
 *   rank_cell.c   which cell runs, and whether an interrupt is for it
 *   rank_pin.c    bytes of objects that are read from outside
 *   rank_device.c  copies from and to the memory of GPUs, by a thread of its own
 *   rank_nccl.c   the communicator of the engine's own, by a thread of its own
 *   rank_combine.c  what the daemon has it do between the main thread's messages
 *   rank_revoke.c  ending the collectives of torch's communicators while Python is stuck
 *   rank_stdin.c  what input() reads
 *   rank_collective.c  which collective the rank is in
 *   rank_unblock.c  ending the connections that a collective waits for
 *   rank_gloo.c   calls of libtorch that are replaced for it
 *   rank_stack.c  where Python is
 *   rank_sigint.c  whether the program handles SIGINT itself
 *   rank_store.c  its connections to the store
 *   rank_title.c  what ps shows
 */
#ifndef RANK_H
#define RANK_H
#include "conn.h"
#include "rank/nccl_combine.h"
#include <pthread.h>
#include <sys/queue.h>
#include <sys/types.h>

/* What a rank was given; -1: it has none. */
struct rank_fds {
	int ctl, display, ring, wakeup_fd;
	pid_t agent; /* who must be our parent in the end */
	const char *name;
};

/* Takes over: ring, I/O thread, fork handlers, name. Dies with a line on stderr if it can't. */
void rank_start(const struct rank_fds *g);
/* True in a process that user code forked from a rank: nothing here works there. */
bool rank_forked(void);
int rank_display(void); /* descriptor, -1 */
/* Ends this process and its process group at once. */
_Noreturn void rank_die(void);

/* rank_link.c */
/* fd is the control socket. blocking: no I/O thread sends what has to wait (zygotes). */
void rank_link_open(int fd, bool blocking);
/* kick: called (with the lock held) when something has to wait, for the I/O thread. */
void rank_link_kick(void (*kick)(void));
void rank_link_send(const struct msg *m); /* m->fd is not closed */
/* Sends what waits. True: something still does. */
bool rank_link_push(void);
/* Around a fork: nobody else is in here meanwhile. */
void rank_link_lock(void);
void rank_link_unlock(void);

/* rank_queue.c: an endless row of messages for one Python thread, or for several. */
struct item {
	struct msg m; /* its body follows */
	STAILQ_ENTRY(item) link;
};

struct rank_queue {
	pthread_mutex_t lock;
	STAILQ_HEAD(, item) items;
	_Atomic uint32_t changes; /* a futex */
	bool ended;
	void (*taken)(const struct msg *m); /* called with the lock held; NULL */
};

extern struct rank_queue rank_main, rank_service, rank_rescue;

void rank_queue_init(struct rank_queue *q);
void rank_queue_put(struct rank_queue *q, struct msg *m); /* takes m->fd */
/* Nothing more will come: what is there is still taken. */
void rank_queue_end(struct rank_queue *q);
/* 1: *it is the caller's (free); 0: the end; -EINTR: a signal came. Blocks: without the GIL. */
int rank_queue_take(struct rank_queue *q, struct item **it);
/* The same, but never blocks: 0 is also "nothing now". */
bool rank_queue_try(struct rank_queue *q, struct item **it);

/* Has the main thread a message, or is one of its requests not answered yet? */
bool rank_queue_main_busy(void);
void rank_queue_answered(uint32_t tag); /* whosever it was */

/* Around a fork: all queues. */
void rank_queue_lock_all(void);
void rank_queue_unlock_all(void);

/* rank_request.c */
void rank_request_init(void); /* before the first message */
/* This has come for the main thread, until rank_request_forget(). must: it is done though it is
 * cancelled, which ends only what it calls. */
void rank_request_main(uint32_t tag, bool must);
/* Is what the main thread is at cancelled? */
bool rank_request_main_cancelled(void);
/* Nobody waits for this answer any more. The request if it still waits for a service thread (the
 * caller's, who answers and frees it); else NULL, and *runs says whether a thread works on it. */
struct item *rank_request_cancel(uint32_t tag, bool *runs);
/* A thread (0: none, only look) begins to work on it. False: it is cancelled, and not done. */
bool rank_request_begin(uint32_t tag, unsigned long thread);
/* The thread has done its work. True: it is cancelled, and not over before rank_request_leave(). */
bool rank_request_end(uint32_t tag);
bool rank_request_leave(uint32_t tag); /* True: it is the main thread's */
void rank_request_forget(uint32_t tag);

struct rank_worker {
	unsigned long thread; /* 0: it has not begun, or not yet again */
	bool main;	      /* it is the main thread: told by rank_cell_signal_main() */
};

/* Who works on what was cancelled; how many. */
size_t rank_request_cancelled(struct rank_worker *workers, size_t max);

/* rank_cell.c */
void rank_cell_init(struct loop *l); /* the I/O thread's */
void rank_cell_enter(uint32_t cell);
bool rank_cell_leave(void); /* True: an interrupt for it came and was not raised */

/* For a SIGINT that is handled now: does it mean user code, and what is to be raised there? If
 * something is, the daemon is told (Nsignalled). */
enum rank_wanted { WANTED_NOTHING, WANTED_INTERRUPT, WANTED_PREEMPTED };
enum rank_wanted rank_cell_wanted(void);
/* Nintr, or Npreempt, in the I/O thread. Sends SIGINT if this cell runs. If rank_cell_wanted() is
 * not asked soon, the main thread gets the probe signal. */
void rank_cell_interrupt(uint32_t cell, bool preempt);
int rank_cell_probe_signal(void);
void rank_cell_signal_main(void); /* sends it to the main thread, if Python has a handler */
/* The handler of the probe signal: Python runs handlers, and the program has one of its own. */
void rank_cell_probed(void);
/* SIGINT to the main thread again if this cell still runs; false: it does not. */
bool rank_cell_repeat(uint32_t cell);
/* Some time after that: the main thread gets the probe signal, unless SIGINT is blocked. False: the
 * daemon has been told who took it. */
bool rank_cell_probe(void);
void rank_cell_lock(void);
void rank_cell_unlock(void);

/* rank_pin.c */
/* Keeps these bytes readable; obj is given back by rank_pin_drop. device: whose memory they are,
 * PIN_HOST: this process's. */
enum { PIN_HOST = -1 };

uint32_t rank_pin_add(void *obj, uint64_t addr, uint64_t size, int device);
/* NULL: no such pin, or its bytes are being copied: Nfree is queued again when that is done. */
void *rank_pin_drop(uint32_t handle);
/* Copies count bytes at offset to p. 0 or -errno, with the text. */
int rank_pin_read(uint32_t handle, uint64_t offset, void *p, size_t count, struct err *e);
/* For a copy that takes its time: where these bytes of a GPU are. It is kept until
 * rank_pin_release. */
int rank_pin_hold(
    uint32_t handle, uint64_t offset, size_t count, uint64_t *addr, int *device, struct err *e);
void rank_pin_release(uint32_t handle);
void rank_pin_lock(void);
void rank_pin_unlock(void);

/* rank_device.c: copies between the memory of GPUs and this process, by a thread of its own that
 * never takes the GIL. They are made on a stream of their own per device, behind what the last cell
 * queued (what a running cell queues is not waited for), through memory that is registered with
 * CUDA and shared with the daemon. */
struct CUstream_st;

/* Starts the thread, once; a failure is remembered. folders: as cuda_open() takes them. */
int rank_device_open(const char *folders, struct err *e);
bool rank_device_is_open(void);
/* The memfd of GET_DEVICE, which stays ours. */
int rank_device_memfd(void);
/* What is in this stream of the device (NULL: the default one; device -1: the one that the caller
 * uses) comes before all copies from now on. This and the next two fail with EAGAIN where the
 * driver does not answer for a while, this one also where a capture is under way. */
int rank_device_mark(int device, struct CUstream_st *stream, struct err *e);
/* The device of this memory. near: the device that is asked first (no context is made on others).
 */
int rank_device_owner(uint64_t address, int near, int *device, struct err *e);
/* Bytes of a device, and those that are free on it. */
int rank_device_memory(int device, uint64_t *free, uint64_t *total, struct err *e);
/* Copies n bytes from a device. Gives how many were copied, which may be fewer than n, and none,
 * when it took long: so a caller can look whether it is still wanted. With into, the handle of a
 * pin of what they belong to, to the device: all, or -errno; -EINTR if the push is cancelled, and
 * the pin is held until nothing more is written there. */
ssize_t rank_device_copy(
    int device, uint64_t address, char *host, size_t n, uint32_t into, struct err *e);
/* Tcopy, in the I/O thread: Rcopy or Rerror follows. -errno: nothing does. */
int rank_device_answer(const struct msg *m, struct err *e);

/* Around a fork. */
void rank_device_lock(void);
void rank_device_unlock(void);

/* rank_nccl.c: a communicator of the engine's own (nccl_link.h), by a thread of its own that never
 * takes the GIL and whose device is not the program's. */
struct measure;

/* What the thread is to do; the fields behind its kind are in, but those of `measure`. */
struct nccl_job {
	enum { NCCL_ID, NCCL_JOIN, NCCL_MEASURE, NCCL_COMBINE, NCCL_LEAVE, NCCL_ABORT } kind;

	/* NCCL_JOIN, NCCL_COMBINE; the library is loaded. Where there is a communicator it is
	 * aborted first. NCCL_ID makes the id. */
	char id[NCCL_ID_SIZE];
	int rank, ranks, device;
	struct measure *measure; /* NCCL_MEASURE: of who waits, filled at the end */
	/* NCCL_COMBINE joins, behind all that copies from this device are behind, and leaves. */
	struct combine combine;
	/* Nobody waits: called in the thread, when another job can be begun. NULL: somebody does.
	 */
	void (*ended)(const struct nccl_job *job, const struct err *e);
	uint32_t tag, handle; /* what follows is of who begins it */
};

/* Begins it. -EBUSY: the thread has not come back from what was cancelled. */
int rank_nccl_begin(const struct nccl_job *job, struct err *e);
/* Waits for its end, at most so long. 1: it has ended well; 0: not yet; or why it failed. After a
 * failure there is no communicator. */
int rank_nccl_wait(int ms, struct err *e);
/* It ends soon, with EINTR: the communicator is aborted. Returns when that is so, or after a
 * second, when nobody waits for it any more. */
void rank_nccl_cancel(void);
/* Whatever it is at ends soon, with EINTR; its result is awaited as ever. */
void rank_nccl_abort(void);
/* What nobody waits for ends soon, with EINTR: if it has this tag; 0: whichever it is. */
void rank_nccl_stop(uint32_t tag);
/* Waits until it has ended, at most a second: no communicator of ours is beside the program's. */
void rank_nccl_settle(void);
void rank_nccl_lock(void);
void rank_nccl_unlock(void);

/* rank_combine.c: Tncclid and Tcombine, in the I/O thread: the answer follows, but after -errno.
 * The latter is done while the main thread has nothing to do: rank_nccl_stop() ends it. */
int rank_combine_id(const struct msg *m, struct err *e);
int rank_combine_begin(struct msg *m, struct err *e); /* takes m->fd */

/* rank_revoke.c */
enum { REVOCABLE_MAX = 64 };

struct revocable {
	struct ncclComm *comm;
	int device;
};

void rank_revoke_init(struct loop *l); /* the I/O thread's */
/* These of torch's are alive until one is claimed; nccl_can_revoke(). claims: what the next one
 * gave before they were looked up, or else they may have been freed since, and are not taken. */
void rank_revoke_set(const struct revocable *rows, int n, unsigned claims);
unsigned rank_revoke_claims(void);
/* They are revoked in half a second, in a thread of its own, unless they are claimed before. In the
 * I/O thread. */
void rank_revoke_later(void);
/* Whoever frees one of them does it between these two: they are not touched any more. False: they
 * still are, for some seconds; nothing may be freed, or released. Blocks: without the GIL. */
bool rank_revoke_claim(void);
void rank_revoke_release(void);
void rank_revoke_leave(void); /* a forked child has neither the thread nor the communicators */
void rank_revoke_lock(void);
void rank_revoke_unlock(void);

/* rank_collective.c */
extern _Atomic(const char *) rank_collective; /* that user code is in; NULL */
void rank_collective_enter(const char *name); /* lives for ever */
void rank_collective_leave(void);
/* One of those that all ranks of the default group must do alike is done. */
void rank_collective_done(void);
void rank_collective_reset(void);     /* a cell begins */
uint32_t rank_collective_count(void); /* since then */
uint64_t rank_collective_us(void);    /* how long it is in this one; 0: in none */

/* rank_unblock.c */
/* Ends the connections of the process group: a rank that waits in it gets an error. */
void rank_unblock_sockets(bool always);
/* The port of the store, from the text of an environment (K=V, NUL-ended). */
void rank_unblock_env(struct slice env);
/* torch has made this socket (or failed: -1). Keeps errno. */
void rank_unblock_remember(int fd);
void rank_unblock_remembers(void); /* all that it makes from now on */
void rank_unblock_lock(void);
void rank_unblock_unlock(void);

/* rank_gloo.c */
/* Makes gloo's writes to a peer that is gone succeed, and has torch's sockets remembered. False:
 * this torch does not make these calls so; neither holds then, or only one. */
bool rank_gloo_mend(void);

/* rank_sigint.c */
void rank_sigint_set(bool is_own); /* of SIGINT */
void rank_sigint_begin(void);	   /* a cell begins */
void rank_sigint_interrupted(void);
/* Does the program take SIGINT itself, and has been interrupted no more than once? */
bool rank_sigint_ends_itself(void);

/* rank_store.c */
void rank_store_open(int fd);  /* fd is a connection to the store now */
void rank_store_close(int fd); /* before it is closed */
void rank_store_shut(void);    /* ends waits in the store */
void rank_store_lock(void);
void rank_store_unlock(void);

/* rank_title.c */
/* What ps shows as the command of this process, as far as there is room. */
void rank_title(const char *text);

/* rank_stack.c */
int rank_stack_signal(void);
int rank_stack_fd(void);
void rank_stack_init(struct loop *l); /* on the I/O thread's loop */
void rank_stack_open(void);	      /* before Python begins */
void rank_stack_begin(void);	      /* when faulthandler has registered its handler */
void rank_stack_ask(uint32_t tag);

#endif
