/*
 * A rank's C half. One I/O thread, with all signals blocked, owns the control socket and never
 * takes the GIL, so that it responds whatever Python is doing.
 *
 *   rank.c        the I/O thread: one row per message; start, forks by user code, end
 *   rank_link.c   sending, from any thread
 *   rank_queue.c  messages that wait for a Python thread
 *   rank_request.c  requests to the Python threads, and their cancellation
 *   rank_cell.c   which cell runs, and whether an interrupt is for it
 *   rank_pin.c    bytes of objects that are read from outside
 *   rank_device.c  copies to and from GPU memory, on a dedicated thread
 *   rank_nccl.c   the engine's own communicator, on a dedicated thread
 *   rank_combine.c  the daemon's requests to that communicator, while the main thread is idle
 *   rank_revoke.c  ending the collectives of torch's communicators while Python is stuck
 *   rank_stdin.c  standard input
 *   rank_reader.c  who waits for it
 *   rank_collective.c  which collective the rank is in
 *   rank_unblock.c  shutting down the connections that a collective waits for
 *   rank_gloo.c   replacements for calls of libtorch, for the same purpose
 *   rank_flight.c  torch's flight recorders
 *   rank_gil.c    holding the GIL, so that no Python code runs
 *   rank_stack.c  the Python stacks of the rank
 *   rank_sigint.c  whether the program handles SIGINT itself
 *   rank_handlers.c  the program's handlers of other signals
 *   rank_store.c  the rank's connections to the store
 *   rank_accept.c  whose connections torch's sockets take
 *   rank_look.c   where the main thread mostly is
 *   rank_title.c  the process title that ps shows
 */
#ifndef ENGINE_RANK_H
#define ENGINE_RANK_H
#include "conn.h"
#include "rank/nccl_combine.h"
#include <pthread.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/types.h>

/* What a rank is started with; -1: no such descriptor. */
struct rank_fds {
	int ctl, display, ring, wakeup_fd;
	pid_t agent; /* becomes the rank's parent */
	const char *name;
};

/* Sets up the ring, the I/O thread, the fork handlers and the name. Exits with a line on stderr if
 * that fails. */
void rank_start(const struct rank_fds *g);
/* True in a process that user code forked from a rank, where nothing here works. */
bool rank_forked(void);
int rank_display(void); /* a descriptor; -1 if there is none */

/* rank_link.c */
/* fd is the control socket. blocking: sends block, because there is no I/O thread to send queued
 * messages (zygotes). */
void rank_link_open(int fd, bool blocking);
/* kick is called, with the lock held, when a message has been queued; it wakes the I/O thread. */
void rank_link_kick(void (*kick)(void));
void rank_link_send(const struct msg *m); /* m->fd is not closed */
/* Sends queued messages. Returns true if some are still queued. */
bool rank_link_push(void);
/* Around a fork, so that no other thread is in here. */
void rank_link_lock(void);
void rank_link_unlock(void);

/* rank_queue.c: unbounded queues of messages for one or more Python threads. */
struct item {
	struct msg m; /* its body follows */
	STAILQ_ENTRY(item) link;
};

struct rank_queue {
	pthread_mutex_t lock;
	STAILQ_HEAD(, item) items;
	_Atomic uint32_t changes; /* a futex */
	bool ended;
	void (*taken)(const struct msg *m); /* called with the lock held; may be NULL */
};

extern struct rank_queue rank_main, rank_service, rank_rescue;

void rank_queue_init(struct rank_queue *q);
void rank_queue_put(struct rank_queue *q, struct msg *m); /* takes ownership of m->fd */
/* Marks the end of the queue; items already queued can still be taken. */
void rank_queue_end(struct rank_queue *q);
/* Returns 1 with *it, which the caller frees; 0 at the end; -EINTR if a signal arrived. Blocks:
 * call it without the GIL. */
int rank_queue_take(struct rank_queue *q, struct item **it);
/* The same, but does not block: false also if the queue is empty now. */
bool rank_queue_try(struct rank_queue *q, struct item **it);

/* Does the main thread have a queued message or an unanswered request? */
bool rank_queue_main_busy(void);
void rank_queue_answered(uint64_t tag); /* any thread's request */
uint64_t rank_queue_unanswered(void);	/* the main thread's request; 0: none */

/* Around a fork: all queues. */
void rank_queue_lock_all(void);
void rank_queue_unlock_all(void);

/* rank_request.c */
void rank_request_init(void); /* before the first message */
/* Registers a request to the main thread, until rank_request_forget(). must: it is carried out even
 * if it is cancelled; a cancellation ends only what it calls. */
void rank_request_main(uint64_t tag, bool must);
/* Has the request that the main thread is working on been cancelled? */
bool rank_request_main_cancelled(void);
/* Cancels a request. If it is still queued for a service thread, returns it: the caller replies to
 * it and frees it. Otherwise returns NULL. *runs: a thread is working on it, or it is the main
 * thread's. */
struct item *rank_request_cancel(uint64_t tag, bool *runs);
/* A thread begins to work on it (0: only check). Returns false if it is cancelled and must not be
 * carried out. */
bool rank_request_begin(uint64_t tag, unsigned long thread);
/* The thread has done its work. Returns true if the request is cancelled; it then stays until
 * rank_request_leave(). */
bool rank_request_end(uint64_t tag);
bool rank_request_leave(uint64_t tag); /* true: the main thread's */
void rank_request_forget(uint64_t tag);

struct rank_worker {
	unsigned long thread; /* 0: not working on it now */
	bool main;	      /* the main thread: interrupt it with rank_cell_signal_main() */
};

/* Lists the threads of cancelled requests. Returns their number. */
size_t rank_request_cancelled(struct rank_worker *workers, size_t max);

/* rank_cell.c */
void rank_cell_init(struct loop *l); /* the I/O thread's loop */
void rank_cell_enter(uint32_t cell);
int rank_cell_leave(
    void); /* 0, or 1 + the cause of an interrupt that was sent to it but not raised */

/* Called while SIGINT is handled: is it for user code, and what is to be raised there? Returns 0:
 * nothing; else 1 + enum interrupt_why. Reports an interrupt that was pending for the cell to the
 * daemon (Nsignalled). */
int rank_cell_wanted(void);
/* Handles Nintr, on the I/O thread. Sends SIGINT if this cell is running. If
 * rank_cell_wanted() is not called soon, sends the probe signal to the main thread. */
void rank_cell_interrupt(uint32_t cell, enum interrupt_why why);
int rank_cell_probe_signal(void);
void rank_cell_signal_main(void); /* sends it to the main thread, if Python has a handler */
/* The handler of the probe signal: Python runs handlers, so SIGINT went to the program's own. If
 * the engine's was set when SIGINT was sent, it came while C code ignored it, as system(3) does: it
 * is sent again, once. */
void rank_cell_probed(void);
/* Sends SIGINT to the main thread again. Returns false if this cell is no longer running. */
bool rank_cell_repeat(uint32_t cell);
/* Call it some time after that: sends the probe signal to the main thread, unless SIGINT is
 * blocked. Returns false if the daemon already knows what handled the SIGINT. */
bool rank_cell_probe(void);
void rank_cell_lock(void);
void rank_cell_unlock(void);

/* rank_pin.c */
/* Keeps these bytes readable and returns a handle. Takes ownership of obj until rank_pin_drop
 * returns it. device: the GPU whose memory they are, or PIN_HOST for this process's memory. */
enum { PIN_HOST = -1 };

uint32_t rank_pin_add(void *obj, uint64_t addr, uint64_t size, int device);
/* Returns NULL if there is no such pin, or if its bytes are being copied: Nfree is then queued
 * again after the copy. */
void *rank_pin_drop(uint32_t handle);
/* Copies count bytes at offset to p. Returns 0, or -errno with *e set. */
int rank_pin_read(uint32_t handle, uint64_t offset, void *p, size_t count, struct err *e);
/* For an asynchronous copy: sets *addr and *device to the place of these bytes on a GPU. The pin is
 * held until rank_pin_release. */
int rank_pin_hold(
    uint32_t handle, uint64_t offset, size_t count, uint64_t *addr, int *device, struct err *e);
void rank_pin_release(uint32_t handle);
void rank_pin_lock(void);
void rank_pin_unlock(void);

/* rank_device.c: copies between GPU memory and this process, on a dedicated thread that never takes
 * the GIL. They use a separate stream per device and are ordered after the work that the last cell
 * queued (they do not wait for what a running cell queues). They go through memory that is
 * registered with CUDA and shared with the daemon. */
struct CUstream_st;

/* Starts the thread once; a failure is remembered. folders: as for cuda_open(). */
int rank_device_open(const char *folders, struct err *e);
bool rank_device_is_open(void);
/* The memfd for GET_DEVICE; borrowed. */
int rank_device_memfd(void);
/* Orders all further copies after the work now queued on this stream of the device (NULL: the
 * default stream; device -1: the caller's current device). This and the next two fail with EAGAIN
 * if the driver does not respond for a while, and this one also if a capture is in progress. */
int rank_device_mark(int device, struct CUstream_st *stream, struct err *e);
/* Sets *device to the owner of this memory. The query runs on device near, where the rank has a
 * context; none is created on another. */
int rank_device_owner(uint64_t address, int near, int *device, struct err *e);
/* Free and total memory of a device, in bytes. */
int rank_device_memory(int device, uint64_t *free, uint64_t *total, struct err *e);
/* Copies n bytes from a device. Returns the number of bytes copied, which is less than n, or even
 * 0, if the copy takes long, so that the caller can check whether it is still wanted. pin is the
 * handle of the device's memory. It is held until the device is done with it, which may be after
 * the return. What is under way then is collected by the next call, which continues at the byte
 * where this one ended; 0: it is not.
 *
 * With into, copies to the device instead: all of it, or returns -errno (-EINTR if the push is
 * cancelled). */
ssize_t rank_device_copy(
    int device, uint64_t address, char *host, size_t n, uint32_t pin, bool into, struct err *e);
/* Gives up reads of this pin that will not be continued. */
void rank_device_forget(uint32_t pin);
/* Handles Tcopy, on the I/O thread. Sends Rcopy or Rerror later, or returns -errno and sends
 * nothing. */
int rank_device_answer(const struct msg *m, struct err *e);

/* Around a fork. */
void rank_device_lock(void);
void rank_device_unlock(void);

/* rank_nccl.c: the engine's own communicator (nccl_link.h), on a dedicated thread that never takes
 * the GIL and whose current device is independent of the program's. */
struct measure;

/* A job for the thread. The fields after kind are inputs, except id for NCCL_ID and the results in
 * `measure`. */
struct nccl_job {
	enum { NCCL_ID, NCCL_JOIN, NCCL_MEASURE, NCCL_COMBINE, NCCL_LEAVE, NCCL_ABORT } kind;

	/* For NCCL_JOIN and NCCL_COMBINE, which need the library to be loaded and abort an existing
	 * communicator first. NCCL_ID generates the id. */
	char id[NCCL_ID_SIZE];
	int rank, ranks, device;
	struct measure *measure; /* NCCL_MEASURE: the waiter's, filled in at the end */
	/* NCCL_COMBINE joins, combines and leaves, after the work that copies from this device are
	 * ordered after. */
	struct combine combine;
	/* For a job without a waiter: called on the thread once another job can begin. NULL: a
	 * caller waits for the job. */
	void (*ended)(const struct nccl_job *job, const struct err *e);
	uint64_t tag; /* this and the next are for the use of the job's owner */
	uint32_t handle;
};

/* Begins the job. -EOPNOTSUPP: NCCL is not loaded; -EBUSY: the thread is busy with a job without a
 * waiter, or still stuck in a cancelled one. */
int rank_nccl_begin(const struct nccl_job *job, struct err *e);
/* Waits up to ms milliseconds for the job. Returns 1 if it ended well, 0 if it has not ended
 * yet, or -errno if it has failed. After a failure there is no communicator. */
int rank_nccl_wait(int ms, struct err *e);
/* Cancels the job, which soon ends with EINTR: the communicator is aborted. Returns when the job
 * has ended, or after one second; it is then abandoned. */
void rank_nccl_cancel(void);
/* Makes the current job end soon, with EINTR; its result is delivered as usual. */
void rank_nccl_abort(void);
/* Makes a job without a waiter end soon, with EINTR, if it has this tag (0: any tag). */
void rank_nccl_stop(uint64_t tag);
/* Waits, for at most a second, until such a job has ended, so that the engine has no communicator
 * alongside the program's. */
void rank_nccl_settle(void);
void rank_nccl_lock(void);
void rank_nccl_unlock(void);

/* rank_combine.c: Tncclid and Tcombine, on the I/O thread. The reply is sent later, unless these
 * return -errno. Tcombine is served while the main thread is idle; rank_nccl_stop() ends it. */
int rank_combine_id(const struct msg *m, struct err *e);
int rank_combine_begin(struct msg *m, struct err *e); /* may take m->fd */

/* rank_revoke.c */
enum { REVOCABLE_MAX = 64 };

struct revocable {
	struct ncclComm *comm;
	int device;
};

void rank_revoke_init(struct loop *l); /* the I/O thread's loop */
/* Sets the communicators of torch to be revoked, if nccl_can_revoke() allows it; they stay alive
 * until the next claim. claims: the result of rank_revoke_claims() from before they were looked up.
 * If it has changed since, they may have been freed, and the rows are ignored. */
void rank_revoke_set(const struct revocable *rows, int n, unsigned claims);
unsigned rank_revoke_claims(void);
/* Revokes them after half a second, on a separate thread, unless they are claimed first. Must be
 * called from the I/O thread. */
void rank_revoke_later(void);
/* Code that frees any of them must do so between these two calls, while they are not touched here.
 * rank_revoke_claim() returns false if they are still being revoked after some seconds: the caller
 * must then neither free nor release anything. Blocks: call it without the GIL. */
bool rank_revoke_claim(void);
void rank_revoke_release(void);
void rank_revoke_leave(void); /* a forked child has neither the thread nor the communicators */
void rank_revoke_lock(void);
void rank_revoke_unlock(void);

/* rank_collective.c */
extern _Atomic(const char *) rank_collective; /* the one that user code is in, or NULL */
extern _Atomic bool rank_collective_aside;    /* in another thread than the main one */

/* One call of it, on the stack of who makes it. */
struct collective {
	const char *name;    /* never freed */
	uint64_t since, cpu; /* cpu: of the thread's time on a CPU */
	bool is_main;	     /* of the main thread */
	bool computes;	     /* it may also compute within it */
	struct collective *around, *next;
};

void rank_collective_enter(struct collective *c, const char *name);
void rank_collective_leave(struct collective *c);
/* Counts a completed collective that all ranks of the default group must call alike. */
void rank_collective_done(void);
void rank_collective_reset(void);     /* for another cell; the main thread is idle */
uint32_t rank_collective_count(void); /* since then */
uint64_t rank_collective_us(void);    /* time in the current one; 0: in none */
/* Counts a tick of the main thread; those of other threads, and of a collective or a forward
 * within a collective or a backward, are none. Returns true if the ticks are armed: the thread must
 * then ask whether it may go on. */
bool rank_collective_tick(enum clock clock);
/* Returns the time between the last two ticks in ns; 0: there were not two. Called with the GIL. */
uint64_t rank_collective_arm(bool on);
bool rank_collective_armed(void);
uint32_t rank_collective_ticks(enum clock clock); /* since rank_collective_reset() */
/* Appends for each clock that has ticked often enough a line `profile CLOCK STEPS STEP WAITED IN`:
 * its number; how many steps these medians are of; what one took and how much of that was waited,
 * in ns; in which operation the most, "-" for none. */
void rank_collective_profile(struct buf *out);

/* rank_unblock.c */
void rank_unblock_init(struct loop *l); /* the I/O thread's loop */
/* Shuts down the connections of the process group, so that a rank waiting in it gets an error. */
void rank_unblock_sockets(bool always);
/* The rank's program has ended, or its groups are gone: shuts down torch's connections, if it is
 * known which those are. */
void rank_unblock_disconnect(void);
/* What is to be known of the group: its world size, and an environment block (K=V, each terminated
 * by NUL) with the port of the store. */
void rank_unblock_group(uint32_t size, struct slice env);
/* Records a socket that torch created (-1: it failed to). Preserves errno. */
void rank_unblock_remember(int fd);
void rank_unblock_remembers(void); /* all of torch's sockets are recorded from now on */
void rank_unblock_lock(void);
void rank_unblock_unlock(void);

/* rank_gloo.c */
/* What is mended in libtorch: writes to a dead peer succeed; listeners refuse strangers. A torch
 * that makes these calls in another way lacks it. */
enum { GLOO_SENDS = 1, GLOO_ACCEPTS = 2 };

/* Replaces the calls, and has torch's sockets recorded. Returns the bits of what is in effect. */
unsigned rank_gloo_mend(void);

/* rank_accept.c */
/* accept(2) and accept4(2) of torch, which takes anyone who connects for a rank: close the
 * connections of strangers, and tell the daemon of the first one. Thread-safe. */
int rank_accept(int listener, struct sockaddr *address, socklen_t *len);
int rank_accept4(int listener, struct sockaddr *address, socklen_t *len, int flags);

/* Takes connections of other machines from these addresses only, in the format of peer_is_among().
 * Before the first call there are none. */
void rank_accept_from(struct slice addresses);

/* rank_stdin.c: a pipe, whose read end is descriptor 0. The I/O thread writes into it what comes
 * for the rank; sys.stdin, the user's own read(2) and poll(2), and children take from it. So
 * descriptor 0 is readable if and only if input, or its end, waits. */
/* Makes the pipe. l: the I/O thread's loop. Dies if there is no descriptor for it. */
void rank_stdin_open(struct loop *l);
/* For the I/O thread: adds input. Empty: one end of input, which stays until rank_stdin_take() has
 * returned it, or a cell ends with nothing before it. */
void rank_stdin_put(struct slice data);
void rank_stdin_end(void); /* end of input from now on */
/* Moves up to max bytes to *to; line: none behind the first newline. Returns 1, 0 at the end of
 * input, -EINTR if a signal arrived, or another -errno. Blocks: call it without the GIL. */
int rank_stdin_take(struct buf *to, size_t max, bool line);
/* For the I/O thread, when a cell begins: until it ends, tells the daemon and the front ends if
 * somebody but rank_stdin_take() waits for input. */
void rank_stdin_watch(void);
/* Whoever was seen to wait for input waits no longer, or is looked for again. */
void rank_stdin_settle(void);
bool rank_stdin_ready(void);	      /* rank_stdin_take() would not block */
void rank_stdin_tell(uint32_t waits); /* sends Ninput */
/* A program begins: end of input is final for it, and there already if ended. */
void rank_stdin_begin_program(bool ended);
/* The program has ended: what it has not read is discarded, and input can be waited for again. */
void rank_stdin_end_program(void);
void rank_stdin_cell_ended(void);
/* Nobody will answer the running cell any more: after what has come, it is at the end of input. */
void rank_stdin_hang_up(bool on);
void rank_stdin_leave(void); /* in a forked child, which has the read end only */
void rank_stdin_lock(void);
void rank_stdin_unlock(void);

/* rank_reader.c */
/* Does a thread of this process, or of one that descends from it, wait in read(2) for the file of
 * this name (as readlink(2) gives it for /proc/PID/fd/N)? False also for those who may not be
 * looked at: another user's, or on a kernel without /proc/PID/syscall. */
bool rank_reader_waits(const char *name);

/* rank_sigint.c */
/* own: the program handles SIGINT itself. ours: the engine's handler is the one that is set. */
void rank_sigint_set(bool own, bool ours);
bool rank_sigint_is_ours(void);
void rank_sigint_begin(void); /* when a cell begins */
void rank_sigint_interrupted(void);
/* Does the program handle SIGINT itself, and has it been interrupted no more than once? */
bool rank_sigint_ends_itself(void);

/* rank_handlers.c: in the main thread. */
/* own: a handler of the program's in Python is set for this signal, which is not SIGINT. */
void rank_handlers_set(int signo, bool own);
/* From now on, until they are released, none of them runs. Signals that Python has noticed before
 * may still be handled. */
void rank_handlers_hold(void);
bool rank_handlers_has(int signo); /* a handler, or it is ignored: it does not end the process */
void rank_handlers_release(void);  /* also if none is held; sends again what came meanwhile */
void rank_handlers_in_child(void); /* a child that any thread has forked: none is held any more */

/* rank_store.c: not called in a forked child, so that fork(2) need not take its lock. */
void rank_store_open(int fd);  /* fd is now a connection to the store */
void rank_store_close(int fd); /* call it before closing fd */
void rank_store_shut(void);    /* ends waits for the store */

/* rank_title.c */
/* Sets the command that ps shows for this process, truncated to the room available. */
void rank_title(const char *text);

/* rank_gil.c: on the I/O thread, but for rank_gil_begin() and rank_gil_take(). */
enum gil_job { GIL_STACK = 1, GIL_LOOK = 2 }; /* what rank_stack.c, rank_look.c wants */

void rank_gil_init(struct loop *l);
/* Python runs: run(), called by a thread of its own, waits for the GIL and does the jobs. */
void rank_gil_begin(void (*run)(void));
/* Has a job done, and then rank_stack_found() called. Returns false, and does nothing, while Python
 * does not run. */
bool rank_gil_want(enum gil_job job);
/* Called by run() with the GIL: the jobs, as bits, that are still wanted. */
unsigned rank_gil_take(void);
void rank_gil_done(void); /* with the GIL: a job has been done by another thread */
/* It is no longer wanted. Returns false if it is being done. */
bool rank_gil_forget(enum gil_job job);

/* rank_flight.c: what torch's flight recorders know of the groups. */
enum flight_recorder { FLIGHT_GLOO, FLIGHT_NCCL, FLIGHT_RECORDERS };

/* Looks for what asks them without the GIL, in the libraries of torch that are loaded. Returns a
 * bit for each that was found. */
unsigned rank_flight_find(void);
/* The groups that they are asked for: see flight.h. Any thread calls it. */
void rank_flight_groups(struct slice lines);
/* Makes this thread, none of the program's, one that may ask the recorder of NCCL, which looks at
 * CUDA events. Returns false if that fails: it would disturb a capture, or use a GPU that the
 * program does not use. */
bool rank_flight_ready(void);
void rank_flight_lock(void); /* before fork(2): waits a little for an answer that is under way */
void rank_flight_unlock(void);
/* What Python has got of a recorder that was not found, as JSON. */
void rank_flight_text(enum flight_recorder which, struct slice json);
/* The rest on the I/O thread. then() is called when the recorders have answered. */
void rank_flight_init(struct loop *l, void (*then)(void));
/* To be called before anything is done that wakes the main thread, or has it wait. */
void rank_flight_ask(void);
bool rank_flight_waits(void); /* then() is still to be called */
char rank_flight_state(void); /* the main thread's now, as in proc(5) */
/* Appends a line `main STATE`, the main thread's state as in proc(5) at the last rank_flight_ask(),
 * and what the recorders have said since, as flight.h has it. */
void rank_flight_print(struct buf *out);

/* rank_look.c: where the main thread is, at several looks. On the I/O thread, but for those that
 * are called with the GIL. */
void rank_look_init(struct loop *l);
int rank_look_signal(void);
/* Has Python run the handler of that signal in the main thread, if that is on a CPU, or waits for
 * one. state: its state, as in proc(5). */
void rank_look_call(char state);
bool rank_look_is_wanted(void);		 /* with the GIL */
void rank_look_seen(struct slice stack); /* with the GIL: of the main thread, if it is wanted */
/* Looks a number of times in about this long, then sends Rlook; or what was found in the last few
 * seconds. */
void rank_look_ask(uint64_t tag, uint32_t span_ms);
void rank_look_forget(void); /* what was found is of another cell than the one that begins */

/* rank_stack.c */
int rank_stack_signal(void);
int rank_stack_fd(void);
void rank_stack_init(struct loop *l); /* on the I/O thread's loop */
void rank_stack_open(void);	      /* before Python starts */
/* After faulthandler has registered its handler; for run see rank_gil_begin(). has_gil: does this
 * thread hold it? Called by a signal handler; NULL: that cannot be known. */
void rank_stack_begin(void (*run)(void), int (*has_gil)(void));
uint64_t rank_stack_request(void); /* the number of the one that is being answered */
/* With the GIL: the stacks of all threads, and what Python says of the rank's collectives, found
 * for this request. */
void rank_stack_describe(uint64_t request, struct slice text, struct slice described);
void rank_stack_found(void); /* on the I/O thread: that may have been done */
/* The main thread runs the handler of rank_look_signal(). Returns true if it is to find the stacks,
 * with no more than them. */
bool rank_stack_passed(void);
void rank_stack_ask(uint64_t tag);

#endif
