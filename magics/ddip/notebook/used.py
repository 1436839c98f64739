"""Tells whether the value of a magic is used, as by `r = %dip expr`, or only displayed."""

from __future__ import annotations

import dis
import sys

from IPython.core.interactiveshell import InteractiveShell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_CALLS = (InteractiveShell.run_line_magic.__code__, InteractiveShell.run_cell_magic.__code__)
_DROPPED = ("POP_TOP", "PRINT_EXPR")  # an expression statement; that of a cell's last line
_PRINT = "CALL_INTRINSIC_1", 1  # from CPython 3.12 on: INTRINSIC_PRINT
_CACHE = 0  # from CPython 3.11 on: what stands in for the inline cache of the instruction before


def is_used() -> bool:
    """True if the code that has called the magic that runs does something with its value."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code not in _CALLS:
        frame = frame.f_back
    caller = frame and frame.f_back
    if caller is None:
        return False
    code = caller.f_code
    then, arg = _after(code.co_code, caller.f_lasti)
    if then in _DROPPED or (then, arg) == _PRINT:
        return False
    # what %time evaluates is displayed
    return then != "RETURN_VALUE" or code.co_name != "<module>"


def _after(code, at):
    """(name, argument) of the instruction after the one at a byte offset; dis.get_instructions()
    decodes all of the code for each cell."""
    at += 2
    while code[at] == _CACHE:
        at += 2
    return dis.opname[code[at]], code[at + 1]
