"""The frames of the user's code in the main thread and what their names hold, while a cell runs or
hangs; and those of the traceback that a failed cell has left.

Another thread reads them, so nothing may be left behind. Before CPython 3.13 `f_locals` of a
function is a copy that the frame keeps: it is emptied again if nobody else has it, and if no tracer
will have it written back.
"""

from __future__ import annotations

import re
import sys
from _thread import get_ident
from errno import ENOENT

import _ddip
from ddip_engine import patches, state
from ddip_engine.data import table
from ddip_engine.data.view import ABSENT, INLINE, Export
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType, TracebackType
    from typing import Any, TypeAlias, TypeVar

    T = TypeVar("T")
    FrameLine: TypeAlias = tuple[FrameType, int]  # a frame, and the line that it is at

_INSTALLED = re.compile(
    r"<ddip_engine|<frozen |/(site|dist)-packages/|/lib(64)?/python\d[\d.]*t?/"
    r"|/python\d[\d.]*t?\.zip/"
)
_FIRST = "<ddip_engine importer>"  # below it is what has started the engine
_OPTIMIZED = 0x1  # a flag of code objects: its variables are in no dictionary
_SHARERS = {"locals", "vars"}  # a function that names one may have the copy
_KEPT = "it is kept after a failed cell, until one that does not look at the traceback"
_main = get_ident()  # imported by the main thread, before a program's gevent


def install() -> None:
    """From now on it is known whether the main thread is traced."""
    if sys.version_info < (3, 13):  # later ones make no copy
        for row in patches.TRACERS:
            row.replace(lambda real: _ddip.noting_tracer(real, False))
        for row in patches.ALL_TRACERS:
            row.replace(lambda real: _ddip.noting_tracer(real, True))


def begin_cell() -> None:
    """In the main thread: a tracer of an earlier cell may be there no more."""
    _ddip.traced(sys.gettrace() is not None or sys.getprofile() is not None)


def is_users(frame: FrameType) -> bool:
    """True for code of neither the engine, nor the standard library, nor an installed package: by
    the rule of frame_is_users() in fs/group/frames.c, which tests/frames.list compares."""
    return file_is_users(frame.f_code.co_filename)


def file_is_users(name: str) -> bool:
    """The same for the file of a frame, as a traceback names it."""
    return _INSTALLED.search(name) is None


def running() -> list[FrameLine]:
    """(frame, line) of the user's code in the main thread, innermost first; none between cells."""
    frame, found = _ddip.current_frames().get(_main) if state.running else None, []
    while frame is not None and frame.f_code.co_filename != _FIRST:
        if is_users(frame):
            found.append((frame, frame.f_lineno))
        frame = frame.f_back
    return found


def of_traceback(trace: TracebackType | None) -> list[FrameLine]:
    """(frame, line) of all its code, the innermost first."""
    found = []
    while trace is not None:
        found.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return found[::-1]


def _raised() -> list[FrameLine]:
    """The user's frames of the last traceback, the innermost first."""
    trace = getattr(sys, "last_traceback", None)
    return [each for each in of_traceback(trace) if is_users(each[0])]


def _keeps(cell: int) -> bool:
    return cell == state.failed and hasattr(sys, "last_traceback")


def of_failure(number: int) -> FrameType:
    """The user's frame with this number, 0 the innermost, of the failure that the rank keeps.
    Raises EngineError(ENOENT)."""
    if state.failed and state.cleared == state.failed:
        text = f"the failure of rank {state.rank} has lost its variables: memory ran out"
        raise EngineError(ENOENT, text)
    found = _raised() if _keeps(state.failed) else []
    if number < len(found):
        return found[number][0]
    if not found:
        raise EngineError(ENOENT, f"rank {state.rank} keeps no failure: {_KEPT}")
    text = f"the failure of rank {state.rank} has no frame {number}: want 0 to {len(found) - 1}"
    raise EngineError(ENOENT, text)


def _of(scope: str) -> list[FrameLine]:
    """The frames of a scope, the innermost first: `frames`, those that run; `frame F`, the one with
    this number; `cell N`, those of the traceback that cell N has left. Raises EngineError."""
    word, _, number = scope.partition(" ")
    if word == "cell" and not _keeps(int(number)):
        raise EngineError(
            ENOENT,
            f"rank {state.rank} does not keep what cell {number} has left: {_KEPT}",
        )
    frames = _raised() if word == "cell" else running()
    if word != "frame":
        return frames
    return frames[int(number) :][:1]


def place(frame: FrameType, line: int | None = None) -> str:
    """`train.py:44`; line: another one than that which runs."""
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{line or frame.f_lineno}"


def where(frame: FrameType, line: int) -> str:
    """`main() at train.py:44`"""
    name = frame.f_code.co_name
    return f"{name if name.startswith('<') else f'{name}()'} at {place(frame, line)}"


def is_function(frame: FrameType) -> bool:
    """False for code whose names are those of a module, or of a class."""
    return bool(frame.f_code.co_flags & _OPTIMIZED)


def _is_readable(frame: FrameType) -> bool:
    """False where reading could change what the program, or its debugger, has: before CPython 3.13
    `f_locals` of a function writes all names to a copy that a tracer writes back, and that
    locals() returns."""
    code = frame.f_code
    if sys.version_info >= (3, 13) or not code.co_flags & _OPTIMIZED:
        return True
    return frame.f_trace is None and _SHARERS.isdisjoint(code.co_names)


def read(frame: FrameType, function: Callable[[Mapping[str, Any]], T], is_own: bool = False) -> T:
    """function(the frame's names), which must keep none of them; of none if it is not readable.
    is_own: the caller is code that runs in this frame, so that it is."""
    if not is_own and not _is_readable(frame):
        return function({})
    names = frame.f_locals
    try:
        return function(names)
    finally:
        if frame.f_code.co_flags & _OPTIMIZED and type(names) is dict:
            _ddip.empty_copy(names)


def value(scope: str, name: str) -> Any:
    """What the name refers to in the innermost frame of the scope that has it. Raises
    EngineError(ENOENT)."""
    frames = _of(scope)
    for frame, _ in frames:
        found = read(frame, lambda names: names.get(name, ABSENT))
        if found is not ABSENT:
            return found
    if not frames:
        raise EngineError(ENOENT, f"rank {state.rank} has no such frame: it runs no such code now")
    place = where(*frames[0]) + (" nor in what called it" if len(frames) > 1 else "")
    text = f"no local '{name}' in {place}, on rank {state.rank}"
    for each in frames:
        if not _is_readable(each[0]):
            text += f"; {where(*each)} is traced or calls locals(), so it is not read"
            break
    raise EngineError(ENOENT, text)


def has(scope: str, name: str) -> tuple[bool, str]:
    """(is there such a name?, why there are no names at all)."""
    try:
        value(scope, name)
    except EngineError as e:
        return False, "" if _some(scope) else str(e)
    return True, ""


def _some(scope: str) -> bool:
    try:
        return bool(_of(scope))
    except EngineError:
        return False


def hint(name: str) -> str:
    """Where a name that is not global is to be found while a cell runs; or an empty text."""
    for frame, line in running():
        if is_function(frame) and read(frame, lambda names: name in names):
            return (
                f"no global '{name}'; {where(frame, line)} has a local '{name}':"
                f" rank{state.rank}/locals/{name}"
            )
    return ""


def _names(frame: FrameType) -> list[str]:
    return read(frame, lambda names: [name for name, _ in table.listed(names)])


def names(scope: str) -> Export:
    """The names that the frames of a scope have, sorted, one a line; as in the table of
    variables."""
    found = {name for frame, _ in _of(scope) for name in _names(frame)}
    return _export("".join(name + "\n" for name in sorted(found)))


def _export(text: str) -> Export:
    """The text as one message; only its first lines if there are more, some 50,000 names."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > INLINE:
        data = data[: data.rfind(b"\n", 0, INLINE) + 1]
    return Export(data)


def lines() -> Export:
    """A line for each frame that runs: its number, from 0, the innermost; FILE:LINE; its function;
    its names; separated by tabs."""
    text = []
    for number, (frame, line) in enumerate(running()):
        code = frame.f_code
        columns = str(number), f"{code.co_filename}:{line}", code.co_name, " ".join(_names(frame))
        text.append("\t".join(" ".join(column.split()) for column in columns) + "\n")
    return _export("".join(text))
