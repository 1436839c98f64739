"""Breakpoints that a front end's debugger has set in a cell that runs on ranks."""

from __future__ import annotations

import contextlib
import sys

from ddip.errors import DipError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.groups import Group


def _debugger(shell):
    """The debugger of the shell's kernel; None if it has none."""
    return getattr(getattr(shell, "kernel", None), "debugger", None)


def choose(shell: InteractiveShell, word: str) -> None:
    """Makes breakpoints stop on a rank, or on all. Raises DipError if the kernel debugs none."""
    debugger = _debugger(shell)
    if not hasattr(debugger, "choose"):
        raise DipError("--debug: only the kernel 'DDP (ddipfs)' debugs ranks, if it has debugpy")
    if word != "all" and not word.isdecimal():
        raise DipError(f"--debug: want a rank or all, not '{word}'")
    group = debugger.group()
    if word != "all" and group is not None and int(word) >= group.size:
        raise DipError(f"--debug: there is no rank {word}")
    debugger.choose(None if word == "all" else int(word))
    who = "all ranks, which step together" if word == "all" else f"rank {int(word)}"
    off = "" if debugger.is_started else ", when the front end's debugger is on"
    print(f"From the next cell on breakpoints stop {who}{off}.")


def rank(shell: InteractiveShell) -> int:
    """The rank whose variables are shown: the one that is debugged, or 0."""
    return getattr(_debugger(shell), "rank", 0)


def around(shell: InteractiveShell, group: Group, source: str) -> AbstractContextManager[None]:
    """A context in which a cell runs on the ranks. In the kernel of the ranks its breakpoints hold
    there; another kernel's cannot, and that is said."""
    debugger = _debugger(shell)
    request: Any = getattr(shell, "get_parent", dict)()  # that of a kernel; a terminal has none
    code = (request or {}).get("content", {}).get("code", "")
    if hasattr(debugger, "around"):
        return debugger.around(group, source, code)
    # no debugger, or none that has been asked for
    if not getattr(debugger, "breakpoint_list", None) and not getattr(debugger, "is_started", 0):
        return contextlib.nullcontext()
    from ipykernel.compiler import get_file_name

    if debugger.breakpoint_list.get(get_file_name(code)):
        text = "The notebook's debugger does not stop on ranks: breakpoint() in the code does"
        print(text, file=sys.stderr)
    return contextlib.nullcontext()
