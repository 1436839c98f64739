/* clang-format off */
/*
 * The module `_ddip`: what the engine's C gives to its Python, inside zygotes and ranks.
 *
 * One C I/O thread owns the control socket and never takes the GIL. Messages for Python are queued:
 * those that must keep their order for the main thread (next), those that are answered also while
 * a cell runs for the service threads (serve). A message comes as a tuple (type, tag, fd, field…):
 * type is the wire's name ("Trun"), fd an int or -1 (the receiver closes it), s fields are str,
 * d fields bytes, numbers int.
 *
 *   next() -> tuple            blocks without the GIL; None: end now (Nquit)
 *   serve() -> tuple           the same for a service thread, which gets no signals from then on
 *   rescue() -> tuple          the same for the thread that ends NCCL's collectives (Nabort): the
 *                              service thread may wait for the GPU that they block
 *   cancellable(tag, thread, exception, wait, function, *args)  function(*args) for a request that
 *                              next() or serve() gave to this thread (its ident). If it is
 *                              cancelled it raises the exception, and none of those that cancel()
 *                              sent is raised behind it; wait(): a loop without end. What the main
 *                              thread has to do all the same is called though it is cancelled
 *   cancel(exception, spared) -> list  raises it in all threads whose requests are cancelled, but
 *                              not in the spared (a set); which they are, 0: the main thread, soon
 *   cancelled(tag) -> bool     is this request?
 *   forget(tag)                the main thread has answered it
 *   is_cancelled() -> bool     is what the main thread calls by cancellable() now? Then the handler
 *                              of probe_signal(), which cancel() sends there, is to raise
 *   reply(type, tag, *fields)  sends an R; its mark fields (out err disp records) are left out, the
 *                              agent writes them
 *   reply_fd(type, tag, fd, *fields)  the same with a descriptor (not closed)
 *   error(tag, errno, text, traceback="")  sends Rerror
 *   notify(type, *fields)      sends an N
 *   enter(cell), leave()       user code of this cell begins, ends: an interrupt is for it alone.
 *                              leave() gives True if an interrupt for it came and was not raised
 *   interrupt_wanted() -> int  for the SIGINT handler: 1, raise KeyboardInterrupt; 2, raise
 *                              Preempted; 0, nothing. Only while user code runs. If not 0, it
 *                              tells the daemon that it is raised (Nsignalled)
 *   probe_signal() -> int      the real-time signal that probed is to be registered for (by signal.signal):
 *   probed(signum, frame)      tells the daemon that Python runs handlers of signals, when the one
 *                              of SIGINT did not ask interrupt_wanted: it is the program's own
 *   repeat(cell) -> bool       the SIGINT of an interrupt once more; False: that cell does not run
 *   probe() -> bool            some time after repeat, until it is False: has somebody taken it?
 *   pin(obj, addr, size) -> handle  keeps obj alive; its bytes are served by Tread and may be read
 *                              from outside; Nfree lets go
 *   device_open(folders) -> str  loads CUDA, if that was not done, and says which; folders, ended
 *                              by ":" each, are where it may lie. This and all below raise OSError
 *   nccl_open(folders) -> str  the same of NCCL
 *   nccl_id() -> bytes         of a new communicator: one rank makes it for all
 *   nccl_join(id, rank, size, device)  waits until all ranks have, on this device of theirs. This and
 *                              the next two end when the handler of a signal raises; after a failure
 *                              there is no communicator
 *   nccl_measure(name, count, repeats, to, from) -> (microseconds, wrong elements)  of one operation
 *                              with count float32: a name of selftest.py's, or "barrier"
 *   nccl_combines(op, dtype) -> bool  is NCCL for this OP over elements of this type?
 *   nccl_can_revoke(owner) -> bool  are that library's communicators ones that can be revoked?
 *   nccl_revocable(claims, rows)  those of torch, (address, device) each: they are revoked when
 *                              Python can't abort them. claims: nccl_claims() before they were
 *                              looked up
 *   nccl_claim() -> bool       before any of them is freed; False: none may be
 *   nccl_release()             when it is, if none was refused
 *   nccl_leave()               gives it up, when all ranks do
 *   nccl_abort()               gives it up at once
 *   device_is_open() -> bool   was that so?
 *   device_owner(address, near) -> int  whose memory this is; `near` is asked first. None: the
 *                              driver did not answer yet, ask again
 *   device_pin(obj, addr, size, device) -> handle  as pin, of a device's memory: served by Tcopy
 *   device_memfd() -> int      the descriptor that goes with it (not to be closed)
 *   device_unpin(handle)       lets go of it, behind copies of its bytes that are under way
 *   device_copy(device, addr, host, size, into) -> int  copies from the device; how many bytes,
 *                              maybe fewer than size: call again, for the rest. into: 0, or the
 *                              handle of what they are copied to, all of them or OSError: EINTR if
 *                              the push is cancelled
 *   device_mark(device, stream) -> bool  what is in this stream now (0: the default one; device -1:
 *                              the current one's) comes before every later copy; False: it is
 *                              being captured, or the driver does not answer
 *   device_lost() -> str       the error that said that the context is lost; "": none did
 *   device_memory(device) -> (free, all)  bytes
 *   Out(fd, kind)              base class of sys.stdout and sys.stderr (an _io._TextIOBase): write,
 *                              flush, fileno; kind 0 stdout, 1 stderr, 2 display (whose fd may be
 *                              given as -1). What is written is in memory shared with the agent, so
 *                              that not even SIGKILL loses a byte; it keeps its place among other
 *                              kinds, and behind what C code or a child wrote before
 *   stdin_read() -> bytes      blocks without the GIL for Nstdin; b"" at the end. Says Ninput
 *                              before and after, if it has to wait
 *   collective(name or None)   user code enters (leaves) a collective: Nabort 0 asks for it
 *   collective_done()          one that all ranks of the default group must do alike is done
 *   collectives() -> int       how many those were in this cell
 *   mend_gloo() -> bool        no send to a peer that has died waits for ever; torch is loaded
 *   stack_signal() -> int      the real-time signal that faulthandler is to be registered for; with
 *                              chain=True: our handler behind it then says that the dump is whole
 *   stack_fd() -> int          the memfd that it writes to
 *   display_fd() -> int        the pipe that takes rich output; -1: nowhere
 *   boot(role)                 called once by the launcher: makes `ddip_engine` importable, and
 *                              calls its boot.main with "zygote", "rank" or "store"
 *   zygote() -> (kind, name, env)  serves forks; returns in a forked child, which is a rank (0), a
 *                              store (1) or the zygote's successor (2), with os.environ as it is to
 *                              be. Never returns in the zygote itself
 *   version() -> str
 *
 * In a process that user code forked, all of it is dead: next, serve and rescue give None, sends do
 * nothing.
 */
/* clang-format on */
#ifndef PY_H
#define PY_H
#ifdef Py_PYTHON_H
#include "rank/rank.h"

/* py_message.c */
PyObject *py_message_tuple(struct item *it); /* frees it */
/* Sends type(args from first on); false: an exception is set. */
bool py_message_send(PyObject *type, uint32_t tag, int fd, PyObject *args, Py_ssize_t first);

/* py_request.c */
PyObject *py_cancellable(PyObject *module, PyObject *args);
PyObject *py_cancel(PyObject *module, PyObject *args);
PyObject *py_cancelled(PyObject *module, PyObject *tag);
PyObject *py_forget(PyObject *module, PyObject *tag);
PyObject *py_is_cancelled(PyObject *module, PyObject *unused);

/* py_device.c */
/* Sets OSError(errno, text). NULL. */
PyObject *py_raise(const struct err *e);
/* Is CUDA loaded, in this process? False: OSError is set. */
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

/* py_out.c */
bool py_out_add(PyObject *module);

/* py_boot.c */
PyObject *py_boot(PyObject *module, PyObject *role);
PyObject *py_zygote(PyObject *module, PyObject *unused);
#endif
#endif
