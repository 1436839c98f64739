"""Makes a signal's handler run even if the main thread is blocked in a system call.

Python runs handlers in the main thread, between bytecodes. A signal that arrives just before that
thread blocks, or that the kernel delivers to another thread, does not interrupt the system call:
its handler runs only when the call ends for another reason. Python reports every signal at once
through a descriptor (signal.set_wakeup_fd()): a thread reads it and, until the handler has run,
sends the main thread a signal whose only effect is to interrupt the system call.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

_SIGNAL = signal.SIGRTMAX - 1  # interrupts a system call
_ASKED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}  # whose handlers must run
_LATE_S = 0.02  # a handler that has not run after this long is blocked by a system call
_TRIES = 5

_ran = 0.0  # when a handler last ran
_out = None  # the socket that Python writes signal numbers to
_before = -1  # the previous wakeup descriptor
_depth = 0  # enter() may be nested


def ran() -> None:
    """Must be called by handlers, to record that they have run."""
    global _ran
    _ran = time.monotonic()


def enter() -> None:
    """Makes handlers run in time from now on. Must be called from the main thread."""
    global _out, _before, _depth
    if _out is None:
        if signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
            return  # the program uses the signal itself
        into, _out = socket.socketpair()
        _out.setblocking(False)
        signal.signal(_SIGNAL, lambda *_: None)
        threading.Thread(target=_watch, args=(into,), name="ddip-wakeup", daemon=True).start()
    _depth += 1
    if _depth == 1:
        _before = signal.set_wakeup_fd(_out.fileno(), warn_on_full_buffer=False)


def leave() -> None:
    """Ends what enter() began."""
    global _depth
    if _depth == 0:
        return  # enter() did nothing
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
                pass  # nothing reads it any more
        if not _ASKED.intersection(numbers):
            continue
        for _ in range(_TRIES):
            time.sleep(_LATE_S)
            if _ran >= came - _LATE_S:
                break
            signal.pthread_kill(main.ident, _SIGNAL)
