"""Makes the handler of a signal run although the main thread waits in a system call.

Python runs handlers between bytecodes, in the main thread. A signal that comes just before that
thread begins to wait, or that the kernel gives to another thread, does not end the wait, and its
handler runs when something else does. Python tells of every signal at once through a descriptor
(signal.set_wakeup_fd()): a thread reads it and sends the main thread a signal that does nothing
else, as long as the handler has not run.
"""

import os
import signal
import socket
import threading
import time

_SIGNAL = signal.SIGRTMAX - 1  # ends a system call
_LATE_S = 0.02  # a handler that has not run by then waits for a system call
_TRIES = 5

_ran = 0.0  # when a handler ran
_out = None  # what Python writes numbers of signals to
_before = -1  # the descriptor that was told before
_depth = 0  # enter() may be nested


def ran():
    """Handlers call it: they have run."""
    global _ran
    _ran = time.monotonic()


def enter():
    """From now on, in the main thread, handlers run in time."""
    global _out, _before, _depth
    if _out is None:
        if signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
            return  # a program's own
        into, _out = socket.socketpair()
        _out.setblocking(False)
        signal.signal(_SIGNAL, lambda *_: None)
        threading.Thread(target=_watch, args=(into,), name="ddip-wakeup", daemon=True).start()
    _depth += 1
    if _depth == 1:
        _before = signal.set_wakeup_fd(_out.fileno(), warn_on_full_buffer=False)


def leave():
    """The end of what enter() began."""
    global _depth
    if _depth == 0:
        return  # enter() has done nothing
    _depth -= 1
    if _depth == 0:
        signal.set_wakeup_fd(_before, warn_on_full_buffer=False)


def _watch(into):
    main = threading.main_thread()
    while numbers := into.recv(64):
        came = time.monotonic()
        if _before >= 0:
            try:
                os.write(_before, numbers)
            except OSError:
                pass  # nobody reads it any more
        if signal.SIGINT not in numbers:
            continue
        for _ in range(_TRIES):
            time.sleep(_LATE_S)
            if _ran >= came - _LATE_S:
                break
            signal.pthread_kill(main.ident, _SIGNAL)
