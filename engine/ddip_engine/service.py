"""Threads that answer requests even while a cell runs; none waits for another.

One thread always waits for the next message. A thread that takes one and leaves no other waiting
starts another; a thread that finds two waiting exits. At the maximum, or if the system refuses to
start another, the last one takes only quick requests, and the rest are queued until one of the
others is done.

A request whose reply is no longer wanted is cancelled: state.Cancelled is raised in its thread,
repeatedly until it ends, because user code may catch it. A thread that is stuck in C ends by itself
or not at all. Pushes and removals in the main thread are cancelled too, by a signal.
"""

from __future__ import annotations

import collections
import errno
import gc
import os
import time

# by name, before a program's gevent puts its own in their places
from _thread import allocate_lock, get_ident, start_new_thread
from time import sleep

import _ddip
from ddip_engine import state
from ddip_engine.cells import imports, run, steer, streams
from ddip_engine.data import arrays, frames, glance, gpu_lost, gpu_report, table, values, view
from ddip_engine.groups import gpu_parts
from ddip_engine.state import Cancelled, EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")
    Message = tuple[Any, ...]  # its type, its tag, its descriptor or -1, its fields
    Answers = Callable[[Any, Message, Callable[..., Any]], None]

_GET_BYTES, _GET_FD, _GET_LIVE, _GET_DEVICE, _, _GET_HEAD = range(6)  # kinds of Rget in wire.h
_THREADS = 64
_AGAIN_S = 0.02  # until it is raised again; doubles each time,
_AGAIN_MAX_S = 1.0  # up to this
_MOMENT_S = 0.001
_QUICK_CHARS = 1 << 16

_lock = allocate_lock()  # protects all below; held for a few lines only
_waiting = 0  # threads that wait for a message
_all = 0  # threads in total
_behind: collections.deque[Message] = collections.deque()  # messages that wait for a thread
_insisting = False
# thread -> deadline until which it is spared, because it imports modules
_importing: dict[int, float] = {}
_drawing = allocate_lock()  # only one thread at a time may use matplotlib


def start(answer: Answers) -> None:
    """answer(rows, message, call) answers a message by its row; call() calls the row's function."""
    with _lock:
        _start_thread(answer)


def _start_thread(answer: Answers) -> None:
    global _waiting, _all
    try:
        _start(_serve, answer)
    except (RuntimeError, MemoryError):  # the system refuses
        return
    _waiting += 1
    _all += 1


def _start(function: Callable[..., object], *args: Any) -> None:
    """Starts a thread and waits until it runs. Before that, CPython mistakes it for the thread that
    starts it, and raises in it the exceptions that are sent to that one."""
    begun = allocate_lock()
    begun.acquire()
    start_new_thread(_run_thread, (begun, function, args))
    begun.acquire()


def _run_thread(begun: LockType, function: Callable[..., object], args: tuple[Any, ...]) -> None:
    begun.release()
    function(*args)


def _serve(answer: Answers) -> None:
    while (message := _ddip.serve()) is not None:
        if message[0] == "Ncancel":
            _cancel()
            continue
        if message[0] == "Rerror":  # of a copy of bytes that were opened earlier
            _leave_if_lost()
            continue
        if message[0] == "Ninput":  # from the I/O thread: a child, or os.read(), waits for input
            streams.watched()
            continue
        message = _begin(message, answer)
        while message is not None:
            answer(_ROWS, message, _call)
            _leave_if_lost()
            del message  # and what it refers to
            message, ends = _end()
            if ends:
                return


def _leave_if_lost() -> None:
    if not state.running:  # else the main thread checks when the cell has ended
        gpu_lost.leave_if_lost(between_cells=True)


def _begin(message: Message, answer: Answers) -> Message | None:
    """Leaves another thread waiting. Returns the message, or None if it has been queued."""
    global _waiting
    with _lock:
        _waiting -= 1
        if _waiting == 0 and _all < _THREADS:
            _start_thread(answer)
        if _waiting > 0 or _all == 1 or _is_quick(message):  # the only thread takes all
            return message
        _waiting += 1
        _behind.append(message)
        return None


def _end() -> tuple[Message | None, bool]:
    """(the next message for this thread or None, whether the thread must exit)."""
    global _waiting, _all
    with _lock:
        if _behind and _waiting > 0:
            return _behind.popleft(), False
        if _waiting >= 2:
            _all -= 1
            return None, True
        _waiting += 1
        return None, False


def _is_quick(message: Message) -> bool:
    """True for a request that takes no time and runs no user code."""
    kind, _, _, *fields = message
    if kind != "Tget":
        return kind not in ("Tgc", "Tsteerrun") and not (kind == "Thas" and "/" in fields[0])
    name, suffix, op = fields
    many = suffix in ("frames", "glance")
    if many or ":" in name or "/" in name:  # these may have any number of names
        return False
    value = state.main.__dict__.get(name, view.ABSENT)
    if op or suffix not in ("", "json", "npy"):
        return value is view.ABSENT and name.partition(".")[0] == name != table.MAIN
    if suffix == "npy" and type(value) in arrays.types():
        return not getattr(value, "is_cuda", False)
    small = type(value) is str and len(value) <= _QUICK_CHARS
    return small or value is None or value is view.ABSENT or type(value) in (int, float, bool)


def _call(tag: int, function: Callable[..., Any], fd: int, *fields: Any) -> Any:
    """Calls a row's function so that it can be cancelled, then does what must not be cancelled."""
    draws = fields[1:2] == ["png"] and _wait_to_draw(tag)
    try:
        made = cancellable(tag, function, fd, *fields)
    finally:
        if draws:
            _drawing.release()
    return _sendable(made, fd) if isinstance(made, view.Export) else made


def cancellable(tag: int, function: Callable[..., T], *args: Any) -> T:
    """Calls the function. Raises state.Cancelled if the request of this tag was cancelled, perhaps
    before the call."""
    try:
        return _ddip.cancellable(tag, get_ident(), Cancelled, _wait, function, *args)
    except Cancelled:
        view.close_left_over()
        imports.drop_parts()
        raise


def _wait() -> None:
    """Waits briefly for the exception that is on its way to this thread."""
    sleep(_MOMENT_S)


def _wait_to_draw(tag: int) -> bool:
    """Acquires the figures for this thread. Returns False if the request was cancelled instead."""
    while not _drawing.acquire(timeout=_AGAIN_S):
        if _ddip.cancelled(tag):
            return False
    return True


def _cancel() -> None:
    """Raises in the threads of cancelled requests, until they end."""
    global _insisting
    with _lock:
        if not _raise() or _insisting:
            return
        _insisting = True
    try:
        _start(_insist)
    except (RuntimeError, MemoryError):  # the system refuses; the next Ncancel tries again
        _insisting = False


def _raise() -> list[int]:
    """Raises in the threads of cancelled requests, and returns those threads. One that imports
    modules gets time to finish first."""
    now = time.monotonic()
    # in no variable: this function's frame is among them, and a cycle would keep what they hold
    names = {t: imports.under_way(frame) for t, frame in _ddip.current_frames().items()}
    names = {thread: found for thread, found in names.items() if found}
    for thread in [each for each in _importing if each not in names]:
        del _importing[thread]
    spared = {thread for thread in names if _importing.get(thread, now + 1) > now}
    threads = _ddip.cancel(Cancelled, spared)
    for thread in names.keys() & set(threads):
        _importing.setdefault(thread, now + imports.wait_s(names[thread]))
        if thread not in spared:
            imports.note_interrupted(names[thread])
    return threads


def _insist() -> None:
    global _insisting
    pause = _AGAIN_S
    while True:
        sleep(pause)
        pause = min(2 * pause, _AGAIN_MAX_S)
        with _lock:
            if not _raise():
                _insisting = False
                return


# ---- the messages


def _get(fd: int, name: str, suffix: str, op: str) -> view.Export:
    if (name, suffix) == (table.MAIN, "gpu"):
        return gpu_report.export()
    if (name, suffix) == (table.MAIN, "frames"):
        return frames.lines()
    if (name, suffix) == (table.MAIN, "glance"):
        return glance.export()
    if (name, suffix) == (table.MAIN, "table"):
        return _table()
    if suffix == "names" and "/" in name:
        return values.names_inside(name)
    if suffix == "names":
        return frames.names(name.rpartition(":")[0])
    return values.get(name, suffix, op, fd, gpu_parts.exporter(op))


def _table() -> view.Export:
    """The table of variables while a cell runs. A part of it would hide names that are known."""
    text = table.text(False)
    if len(text) > view.INLINE:
        raise EngineError(errno.EFBIG, "there are too many variables to list them meanwhile")
    return view.Export(text)


def _sendable(export: view.Export, fd: int) -> tuple[Any, ...] | WithDescriptor:
    """The fields of Rget; live memory is pinned. The caller closes fd."""
    if export.fd >= 0:
        own = os.dup(fd) if export.fd == fd else export.fd
        return WithDescriptor(own, _GET_FD, 0, 0, export.size, export.head)
    if export.blank:
        return _GET_HEAD, 0, 0, export.size, export.head
    if export.keep is None:
        return _GET_BYTES, 0, 0, export.size, export.head
    size = export.size - len(export.head)
    if export.device >= 0:
        memfd = os.dup(_ddip.device_memfd())  # first: what is pinned must be reported
        handle = _ddip.device_pin(export.keep, export.address, size, export.device)
        return WithDescriptor(memfd, _GET_DEVICE, handle, export.device, export.size, export.head)
    handle = _ddip.pin(export.keep, export.address, size)
    return _GET_LIVE, handle, export.address, export.size, export.head


class WithDescriptor:
    """Fields of a reply that carries a descriptor, which the sender closes."""

    def __init__(self, fd: int, *fields: Any) -> None:
        self.fd = fd
        self.fields = fields


def _has(fd: int, name: str) -> tuple[int, str]:
    if "/" in name:
        found, why = values.has_inside(name)
        return int(found), why
    scope, _, name = name.rpartition(":")
    if scope:
        found, why = frames.has(scope, name)
        return int(found), why
    if name in state.main.__dict__ or name == table.MAIN:
        return 1, ""
    return 0, frames.hint(name)


def _gc(fd: int) -> tuple[str]:
    """Frees unreachable objects and cached GPU memory; reports how much that was."""
    if not state.running:
        run.drop_last()
    objects = gc.collect()
    freed = [f"{size} bytes of {what}" for what, size in gpu_report.measured_caches()]
    return (", ".join([f"{objects} objects", *freed]),)


_ROWS: dict[str, tuple[Callable[..., Any], str | None]] = {
    "Tget": (_get, "Rget"),
    "Thas": (_has, "Rhas"),
    "Tgc": (_gc, "Rgc"),
    "Tsteer": (steer.arm, "Rsteer"),
    "Nsteer": (steer.decide, None),
    "Nwatch": (steer.let_pass, None),
    "Tsteerrun": (steer.run_now, "Rsteerrun"),
}
