"""ranch(): runs a function on a new group of workers, one of which may be the notebook itself."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import platform
import signal
import sys
import threading
import time
import zlib

from ddip.cells import cell as cells
from ddip.cells import objects
from ddip.cells.failures import failure
from ddip.errors import DipError, RemoteError, RemoteTraceback
from ddip.groups import Group, default_group
from ddip.jobs import worker
from ddip.mounts import files, mount
from ddip.shown import show
from ddip.shown.sink import Sink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any


_GRACE_S = 1  # seconds between a worker's failure and unblocking the others
# A collective of the caller fails as soon as a worker has exited, possibly before that exit is
# reported; on a busy machine, long before:
_BLAME_S = 10
_LOST_PEER = ("closed by peer", "reset by peer", "remote process", "NCCL")


def ranch(
    nprocs: int,
    fn: Callable[..., Any],
    *args: Any,
    caller_rank: int | None = 0,
    gather: bool = True,
    ctx: AbstractContextManager[Any] | None = None,
    need: str = "",
    imports: str = "",
    **kwargs: Any,
) -> Any:
    """Runs fn(*args, **kwargs) in nprocs ranked processes that end with the call.

    caller_rank: the rank of this process; None: it takes no part. gather: returns the list of the
    results by rank; False: only the caller's own. ctx: a context manager within which each worker
    runs fn. need: blank-separated names of `__main__` to copy to that of the workers. imports:
    statements to run there first. LOCAL_RANK and LOCAL_WORLD_SIZE are set while fn runs. A
    worker's exception is raised here, with its traceback as the cause.
    """
    if nprocs < 1:
        raise ValueError(f"nprocs: want at least 1, not {nprocs}")
    if caller_rank is not None and not 0 <= caller_rank < nprocs:
        raise ValueError(f"caller_rank: want 0..{nprocs - 1} or None, not {caller_rank}")
    plan = {
        "nprocs": nprocs,
        "fn": fn,
        "args": args,
        "kwargs": kwargs,
        "ctx": ctx,
        "gather": gather,
        "need": _needed(need),
        "imports": imports,
    }
    ranks = [rank for rank in range(nprocs) if rank != caller_rank]
    if caller_rank is not None and not ranks:
        result = worker.call(plan, caller_rank)
        return [result] if gather else result
    with _WorkerGroup(nprocs, caller_rank, ranks, _backend(ctx, nprocs)) as workers:
        return _run(workers, plan, caller_rank)


def _needed(need):
    names = sys.modules["__main__"].__dict__
    missing = [name for name in need.split() if name not in names]
    if missing:
        raise NameError(f"need: name '{missing[0]}' is not defined in __main__")
    return {name: names[name] for name in need.split()}


def _backend(ctx, nprocs):
    """The backend of the workers' own process group; "none" if ctx has no use for one."""
    choose = getattr(ctx, "ddip_backend", None)
    return choose(nprocs) if choose is not None else "none"


def _run(workers, plan, caller_rank):
    workers.interrupts.allow()
    try:
        return _results(workers, plan, caller_rank)
    finally:
        workers.interrupts.hold()


def _results(workers, plan, caller_rank):
    workers.begin(plan)
    own = None
    if caller_rank is not None:
        try:
            own = worker.call(plan, caller_rank, workers.environment())
        except BaseException as e:
            theirs = workers.failure is not None or (_is_lost_peer(e) and workers.failed(_BLAME_S))
            workers.interrupt()
            workers.wait()
            if theirs:
                raise workers.failure from workers.failure.__cause__
            raise
    workers.wait()
    if workers.failure is not None:
        raise workers.failure
    if not plan["gather"]:
        return own
    results = workers.results()
    if caller_rank is not None:
        results.insert(caller_rank, own)
    return results


def _is_lost_peer(error):
    """True for an exception that a collective raises when another process of the group exits."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(word in text for word in _LOST_PEER)


class _Interrupts:
    """Ctrl-C raises KeyboardInterrupt while it is allowed, and is deferred while it is not.

    It raises once for each allow(), so that the cleanup that follows is not interrupted. Changes
    nothing outside the main thread, or if the program has its own handler.
    """

    def __init__(self):
        self._allowed = self._came = self._taken = False

    def __enter__(self):
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._taken = True
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *exc_info):
        if self._taken and signal.getsignal(signal.SIGINT) == self._on_signal:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._raise_if_came()

    def allow(self):
        """Makes Ctrl-C raise from now on; raises at once if it was deferred."""
        self._allowed = True
        self._raise_if_came()

    def hold(self):
        """Defers Ctrl-C from now on."""
        self._allowed = False

    def _on_signal(self, signum, frame):
        self._came = True
        if self._allowed:
            self._raise_if_came()

    def _raise_if_came(self):
        if self._came:
            self._allowed = self._came = False
            raise KeyboardInterrupt


def _names():
    """How the names of this host's groups of workers begin."""
    return f"ranch-{zlib.crc32(platform.node().encode()):08x}-"


def _owned(group):
    """The file of a group of workers that the process which made it keeps locked."""
    return files.open_(os.path.join(group.path, "status"))


def _remove_left(path):
    """Removes groups whose process was killed, as by a kernel's restart, before it could do that.

    Only this host's, because a lock taken over sshfs holds only where it was taken.
    """
    for name in files.listdir(path):
        if not name.startswith(_names()):
            continue
        group = Group(os.path.join(path, name))
        with contextlib.suppress(OSError, DipError), _owned(group) as owned:  # others do the same
            # the process of a new one locks it before it starts it
            if owned.lock() and group.status().get("state") != "new":
                group.ctl("stop")
                files.rmdir(group.path)


class _WorkerGroup:
    """The workers other than this process: a separate group, for one call."""

    _numbers = itertools.count(1)  # of the groups of this process, whichever thread makes them

    def __init__(self, nprocs, caller_rank, ranks, backend):
        self._size = nprocs
        self._caller = caller_rank  # the rank of this process; None: it is not a rank
        self._ranks = ranks  # the other ranks
        self._backend = backend
        self._group = None
        self._cell = None
        self._thread = None
        self._view = None
        self._undo = None
        self.interrupts = _Interrupts()
        self.failure = None  # the exception to raise, set when the workers have failed

    def __enter__(self):
        path = mount.find_or_start()
        template = Group(os.path.join(path, default_group()))
        name = f"{_names()}{os.getpid()}-{next(self._numbers)}"
        self._group = Group(os.path.join(path, name))
        with contextlib.ExitStack() as undo:
            undo.enter_context(self.interrupts)
            _remove_left(path)
            owner = undo.enter_context(contextlib.ExitStack())
            files.mkdir(self._group.path)
            undo.callback(files.rmdir, self._group.path)
            # until it is removed, or this process ends in whatever way
            owner.enter_context(_owned(self._group)).lock(wait=True)
            undo.callback(self._end)
            self._start(template)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *exc_info):
        self._undo.close()

    def _start(self, template):
        settings = [
            line
            for line in template.read("ctl").splitlines()
            if line.split()[0] in ("python", "cwd", "env", "preload", "gpus")
        ]
        self._group.ctl(
            *settings,
            f"size {self._size}",
            f"external {'none' if self._caller is None else self._caller}",
            f"backend {self._backend}",
            f"grace {_GRACE_S}",
            "start",
            wait=False,
        )

    def _end(self):
        self._group.ctl("stop")
        if self._thread is not None:
            self._thread.join()

    def begin(self, plan):
        """Sends the plan and starts the work, whose output is shown as it arrives."""
        pickled, buffers = objects.dump(plan, "ranch()")
        buffers = [pickle.PickleBuffer(buffer) for buffer in buffers]
        objects.push(self._group, "ddip_plan", (sys.path, bytes(pickled), buffers))
        with open(worker.__file__, encoding="utf-8") as file:
            source = file.read()
        # in a separate namespace: the workers' __main__ takes the place of the notebook's
        call = (
            f"def _ddip_ranch():\n    space = {{'__name__': 'ddip_worker'}}\n"
            f"    exec(compile({source!r}, 'ddip/worker.py', 'exec'), space)\n"
            "    space['work'](globals())\n\n_ddip_ranch()\n"
        )
        self._cell = cells.submit(self._group, call)
        self._view = show.View(Sink(), self._ranks, self._place, labelled=True)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def environment(self):
        """The variables with which this process joins the workers' process group, if any."""
        if self._backend == "none":
            return {}
        lines = self._group.read(f"rank{self._caller}/env").splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("CUDA_"))

    def _place(self, rank, name):
        return f"the output of worker {rank}, which is not kept"

    def _watch(self):
        """Follows the workers' cell; if they fail, ends them, which unblocks a stuck caller."""
        try:
            end = cells.follow(self._cell, self._view.take, self._view.patience)
            self._view.end()
            if end["state"] != "ok":
                self.failure = self._failed(end)
                self._group.ctl("stop")
        except Exception as e:  # the waiting thread raises it
            self.failure = self.failure or e

    def _failed(self, end):
        """The exception of the worker that failed first, with its traceback as the cause."""
        told = failure(self._cell, self._view.errors, end)
        if not isinstance(told, RemoteError):
            return told
        try:
            error, text = objects.pull(self._group, "ddip_error", told.first)
        except DipError:  # the worker ended without leaving one
            text = told.evalue.removeprefix(f"rank {told.first} ")
            return DipError(f"worker {told.first} {text}")
        cause = RemoteTraceback(f"\n--- worker {told.first}\n{text}")
        error = error if error is not None else told
        BaseException.__cause__.__set__(error, cause)  # even if its class refuses assignments
        return error

    def failed(self, seconds):
        """True if a worker has failed, or fails within this many seconds."""
        end = time.monotonic() + seconds
        while self._thread.is_alive() and time.monotonic() < end:
            if self._cell.read("error"):
                return True
            self._thread.join(0.01)
        return self.failure is not None

    def interrupt(self):
        """Interrupts the workers; those that cannot be unblocked soon are ended."""
        try:
            self._cell.interrupt()
        except FileNotFoundError:
            pass  # it has ended

    def wait(self):
        """Waits for the workers' end; Ctrl-C interrupts them, a second one ends them."""
        times = 0
        while self._thread.is_alive():
            try:
                self.interrupts.allow()
                self._thread.join()
            except KeyboardInterrupt:
                times += 1
                self.interrupt() if times == 1 else self._group.ctl("stop", wait=False)
        if times:
            raise KeyboardInterrupt

    def results(self):
        """What each worker returned."""
        return [objects.pull(self._group, "ddip_result", rank) for rank in self._ranks]
