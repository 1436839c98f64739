"""Runs one cell: one SIGINT raises one KeyboardInterrupt in its code; reports how it ended.

This is what applies with and without IPython; magics and rich display are in shell.py. rank_cell.c
decides whether an interrupt is for this cell.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import signal
import sys
import time

import _ddip
from ddip_engine import interrupts, patches, raised, state
from ddip_engine.cells import cell as cells
from ddip_engine.cells import (
    digest,
    imports,
    plain,
    program,
    prompts,
    saved,
    shell,
    spliced,
    streams,
)
from ddip_engine.data import frames, gpu_report, out_of_memory, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType
    from typing import Any, NoReturn, TypeVar

    T = TypeVar("T")
    C = TypeVar("C", bound=cells.Interruptible)
    Handler = Callable[[int, FrameType | None], Any] | int | None
    Told = tuple[int, bytes, str, bytes, bytes]  # outcome, value, error, traceback, digest
    # outcome, value, error, traceback, table, digest: the first fields of Rrun
    Outcome = tuple[int, bytes, str, bytes, bytes, bytes]

OK, RAISED, INTERRUPTED, SYNTAX, EXIT, CUT_OFF = range(6)  # enum outcome of wire.h

_DEFINES = re.compile(r"\b(def|class|lambda)\b")
# What torch and its data loaders say when the operation that they wait for has been ended.
_ENDED_WAIT = re.compile(
    r"gloo|NCCL|[Cc]onnection (closed|reset|was)|[Bb]roken pipe|DataLoader worker|[Ss]ocket|aborted"
)
# A cell with one of these needs the exception of an earlier cell, or leaves it to a later one. The
# last names what the front ends of widgets send, which is no cell of the user's.
_LOOKS_BACK = re.compile(
    r"%(debug|tb|xmode|pdb)\b|\bpm\(|post_mortem|print_last|\blast_(exc|value|traceback|type)\b"
    r"|\A\ufeff?# ddip frame:|'ddip_engine\.cells\.comms'"
)
_TIMEOUT = 1  # of enum interrupt_why in wire.h
_LAST = ("last_exc", "last_type", "last_value", "last_traceback")
_cell: cells.Interruptible | None = None  # what runs; None if there is nothing
_NOT_FLUSHED = 120  # Python's exit status for that
_THOROUGH_S = 0.005  # after a cell that took this long, the time to walk its modules is small


def _on_sigint(signum: int, frame: FrameType | None) -> None:
    """Raises only in user code: a late signal must not hit the engine's own code."""
    if frame is not None and frame.f_code is _guarded.__code__:
        return
    cell = _cell
    holds = cell is not None and cell.holds(frame)
    if cell is not None and not holds and imports.put_off(frame, cell.number):
        return
    if wanted := _ddip.interrupt_wanted():
        why = wanted - 1
        error = interrupts.error(why)
        if cell is not None and holds:
            cell.held = error
            cell.on_held()
            return
        if cell is not None:
            cell.interrupted = True
        state.interrupts += 1
        raise prompts.passing(error, frame, by_person=why == 0)


def _probed(signum: int, frame: FrameType | None) -> None:
    """The probe signal: Python is running handlers, so one of the program's own has taken SIGINT,
    unless an import defers it, or C code ignored it. Or the running request was cancelled."""
    if _ddip.is_cancelled():
        raise state.Cancelled
    if not imports.holds():
        _ddip.probed(signum, frame)


_OURS = {_ddip.probe_signal(), _ddip.stack_signal(), _ddip.look_signal()}


def install() -> None:
    """Handles SIGINT; a child that user code forks handles it like any Python program."""
    signal.signal(signal.SIGINT, _on_sigint)
    signal.signal(_ddip.probe_signal(), _probed)
    signal.signal(_ddip.look_signal(), _ddip.looked)
    signal.siginterrupt(_ddip.look_signal(), False)
    for signalnum in signal.valid_signals() - {signal.SIGINT, *_OURS}:
        _ddip.handles(signalnum, callable(signal.getsignal(signalnum)))  # a preload's
    patches.SIGNAL.replace(_watched)
    os.register_at_fork(after_in_child=_in_child)


def _watched(real: Callable[[int, Handler], Handler]) -> Callable[[int, Handler], Handler]:
    @functools.wraps(real)
    def watched(signalnum: int, handler: Handler) -> Handler:
        here = os.getpid() == state.pid
        if here and signalnum in _OURS:  # of a program that sets a handler for each signal
            return signal.getsignal(signalnum)
        old = real(signalnum, handler)
        if not here:
            return old
        if signalnum == signal.SIGINT:
            ours = handler is _on_sigint
            _ddip.own_handler(not ours and handler is not signal.default_int_handler, ours)
        else:
            _ddip.handles(signalnum, callable(handler))
        return old

    return watched


def _in_child() -> None:
    if signal.getsignal(signal.SIGINT) is _on_sigint:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _armed(cell: C, runner: Callable[[C], cells.Ended]) -> cells.Ended:
    """Runs user code so that an interrupt for this cell is raised in it, or here."""
    try:
        _ddip.enter(cell.number, cell.users)
        state.entered = cell.number
        return runner(cell)
    finally:
        cell.interrupted_late = _ddip.leave() or cell.held is not None


def _guarded(cell: C, runner: Callable[[C], cells.Ended]) -> cells.Ended:
    """_armed() that never raises: the only frame from enter to leave that no interrupt may hit.
    What ignores the signal of a timeout, as system(3) does, may return, and the cell with it."""
    try:
        ended = _armed(cell, runner)
        if ended.error is None and cell.interrupted_late == 1 + _TIMEOUT:
            return cells.Ended(interrupts.error(_TIMEOUT))
        return ended
    except BaseException as e:  # whatever user code raises ends the cell, not the rank
        cell.interrupted_late = _ddip.leave() or cell.interrupted_late
        return cells.Ended(e)


def current() -> cells.Interruptible | None:
    """The running cell, None if there is none."""
    return _cell


def within(
    cell: C, function: Callable[[C], cells.Ended]
) -> tuple[cells.Ended, BaseException | None]:
    """Returns function(cell), an Ended, while interrupts of the running cell are held, and those of
    this one are raised in its code. Called while the running cell holds them; never raises: returns
    as well what a signal handler of the program's has raised meanwhile, or None."""
    global _cell
    outer, stray = _cell, None
    assert outer is not None  # see above
    try:
        missed = _ddip.pause()
    except BaseException as e:
        stray, missed = e, _ddip.pause()
    _cell = cell
    try:
        try:
            _ddip.resume(cell.number)
            ended = function(cell)
        finally:
            cell.interrupted_late = _ddip.pause() or cell.held is not None
    except BaseException as e:  # whatever user code raises
        ended = cells.Ended(e)
        cell.interrupted_late = _ddip.pause() or cell.interrupted_late
    _cell = outer
    try:
        _ddip.resume(outer.number)
    except BaseException as e:
        stray = stray or e
    if missed:  # it is held now
        _ddip.repeat(outer.number)
    return ended, stray


def told(cell: cells.Cell, ended: cells.Ended, earlier: digest.Snapshot | None) -> Told:
    """(outcome, value, error, traceback, digest) for Rrun. earlier: from digest.before()."""
    outcome, error, trace, failure = OK, "", b"", None
    if ended.error is not None:
        seen = raised.plain(ended.error)
        outcome = _classify(ended.error, ended.syntax, seen, cell)
        if outcome != OK:
            failure, error = seen, one_line(seen)
            trace = _encode(cells.bound_traceback(_format(ended.syntax, seen, cell)))
    about = digest.text(earlier, failure, one_line)
    return outcome, _encode(cells.bound(ended.value)), error, trace, about


class _Work(cells.Interruptible):
    """Work of the engine itself that can be interrupted like a cell."""

    file = "<selftest>"
    users = False


def interruptible(number: int, function: Callable[[], T]) -> T:
    """Returns the result of function(), which runs like a cell of this number. Raises
    KeyboardInterrupt if an interrupt ended it, whatever it raised then."""
    global _cell
    work = _cell = _Work(number)
    state.running, state.cell_file = True, work.file
    ended = _guarded(work, lambda _: cells.Ended(value=function()))
    _cell, state.running, state.cell_file = None, False, None
    if ended.error is None:
        return ended.value
    if raised.is_a(ended.error, KeyboardInterrupt) or _by_interrupt(ended.error, work):
        raise KeyboardInterrupt from None
    raise ended.error


def execute(number: int, source: bytes) -> Outcome:
    """Runs a cell. Returns (outcome, value, error, traceback, table, digest) for Rrun."""
    started = time.monotonic()
    if hasattr(sys, "last_value") and not _LOOKS_BACK.search(source.decode("utf-8", "replace")):
        drop_last()
    try:
        cell = cells.Cell(number, source)
    except SyntaxError as e:
        return _refused(SYNTAX, e)
    except OSError as e:  # a relative path, while this process's directory does not exist
        streams.display("error", **cells.describe(e.with_traceback(None)))
        return _refused(RAISED, e)
    earlier = digest.before()
    frames.begin_cell()
    ended = _run(cell)
    if ended.error is not None and raised.is_a(ended.error, state.EngineError):
        raise ended.error.with_traceback(None)
    try:
        return _outcome(cell, ended, started, earlier)
    except BaseException as e:  # a signal handler of the user's: as if it had raised in the cell
        cells.trim(e, cell)
        return _outcome(cell, cells.Ended(e), started, earlier)


def _refused(outcome: int, error: BaseException) -> Outcome:
    """The same for a cell that does not begin."""
    text = one_line(error)
    return (outcome, b"", text, _encode(text + "\n"), table.text(False), b"")


def _outcome(
    cell: cells.Cell, ended: cells.Ended, started: float, earlier: digest.Snapshot | None
) -> Outcome:
    """How the cell ended, for Rrun; cleans up after it."""
    if ended.error is None:
        outcome, value, error, trace, about = told(cell, ended, earlier)
    else:  # its text, its notes are code of the user's
        outcome, value, error, trace, about = interruptible(
            cell.number, lambda: told(cell, ended, earlier)
        )
    if outcome != OK and ended.error is not None:
        if cell.frame is None:
            _keep_last(cell.number, ended.error)
        out_of_memory.handle(cell.number, ended.error)
    raised.forget()
    ended.error = None  # frames of the traceback refer to it
    streams.flush()
    _tidy(cell, outcome)
    facts = table.text(time.monotonic() - started > _THOROUGH_S)
    return (outcome, value, error, trace, facts, about)


def _run(cell: cells.Cell) -> cells.Ended:
    """Runs it within its surroundings; never raises. Returns Ended."""
    global _cell
    runner: Callable[[cells.Cell], cells.Ended]
    around: Callable[[cells.Cell], AbstractContextManager[object]]
    runner, around = shell.run_cell if shell.available() else plain.run_cell, contextlib.nullcontext
    if cell.argv is not None:
        around = _directive
    elif cell.program:
        runner, around = program.run_cell, program.surroundings
    elif cell.saved:
        runner = saved.run_cell
    elif cell.frame is not None:
        runner = spliced.run_cell
    hooks = sys.excepthook, sys.displayhook
    _cell, state.running, state.cell_file = cell, True, cell.file
    try:
        with around(cell):
            ended = _guarded(cell, runner)
            if os.getpid() != state.pid:
                _end_child(ended)
    except BaseException as e:  # a program's directory does not exist, or a signal handler raises
        ended = cells.Ended(e)
        streams.display("error", **cells.describe(e))
    _cell, state.running, state.cell_file = None, False, None
    prompts.forget()
    streams.cell_ended()
    imports.clean_up()
    sys.excepthook, sys.displayhook = hooks
    shell.close_traps()
    if patches.GETSIGNAL.get(signal.getsignal)(signal.SIGINT) is not _on_sigint:
        signal.signal(signal.SIGINT, _on_sigint)
    if ended.error is not None:
        cells.trim(ended.error, cell)
    return ended


def _end_child(ended: cells.Ended) -> NoReturn:
    """Ends a child that user code forked and that returned here, like any Python program."""
    error, status = ended.error, 0
    try:
        if raised.is_a(error, SystemExit):
            code = raised.code(error)
            status = code if raised.is_a(code, int) else int(code is not None)
        elif error is not None:
            status = 1
            with contextlib.suppress(Exception):  # it is closed
                print(*raised.lines(error), sep="", end="", file=sys.stderr or sys.__stderr__)
        program.end_child()
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name, None)
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
    except BaseException:  # as if its disk is full, or an interrupt
        status = status or _NOT_FLUSHED
    finally:
        os._exit(status & 255)


@contextlib.contextmanager
def _directive(cell: cells.Cell) -> Iterator[None]:
    """Sets sys.argv, __file__ and sys.path[0] for a `# ddip:` cell while it runs."""
    names, argv = state.main.__dict__, sys.argv
    assert cell.argv is not None
    folder = os.path.dirname(cell.file)
    program.forget_modules_beside(folder)
    had_file, old_file = "__file__" in names, names.get("__file__")
    replaced = bool(sys.path) and sys.path[0] == ""
    sys.path[: 1 if replaced else 0] = [folder]
    sys.argv, names["__file__"] = list(cell.argv), cell.file
    try:
        yield
    finally:
        sys.argv = argv
        if had_file:
            names["__file__"] = old_file
        else:
            names.pop("__file__", None)
        if folder in sys.path:
            at = sys.path.index(folder)
            sys.path[at : at + 1] = [""] if replaced else []


def _classify(error: BaseException, syntax: bool, seen: BaseException, cell: cells.Cell) -> int:
    """seen: what stands for its exception."""
    exits = raised.is_a(error, SystemExit)
    code = raised.code(error) if exits else None
    if exits and (code is None or (raised.is_a(code, int) and code == 0)):
        return OK
    if raised.is_a(error, KeyboardInterrupt) or _by_interrupt(error, cell):
        return INTERRUPTED
    if exits:
        return EXIT
    if syntax:
        return SYNTAX
    return CUT_OFF if _ENDED_WAIT.search(one_line(seen)) else RAISED


def _by_interrupt(error: BaseException, cell: cells.Interruptible) -> bool:
    """True if the cell ended this way because it was interrupted: it exits in response, or the
    operation that it waited for was ended too."""
    if cell.interrupted_late:
        return True
    if not cell.interrupted:
        return False
    exits = SystemExit, getattr(sys.modules.get("bdb"), "BdbQuit", SystemExit)
    if raised.is_a(error, exits) or _ENDED_WAIT.search(one_line(error)):
        return True
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        if raised.is_a(each, KeyboardInterrupt):
            return True
        seen.add(id(each))
        each = raised.origin(each)
    return False


def one_line(error: BaseException) -> str:
    """`ValueError: bad`: the exception and the first line of its text."""
    if raised.is_a(error, SystemExit):
        return "SystemExit: " + cells.message(raised.code(error))
    text = raised.without_notes(error)[-1]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = " ".join(lines[: 2 if lines[:1] and lines[0].endswith(":") else 1])
    return _encode(cells.bound(first)).decode()


def _format(syntax: bool, seen: BaseException, cell: cells.Cell) -> str:
    """The plain traceback. Of a program's exit, only the status: Python shows no traceback."""
    only = syntax or (cell.program and raised.is_a(seen, SystemExit))
    return "".join((raised.only if only else raised.lines)(seen))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _keep_last(number: int, error: BaseException) -> None:
    """For %debug and pdb.pm() in the next cell."""
    state.failed = number
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, raised.trace(error)
    sys.last_exc = error  # type: ignore[attr-defined]  # Python 3.12


def drop_last() -> None:
    """Forgets the last exception: it holds frames, and they hold tensors."""
    state.failed = 0
    if not hasattr(sys, "last_value"):
        return
    for name in _LAST:
        if hasattr(sys, name):
            delattr(sys, name)
    shell.forget()


def _tidy(cell: cells.Cell, outcome: int) -> None:
    """Cleans up what a cell leaves behind: sources, reference cycles, cached GPU memory."""
    if outcome == OK:
        cell.forget_lines(_DEFINES.search)  # nothing else can show its lines any more
    if not state.autogc:
        return
    caches = gpu_report.has_caches()
    if outcome != OK or caches:
        gc.collect()
    if caches:
        with contextlib.suppress(RuntimeError):  # the CUDA context is lost
            gpu_report.empty_caches()
