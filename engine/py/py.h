/* clang-format off */
/*
 * The module `_ddip`: what the engine's C code provides to its Python code, in zygotes and ranks.
 *
 * One C I/O thread owns the control socket and never takes the GIL. Messages for Python are queued:
 * those that the main thread must handle in order (next), and those that are answered even while a
 * cell runs, for the service threads (serve). A message is a tuple (type, tag, fd, field…): type is
 * its name in the protocol ("Trun"), fd an int or -1 (the receiver closes it); s fields are str,
 * d fields bytes, numbers int.
 *
 *   next() -> tuple            blocks without the GIL; None: exit now (Nquit). It raises what a
 *                              handler of the program's raises meanwhile. A request that was not
 *                              answered before is answered now, with EIO
 *   serve() -> tuple           the same for a service thread, which blocks all signals from then on
 *   rescue() -> tuple          the same for the thread that ends NCCL's collectives (Nabort): the
 *                              service thread may be waiting for the GPU that they block
 *   cancellable(tag, thread, exception, wait, function, *args)  calls function(*args) for a request
 *                              that next() or serve() returned to this thread (its ident). If it is
 *                              cancelled, raises the exception; none that cancel() has sent is
 *                              raised after that. wait() must loop forever. What the main thread
 *                              has to do in any case is called even if it is cancelled
 *   cancel(exception, spared) -> list  raises it in all threads whose requests are cancelled, but
 *                              not in the spared ones (a set). Returns the idents of all of them;
 *                              0: the main thread, which is about to begin
 *   cancelled(tag) -> bool     is this request cancelled?
 *   forget(tag)                the main thread has answered it
 *   is_cancelled() -> bool     is what the main thread now runs in cancellable() cancelled? If so,
 *                              the handler of probe_signal(), which cancel() sends there, must
 *                              raise
 *   reply(type, tag, *fields)  sends an R without its mark fields (out err disp records), which the
 *                              agent fills in
 *   reply_fd(type, tag, fd, *fields)  the same with a descriptor (not closed)
 *   error(tag, errno, text, traceback="")  sends Rerror
 *   replies() -> int           how many of these three this thread has sent
 *   notify(type, *fields)      sends an N
 *   enter(cell, users), leave()  code of this cell begins, ends: an interrupt reaches only this
 *                              code. If it is the user's, the program's signal handlers run, as
 *                              they do in next(). leave() returns 1 + enum interrupt_why if an interrupt came
 *                              and was not raised, else 0. If a handler that runs in leave()
 *                              raises, so does leave(): then it is to be called again
 *   interrupt_wanted() -> int  for the SIGINT handler: 0, nothing is to be raised; else 1 + enum
 *                              interrupt_why. Nonzero only while user code runs; the daemon
 *                              is then notified that it is raised (Nsignalled), or held for it
 *   probe_signal() -> int      the real-time signal to register probed for (with signal.signal)
 *   probed(signum, frame)      notifies the daemon that Python runs signal handlers, if the handler
 *                              of SIGINT did not call interrupt_wanted: it is the program's own.
 *                              Sends SIGINT again if it was ignored when it came
 *   own_handler(own, ours)     own: the program handles SIGINT itself; ours: the engine's handler
 *                              does. Called after each signal.signal()
 *   handles(signum, bool)      the program has set a handler of its own for this signal, not SIGINT;
 *                              or has no longer one. Called after each signal.signal()
 *   store_socket(fd, bool)     fd has become, or ceases to be, a connection to the store
 *   repeat(cell) -> bool       sends the SIGINT of an interrupt again; False: that cell does not
 *                              run
 *   probe() -> bool            call some time after repeat, until it returns False. True: no
 *                              handler has taken the signal yet
 *   pin(obj, addr, size) -> handle  keeps obj alive until Nfree; its bytes are served by Tread and
 *                              may be read from outside
 *   device_open(folders) -> str  loads CUDA, if it is not loaded yet, and returns its version;
 *                              folders: where to look, ended by ":" each. This and all functions
 *                              below raise OSError on failure
 *   nccl_open(folders) -> str  the same for NCCL
 *   nccl_id() -> bytes         the id of a new communicator: one rank creates it for all
 *   nccl_join(id, rank, size, device)  waits until all ranks have joined, each on its device. This
 *                              and nccl_measure, nccl_leave and nccl_abort end if a signal handler
 *                              raises; after a failure there is no communicator
 *   nccl_measure(name, count, repeats, to, from) -> (microseconds, wrong elements)  of one
 *                              operation on count float32: a name from selftest.py, or "barrier"
 *   nccl_combines(op, dtype) -> bool  can NCCL do this OP on elements of this type?
 *   nccl_can_revoke(owner) -> bool  can the communicators of that library be revoked?
 *   nccl_claims() -> int       the number of claims so far, for nccl_revocable
 *   nccl_revocable(claims, rows)  registers torch's, (address, device) each: they are revoked if
 *                              Python cannot abort them. claims: nccl_claims() before they were
 *                              looked up
 *   nccl_claim() -> bool       call before any of them is freed; False: none may be
 *   nccl_release()             call afterwards, unless it was refused
 *   nccl_leave()               gives up the communicator, together with all ranks
 *   nccl_abort()               gives it up at once
 *   device_is_open() -> bool   has device_open() loaded CUDA?
 *   device_owner(address, near) -> int  the device that owns this memory; the query runs on `near`.
 *                              None: the driver has not responded yet, ask again
 *   device_pin(obj, addr, size, device) -> handle  as pin, for a device's memory: served by Tcopy
 *   device_memfd() -> int      the descriptor that goes with it (not to be closed)
 *   device_unpin(handle)       releases it, once copies of its bytes in progress are done
 *   device_copy(device, addr, host, size, handle, into) -> int  copies from the device; returns
 *                              how many bytes, maybe fewer than size: call again for the rest.
 *                              handle: of device_pin(), for the memory at addr. into: copies to the
 *                              device, all bytes or OSError: EINTR if the push is cancelled
 *   device_mark(device, stream) -> bool  all work now queued on this stream (0: the default one;
 *                              device -1: the current one's) precedes every later copy. False: it
 *                              is being captured, or the driver does not respond
 *   device_lost() -> str       the error that reported that the context is lost; "": none did
 *   device_memory(device) -> (free, all)  in bytes
 *   Out(fd, kind)              base class of sys.stdout and sys.stderr (an _io._TextIOBase): write,
 *                              flush, fileno; kind 0 stdout, 1 stderr, 2 display (whose fd may be
 *                              -1). What is written goes to memory shared with the agent, so that
 *                              not even SIGKILL loses a byte; it stays in order with other kinds,
 *                              and with what C code or a child wrote before
 *   stdin_read(most, line, secret) -> bytes
 *                              up to that many, line: none behind the first newline; b"" at the
 *                              end. Blocks without the GIL. Sends Ninput before and after, if it
 *                              has to wait; secret: for a password. Or OSError
 *   stdin_ready() -> bool      it would not wait
 *   stdin_begin_program(ended) from now on the end of input is final; ended: it is there
 *   stdin_end_program()        drops input that has not been read, and its end
 *   title(text)                sets the process title that ps shows
 *   collective(name or None)   user code enters (leaves) a collective: what Nabort 0 checks
 *   collective_done()          a collective that all ranks of the default group must perform is
 *                              done
 *   collectives() -> int       the number of those in this cell
 *   mend_gloo() -> bool        no send to a peer that has died blocks forever; torch must be loaded
 *   disconnect()               ends all connections of torch's gloo groups: what still uses one of
 *                              them fails at once. Does nothing unless mend_gloo() has said 2
 *   stack_signal() -> int      the real-time signal to register faulthandler for: our handler calls
 *                              it and reports when the dump is complete
 *   stack_fd() -> int          the memfd for faulthandler to write to
 *   look_signal() -> int, looked(signo, frame)  the signal for a look at the main thread, and its
 *                              handler
 *   memory_available() -> int  bytes: see memory.h
 *   stack_begin(describe)      faulthandler is registered: dumps may be requested. describe() -> bytes
 *                              tells what goes with them: see flight.py. Any thread calls it
 *   current_frames() -> dict   sys._current_frames(), which may not be called itself
 *   noting_tracer(function, all)  sys.settrace or sys.setprofile, of which empty_copy() is to know.
 *                              all: it is for all threads
 *   traced(bool)               is the main thread traced, or profiled? Until then one that was is
 *   empty_copy(names)          a frame's f_locals before CPython 3.13, in a variable of the caller's:
 *                              drops what it refers to, if nobody else has it. Not while the main
 *                              thread is traced: it is written back then
 *   flight_ready() -> bool     this thread, none of the program's, may ask torch's recorder of NCCL:
 *                              sets its device
 *   flight_find() -> int       which of torch's flight recorders C asks without the GIL: 1 that of
 *                              gloo, 2 that of NCCL; torch must be loaded
 *   flight_groups(lines)       bytes: what they are asked for, see rank/flight.h
 *   flight_text(which, json)   what recorder 0 or 1 says, if C does not ask it; only in describe()
 *   pause() -> int             as leave(), of a cell that goes on: something else is to run, which
 *                              interrupts tell from it
 *   resume(cell)               the user code of this cell goes on, or that of a steer begins
 *   profile() -> bytes         what the last steps of the cell took: lines, see
 *                              rank_collective_profile()
 *   tick(clock) -> bool        one of enum clock has ticked; True: in the main thread, and it is
 *                              armed. Costs 0.1 us
 *   arm(bool or None) -> (optimizer, forward, collective, us)  arms the ticks, or not; None: leaves
 *                              that as it is. Returns their numbers
 *                              in this cell, and the time between the last two, in us; 0: unknown
 *   set_locals(frame, names) -> bool  before CPython 3.13: binds local variables of a function that
 *                              runs. False: this Python cannot
 *   identities(dict) -> bytes  three pointers for each item, in order: the key, the value, its type
 *   instances(class) -> list   the objects of a class that the garbage collector knows; those of a
 *                              class that only claims to be a subclass are not among them
 *   display_fd() -> int        the pipe for rich output; -1: none
 *   boot(role)                 called once by the launcher: makes `ddip_engine` importable, and
 *                              calls its boot.main with "zygote", "rank" or "store"
 *   zygote() -> (kind, name, env)  serves forks; returns in a forked child, which is a rank (0), a
 *                              store (1) or the zygote's successor (2), with os.environ set for it.
 *                              Never returns in the zygote itself
 *   version() -> str
 *
 * In a process that user code has forked, none of this works: next, serve and rescue return None,
 * and nothing is sent.
 */
/* clang-format on */
#ifndef PY_H
#define PY_H
#ifdef Py_PYTHON_H
#include "rank/rank.h"

/* py_message.c */
PyObject *py_message_tuple(struct item *it); /* frees it */
/* Sends type with the fields args[first:]. Returns false with an exception set on failure. */
bool py_message_send(PyObject *type, uint64_t tag, int fd, PyObject *args, Py_ssize_t first);

/* py_request.c */
PyObject *py_cancellable(PyObject *module, PyObject *args);
PyObject *py_cancel(PyObject *module, PyObject *args);
PyObject *py_cancelled(PyObject *module, PyObject *tag);
PyObject *py_forget(PyObject *module, PyObject *tag);
PyObject *py_is_cancelled(PyObject *module, PyObject *unused);

/* py_main.c */
PyObject *py_next(PyObject *module, PyObject *unused);
PyObject *py_enter(PyObject *module, PyObject *args);
PyObject *py_resume(PyObject *module, PyObject *number);
PyObject *py_pause(PyObject *module, PyObject *unused);
PyObject *py_leave(PyObject *module, PyObject *unused);
PyObject *py_handles(PyObject *module, PyObject *args);
PyObject *py_interrupt_wanted(PyObject *module, PyObject *unused);
PyObject *py_own_handler(PyObject *module, PyObject *args);
PyObject *py_probe_signal(PyObject *module, PyObject *unused);
PyObject *py_probed(PyObject *module, PyObject *args);
PyObject *py_repeat(PyObject *module, PyObject *number);
PyObject *py_probe(PyObject *module, PyObject *unused);

/* py_device.c */
/* Sets OSError(errno, text) and returns NULL. */
PyObject *py_raise(const struct err *e);
/* Is CUDA loaded in this process? If not, sets OSError and returns false. */
bool py_device_usable(void);
PyObject *py_device_open(PyObject *module, PyObject *folders);
PyObject *py_device_is_open(PyObject *module, PyObject *unused);
PyObject *py_device_memfd(PyObject *module, PyObject *unused);
PyObject *py_device_owner(PyObject *module, PyObject *args);
PyObject *py_device_pin(PyObject *module, PyObject *args);
PyObject *py_device_copy(PyObject *module, PyObject *args);
PyObject *py_device_unpin(PyObject *module, PyObject *number);
PyObject *py_device_mark(PyObject *module, PyObject *args);
PyObject *py_device_lost(PyObject *module, PyObject *unused);
PyObject *py_device_memory(PyObject *module, PyObject *number);

/* py_nccl.c */
PyObject *py_nccl_open(PyObject *module, PyObject *folders);
PyObject *py_nccl_id(PyObject *module, PyObject *unused);
PyObject *py_nccl_join(PyObject *module, PyObject *args);
PyObject *py_nccl_combines(PyObject *module, PyObject *args);
PyObject *py_nccl_can_revoke(PyObject *module, PyObject *owner);
PyObject *py_nccl_revocable(PyObject *module, PyObject *args);
PyObject *py_nccl_claims(PyObject *module, PyObject *unused);
PyObject *py_nccl_claim(PyObject *module, PyObject *unused);
PyObject *py_nccl_release(PyObject *module, PyObject *unused);
PyObject *py_nccl_leave(PyObject *module, PyObject *unused);
PyObject *py_nccl_abort(PyObject *module, PyObject *unused);
PyObject *py_nccl_measure(PyObject *module, PyObject *args);

/* py_stack.c */
PyObject *py_stack_signal(PyObject *module, PyObject *unused);
PyObject *py_stack_fd(PyObject *module, PyObject *unused);
PyObject *py_stack_begin(PyObject *module, PyObject *describe);
PyObject *py_look_signal(PyObject *module, PyObject *unused);
PyObject *py_looked(PyObject *module, PyObject *args);
PyObject *py_current_frames(PyObject *module, PyObject *unused);
PyObject *py_noting_tracer(PyObject *module, PyObject *args);
PyObject *py_traced(PyObject *module, PyObject *is);
PyObject *py_empty_copy(PyObject *module, PyObject *names);
PyObject *py_flight_ready(PyObject *module, PyObject *unused);
PyObject *py_flight_find(PyObject *module, PyObject *unused);
PyObject *py_flight_groups(PyObject *module, PyObject *lines);
PyObject *py_flight_text(PyObject *module, PyObject *args);

/* py_output.c */
bool py_out_add(PyObject *module);

/* py_boot.c */
PyObject *py_boot(PyObject *module, PyObject *role);
PyObject *py_zygote(PyObject *module, PyObject *unused);
#endif
#endif
