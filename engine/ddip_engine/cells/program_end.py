"""The end of a program (program.py) in the order of Python's own shutdown: threads, what it
registered with atexit, children, finalizers, files and timers. What was there before it stays.
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading

import _ddip
from ddip_engine import patches, raised
from ddip_engine.cells import streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Thread
    from typing import Any

    from ddip_engine.cells.program import _Surroundings

_LOOK_S = 0.1  # between two looks at the processes of pools
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)  # alarm() is the first


def complain(where: str, error: BaseException) -> None:
    """Reports an exception that nothing can catch any more."""
    text = "".join(raised.lines(error))
    print(f"Exception ignored {where}:\n{text}", end="", file=sys.stderr or sys.__stderr__)


def _end_threads(around: _Surroundings) -> None:
    """Waits for the non-daemon threads; pools finish the work that was submitted to them."""
    main = threading.main_thread()
    # some threads wait for that
    main.is_alive = lambda: False  # type: ignore[method-assign]
    pools: Sequence[Any] = ()
    try:
        if "concurrent.futures.process" in sys.modules:
            pools = _end_process_pools(around)
        if "concurrent.futures.thread" in sys.modules:
            _end_pools(around)
        while waiting := [t for t in threading.enumerate() if _is_awaited(t, around)]:
            waiting[0].join(_LOOK_S if pools else None)
            for pool in pools:
                _end_broken(pool)
    finally:
        del main.is_alive


def _is_awaited(thread: Thread, around: _Surroundings) -> bool:
    return not thread.daemon and thread not in around.threads


def _end_pools(around: _Surroundings) -> None:
    """Does what concurrent.futures does at exit, for the pools of this program."""
    lock, queues = patches.POOL_LOCK.get(), patches.POOL_QUEUES.get()
    if lock is None or queues is None or patches.POOL_SHUTDOWN.get() is None:
        _end_all_pools("ThreadPoolExecutor")
        return
    with lock:
        patches.POOL_SHUTDOWN.replace(lambda _: True)
        own = [(t, q) for t, q in queues.items() if t not in around.threads]
    try:
        for _, queue in own:
            queue.put(None)
        for thread, _ in own:
            thread.join()
    finally:
        patches.POOL_SHUTDOWN.replace(lambda _: False)


def _end_process_pools(around: _Surroundings) -> Sequence[Any]:
    """Lets their processes and threads end when their work is done. Does not wait: an interrupt of
    a later wait need not be repeated for these. Returns the threads."""
    wakeups = patches.POOL_WAKEUPS.get()
    if wakeups is None:
        _end_all_pools("ProcessPoolExecutor")
        return ()
    own = [thread for thread in list(wakeups) if thread not in around.threads]
    for thread in own:
        executor = thread.executor_reference()
        if executor is not None:
            executor.shutdown(wait=False)
    return own


def _end_broken(pool: Any) -> None:
    """Ends the processes of a pool of which one has died, as its thread does unless it waits for
    their end already: an interrupt may have hit one that had just taken the lock of their queue."""
    processes = list((getattr(pool, "processes", None) or {}).values())
    if any(process.exitcode for process in processes):
        for process in processes:
            process.terminate()


def _end_all_pools(kind: str) -> None:
    """Lets the threads of all pools of this kind end: nobody can tell whose they are, and the end
    of the program waits for its own."""
    import concurrent.futures

    for each in _ddip.instances(getattr(concurrent.futures, kind)):
        each.shutdown(wait=False)


def end_functions(around: _Surroundings) -> None:
    """Runs what the program registered with atexit, in reverse order."""
    interrupt: KeyboardInterrupt | None = None
    while around.at_exit:
        function, args, kwargs = around.at_exit.pop()
        try:
            _call("atexit function", function, *args, **kwargs)
        except KeyboardInterrupt as e:
            interrupt = e
    if interrupt is not None:
        raise interrupt


def _call(what: str, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
    """Calls one of several functions, all of which must be called. Only an interrupt is raised."""
    try:
        function(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        complain(f"in the {what} {function!r}", e)


def _end_children(around: _Surroundings) -> None:
    """As multiprocessing does: runs its finalizers, terminates daemons, waits for all children."""
    _finalize(around, 0)
    own = children() - around.children
    for child in own:
        if child.daemon:
            child.terminate()
    for child in own:
        child.join()
    _finalize(around, None)


def children() -> set[Any]:
    """The processes that multiprocessing has started and that live."""
    process = sys.modules.get("multiprocessing.process")
    return set(process.active_children()) if process is not None else set()


def resources() -> set[tuple[int | None, int]]:
    """The keys of multiprocessing's finalizers: (priority or None, number)."""
    return set(patches.MP_FINALIZERS.get(()))


def _finalize(around: _Surroundings, least: int | None) -> None:
    """Runs the program's finalizers of at least this priority; None: of any priority."""
    registry = patches.MP_FINALIZERS.get({})
    own = [(p, number) for p, number in resources() - around.resources if p is not None]
    for priority, number in sorted(own, reverse=True):
        finalizer = registry.get((priority, number))
        if finalizer is not None and (least is None or priority >= least):
            _call("finalizer", finalizer)


def _end_finalizers(around: _Surroundings) -> None:
    """Runs weakref.finalize callbacks: those of temporary directories, for example."""
    known = patches.FINALIZERS.get({})
    own = [(info.index, f) for f, info in list(known.items()) if f not in around.finalizers]
    for _, finalizer in sorted(own, key=lambda pair: pair[0], reverse=True):
        if finalizer.atexit:
            _call("finalizer", finalizer)


def _end_rpc(around: _Surroundings) -> None:
    has_agent = patches.RPC_AGENT.get()
    if has_agent is not None and has_agent():
        sys.modules["torch.distributed.rpc.api"].shutdown(graceful=False)


def _end_streams(around: _Surroundings) -> None:
    """Flushes what the program put in place of sys.stdout and sys.stderr. Like Python, says nothing
    if that is None or closed."""
    for name, own in around.streams.items():
        stream = getattr(sys, name, None)
        if stream is None or getattr(stream, "closed", False):
            setattr(sys, name, own)
    streams.flush()


def _end_timers(around: _Surroundings) -> None:
    """Stops the program's timers, which would go off in a later cell."""
    for timer in TIMERS:
        if timer not in around.timers:
            signal.setitimer(timer, 0)


def _end_files(around: _Surroundings) -> None:
    """Flushes files that are open for writing: the variables that hold them stay."""
    for handler in list(patches.LOG_HANDLERS.get(())):
        if (handler := handler()) is not None:
            _call("handler", handler.flush)
    kind: Any = io.IOBase.__base__  # that of C, which all of them have
    files: list[Any] = _ddip.instances(kind)
    texts = [each for each in files if isinstance(each, io.TextIOBase)]
    for file in texts + [each for each in files if not isinstance(each, io.TextIOBase)]:
        with contextlib.suppress(Exception):  # closed, not for writing, or its disk is full
            if not file.closed and file.writable():
                file.flush()


STEPS: tuple[Callable[[_Surroundings], None], ...] = (
    _end_threads,
    end_functions,
    _end_children,
    _end_finalizers,
    _end_rpc,
    _end_streams,
    _end_files,
    _end_timers,
)
