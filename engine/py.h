/*
 * The module `_ddip`: what the engine's C gives to its Python (engine/(*).py), inside zygotes and ranks.
 *
 * One C I/O thread owns the control socket and never takes the GIL. Messages for Python are queued: those that
 * must keep their order for the main thread (next), those that are answered also while a cell runs for the
 * service thread (serve). A message comes as a tuple (type, tag, fd, field…): type is the wire's name ("Trun"),
 * fd an int or -1 (the receiver closes it), s fields are str, d fields bytes, numbers int.
 *
 *   next() -> tuple                 blocks without the GIL; None: end now (Nquit, or the agent has gone)
 *   serve() -> tuple                the same for the service thread
 *   reply(type, tag, *fields)       sends an R; mark fields (out err disp records) are left out, C adds them
 *   reply_fd(type, tag, fd, *fields)  the same with a descriptor (not closed)
 *   error(tag, errno, text, traceback="")  sends Rerror
 *   notify(type, *fields)           sends an N
 *   enter(cell), leave()            user code of this cell begins, ends: an interrupt is for it alone.
 *                                   leave() returns True if an interrupt for it came and was not raised
 *   interrupt_wanted() -> bool      for the SIGINT handler: raise KeyboardInterrupt? (user code runs, and an
 *                                   Nintr for this cell came, or the signal is from elsewhere)
 *   pin(obj, addr, size) -> handle  keeps obj alive; its bytes are served by Tread and may be read from outside
 *   Out(fd, kind)                   base class of sys.stdout / sys.stderr (a _io._TextIOBase): write, flush,
 *                                   fileno; buffered in memory shared with the agent, so that not even SIGKILL
 *                                   loses a byte; kind 0 stdout, 1 stderr, 2 display. A write to another kind
 *                                   than the last waits until the agent has taken the last one's bytes.
 *   stdin_read() -> bytes           blocks without the GIL for Nstdin; b"" at the end. Says Ninput before, after
 *   collective(name or None)        the main thread enters (leaves) a collective: Nabort 0 asks for it
 *   stack_signal() -> int           the real-time signal that faulthandler is to be registered for
 *   stack_fd() -> int               the memfd that it writes to
 *   display_fd() -> int             where a child process of ours could write rich output; -1: nowhere
 *   boot(role)                      called once by the launcher: `ddip_engine` can be imported, its boot.main runs
 *   zygote() -> (kind, name, env)   serves forks; returns in a forked child, which is a rank (0), a store (1) or
 *                                   the zygote's successor (2), with os.environ as it is to be. Never returns
 *                                   in the zygote itself
 *   version() -> str
 *
 * In a process that user code forked, all of it is dead: next and serve give None, sends do nothing.
 */
#ifndef PY_H
#define PY_H
#ifdef Py_PYTHON_H
#include "rank.h"

/* py_message.c */
PyObject *py_message_tuple(struct item *it); /* frees it */
/* Sends type(args from first on); false: an exception is set. */
bool py_message_send(PyObject *type, uint32_t tag, int fd, PyObject *args, Py_ssize_t first);

/* py_out.c */
bool py_out_add(PyObject *module);

/* py_boot.c */
PyObject *py_boot(PyObject *module, PyObject *role);
PyObject *py_zygote(PyObject *module, PyObject *unused);
#endif
#endif
