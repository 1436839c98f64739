"""In which collective a rank was when it was freed because another one had failed, or when that
collective raised an exception."""

from __future__ import annotations

from ddip_engine import patches, raised
from ddip_engine.data import frames
from ddip_engine.interrupts import PeerFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from ddip_engine.cells.cell import Freed

_WAIT = ("backward", "forward", "wait")  # what waits for other ranks, beside the collectives


def place(error: BaseException) -> Freed:
    """{"freed": "barrier(), <cell 6>:3"} for the `error` message of a rank that was freed: the
    collective that it was in, if a frame shows one, and the line of the user's. {"within": …}, the
    same, for an exception that a collective has raised. {} for other exceptions."""
    inner, user = _within_users(raised.trace(error))
    if user is None:
        return {}
    if not raised.is_a(error, PeerFailed):
        called = [name for name in inner if name in patches.COLLECTIVES]
        return {"within": _place(called, user)} if called else {}
    # those that the call had left with an error, as a collective does whose connections end
    before = raised.context(error)
    left, _ = _within_users(None if before is None else raised.trace(before))
    known = [name for name in left + inner if name in patches.COLLECTIVES or name in _WAIT]
    return {"freed": _place(known, user)}


def _place(called: list[str], user: tuple[FrameType, int]) -> str:
    """The outermost of the functions called, and the user's line."""
    frame, line = user
    where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}"
    return f"{called[-1]}(), {where}" if called else where


def _within_users(
    trace: TracebackType | None,
) -> tuple[list[str], tuple[FrameType, int] | None]:
    """The names of the functions within the user's innermost line, the innermost first; and that
    (frame, line), None: there is none."""
    names: list[str] = []
    for frame, line in frames.of_traceback(trace):
        if frames.is_users(frame):
            return names, (frame, line)
        names.append(frame.f_code.co_name)
    return names, None
