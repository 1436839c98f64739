"""Interrupts that end the prompts of debuggers and consoles, which catch KeyboardInterrupt.

A cell that waits at such a prompt for somebody who has gone would never end. So an interrupt passes
the prompt as an exception that the prompt does not catch, and becomes itself again behind it. While
a command runs at the prompt, a person's Ctrl-C ends only the command, as in a terminal; what comes
from the group, such as a timeout, ends the prompt as well, which catches everything of a command.
"""

from __future__ import annotations

import functools
import sys

from ddip_engine import patches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, TypeVar

    T = TypeVar("T")

# What catches KeyboardInterrupt and asks again; or goes on with the next line, if a debugger that
# steps is only about to ask.
_LOOPS = {(row.module, row.path.rpartition(".")[2]) for row in (patches.CMDLOOP, patches.INTERACT)}
_LOOPS.add(("bdb", "trace_dispatch"))
_COMMANDS = {("pdb", "onecmd"), ("cmd", "onecmd"), ("code", "push")}  # what they call for a command


_caught: Left | None = None  # a Left that the prompt may have caught with a command of its


class Left(BaseException):
    """Carries the exception of an interrupt out of a prompt."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def passing(error: BaseException, frame: FrameType | None, by_person: bool) -> BaseException:
    """The exception to raise in this frame, so that error ends what waits at a prompt.

    by_person: False if nobody could go on at the prompt afterwards, as after a timeout.
    """
    global _caught
    while frame is not None:
        name = frame.f_globals.get("__name__"), frame.f_code.co_name
        if name in _LOOPS:
            _caught = Left(error)
            return _caught
        if by_person and name in _COMMANDS:
            return error
        frame = frame.f_back
    return error


def leave() -> None:
    """Called before input is waited for: raises again what a prompt has caught."""
    if _caught is not None:
        raise _caught


def itself(left: Left) -> BaseException:
    """The interrupt that has left its prompt."""
    global _caught
    _caught = None
    return left.error


def forget() -> None:
    """The cell has ended."""
    global _caught
    _caught = None


def run(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Calls a function that runs a prompt: an interrupt that leaves it is itself again."""
    try:
        return function(*args, **kwargs)
    except Left as left:
        error = itself(left)
    raise error


def prompting(plain: Callable[..., T]) -> Callable[..., T]:
    """A function that runs a prompt, such as pdb.post_mortem()."""

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> T:
        return run(plain, *args, **kwargs)

    return call


def traced(plain: Callable[..., T]) -> Callable[..., T]:
    """Bdb.trace_dispatch(). A debugger whose prompt was left does not trace the cell's handlers."""

    @functools.wraps(plain)
    def trace_dispatch(self: Any, frame: FrameType, event: str, arg: Any) -> T:
        try:
            return plain(self, frame, event, arg)
        except Left as left:
            error = itself(left)
        stop = getattr(self, "stop_trace", None)  # since Python 3.14, which may not use settrace
        stop() if stop else sys.settrace(None)
        raise error

    return trace_dispatch


def without_sigint(plain: Callable[..., None]) -> Callable[..., None]:
    """Pdb.__init__() for debuggers that do not ask again at an interrupt after `continue`."""

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        self.nosigint = True

    return init
