"""Handles a cell that ended because memory ran out: reports in `events` what was in use, by name.

The traceback stays, but its frames release their variables.
"""

from __future__ import annotations

import contextlib
import re
import traceback

import _ddip
from ddip_engine import raised, state
from ddip_engine.data import gpu_report, table
from ddip_engine.data.view import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType
    from typing import Any

# RuntimeErrors that mean it: from CUDA and cuBLAS calls, and from torch's host allocator.
_MEANS_IT = re.compile(r"out of memory|STATUS_ALLOC_FAILED|can't allocate memory")
_OF_HOST = re.compile(r"CPUAllocator|not enough memory")
_HOST_MODULES = ("builtins", "numpy")


def handle(cell: int, error: BaseException) -> None:
    """If the cell ended because memory ran out, reports what was in use and releases it."""
    found = next((each for each in _chain(error) if _is_one(each)), None)
    if found is None:
        return
    frames = [frame for each in _chain(error) for frame, _ in traceback.walk_tb(raised.trace(each))]
    with contextlib.suppress(Exception):  # it examines objects of the program
        _ddip.notify("Nmemory", cell, _text(found, frames))
    if state.autogc:
        _clear(frames)
        state.cleared = cell


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, its causes and contexts, and the exceptions in its group."""
    waiting, seen = [error], set()
    while waiting:
        error = waiting.pop(0)
        if id(error) in seen:
            continue
        seen.add(id(error))
        yield error
        waiting += raised.parts(error)


def _is_one(error: BaseException) -> bool:
    if raised.is_a(error, MemoryError) or type_name(type(error)) == "OutOfMemoryError":
        return True
    return raised.is_a(error, RuntimeError) and _MEANS_IT.search(_said(error)) is not None


def _said(error: BaseException) -> str:
    return " ".join(each for each in raised.args(error) if type(each) is str)


def _clear(frames: Iterable[FrameType]) -> None:
    """Drops the variables of the frames and of their callers: the engine's own frames, which are
    trimmed from tracebacks, hold the arguments of what they called. Running frames stay as they
    are."""
    waiting: list[FrameType | None] = list(frames)
    seen = set()
    while waiting:
        frame = waiting.pop()
        if frame is None or id(frame) in seen:
            continue
        seen.add(id(frame))
        waiting.append(frame.f_back)
        with contextlib.suppress(RuntimeError):
            frame.clear()
            _ = frame.f_locals  # before Python 3.13 this is a copy, which reading it refreshes


def _text(error: BaseException, frames: Iterable[FrameType]) -> str:
    """`of=gpu KEY=BYTES… largest=NAME:BYTES,…`, in the form of an event."""
    on_host = type(error).__module__.partition(".")[0] in _HOST_MODULES and (
        not raised.is_a(error, RuntimeError) or _OF_HOST.search(_said(error)) is not None
    )
    size_of = gpu_report.host_size_of if on_host else gpu_report.size_of
    words = ["of=host" if on_host else "of=gpu"]
    if not on_host:
        words += [f"{key}={n}" for key, n in gpu_report.device_bytes()]
    largest = gpu_report.largest(_named(frames), size_of)
    words.append("largest=" + (",".join(f"{name}:{size}" for size, name in largest) or "-"))
    return " ".join(words)


def _named(frames: Iterable[FrameType]) -> Iterator[tuple[str, Any]]:
    """(name, object) of the namespace, then of functions, as FUNCTION.NAME; each object once."""
    seen = set()
    for name, value in (*table.names(), *_locals(frames)):
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value


def _locals(frames: Iterable[FrameType]) -> Iterator[tuple[str, Any]]:
    for frame in frames:
        if frame.f_locals is frame.f_globals:
            continue
        for name, value in list(frame.f_locals.items()):
            yield f"{frame.f_code.co_name}.{name}", value
