"""Delays interrupts during imports, and while the lock of the module logging changes hands.

Python drops a package whose import was interrupted but keeps the submodules that were complete: the
next import finds those and fails, as long as the process lives. So an interrupt waits for the
import in progress; if that takes too long, the submodules are dropped too.

Before 3.13 each os.fork() takes and releases logging's lock in Python. What is raised there is
lost, and the lock stays taken: no other thread could log, or fork, as those of multiprocessing do.
"""

from __future__ import annotations

import contextlib
import sys
import time

# by name, before a program's gevent replaces them
from _thread import get_ident, start_new_thread
from time import sleep

import _ddip
from ddip_engine import patches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

WAIT_S = 2.0  # for an import in progress
# Of torch's modules: what they have registered, in C++ and in torch's tables, can't be registered
# again, and torch._dynamo takes seconds on a busy machine.
TORCH_WAIT_S = 10.0
_AGAIN_S = 0.02  # between checks whether it is done, and whether the interrupt was taken;
_AGAIN_MAX_S = 0.5  # the pause of the latter grows up to this

# before 3.13
_LOCK = {("logging", "_acquireLock"), ("logging", "_releaseLock")}
_waiting: _Interrupt | None = None  # the _Interrupt that is pending; None if there is none
_interrupted: list[str] = []  # names of modules whose import was interrupted after all


class _Interrupt:
    """An interrupt that came too early; it is sent again when what was under way is done, or takes
    too long."""

    def __init__(self, cell: int, names: Iterable[str]) -> None:
        self.cell = cell
        self.deadline = time.monotonic() + wait_s(names)
        self.held = True  # still to be sent
        start_new_thread(self._send, (get_ident(),))

    def _send(self, main: int) -> None:
        global _waiting
        pause = _AGAIN_S
        while _waiting is self:
            if self.held and not (self.is_early() and _delaying(_ddip.current_frames().get(main))):
                self.held = False
                if not _ddip.repeat(self.cell):
                    return
            sleep(pause)
            if self.held:
                pause = _AGAIN_S
            elif _ddip.probe():  # not yet taken: the program blocks it, or runs C code
                pause = min(2 * pause, _AGAIN_MAX_S)
            else:
                _waiting = None
                if not self.held:
                    return
                _waiting = _waiting or self

    def is_early(self) -> bool:
        """True while it can still wait."""
        return time.monotonic() < self.deadline


def wait_s(names: Iterable[str]) -> float:
    """For how many seconds an interrupt waits for the import of these modules."""
    torch = any(name.partition(".")[0] == "torch" for name in names)
    return TORCH_WAIT_S if torch else WAIT_S


def put_off(frame: FrameType | None, cell: int) -> bool:
    """Returns True if the interrupt is deferred, since modules are being imported in this frame, or
    logging's lock is being taken or released."""
    global _waiting
    busy, waiting = _delaying(frame), _waiting
    if busy and waiting is not None and waiting.is_early():
        waiting.held = True
        if _waiting is waiting:
            return True
        waiting = None  # its thread has just ended, and may not have seen this
    if busy and waiting is None:
        with contextlib.suppress(RuntimeError):  # no thread can be started to wait
            _waiting = _Interrupt(cell, under_way(frame))
            return True
    _waiting = None
    note_interrupted(under_way(frame))
    return False


def holds() -> bool:
    """True while an interrupt waits."""
    waiting = _waiting
    return waiting is not None and waiting.held


def under_way(frame: FrameType | None) -> list[str]:
    """The names of the modules that are being imported in this frame."""
    return [each.f_locals.get("name", "") for each, is_import in _delaying(frame) if is_import]


def note_interrupted(names: Iterable[str]) -> None:
    """Records modules whose import is interrupted, for drop_parts()."""
    _interrupted.extend(names)


def _delaying(frame: FrameType | None) -> list[tuple[FrameType, bool]]:
    """The frames below which no interrupt is raised, the outermost last, as (frame, is it an
    import?)."""
    found = []
    imports = getattr(patches.FIND_AND_LOAD.get(), "__code__", None)
    while frame is not None:
        is_import = frame.f_code is imports
        if is_import or (frame.f_globals.get("__name__"), frame.f_code.co_name) in _LOCK:
            found.append((frame, is_import))
        frame = frame.f_back
    return found


def clean_up() -> None:
    """Called after a cell."""
    global _waiting
    _waiting = None
    drop_parts()


def drop_parts() -> None:
    """Removes the submodules of packages whose import was interrupted."""
    while _interrupted:
        name = _interrupted.pop()
        if name in sys.modules:
            continue
        for part in [each for each in sys.modules if each.startswith(name + ".")]:
            del sys.modules[part]
