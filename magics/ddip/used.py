"""Tells whether the value of a magic is used, as by `r = %dip expr`, or only displayed."""

import dis
import sys

from IPython.core.interactiveshell import InteractiveShell

_CALLS = (InteractiveShell.run_line_magic.__code__, InteractiveShell.run_cell_magic.__code__)
_DROPPED = ("POP_TOP", "PRINT_EXPR")  # an expression statement; that of a cell's last line
_PRINT = "CALL_INTRINSIC_1", 1  # from CPython 3.12 on: INTRINSIC_PRINT


def is_used():
    """True if the code that has called the magic that runs does something with its value."""
    frame = sys._getframe()
    while frame is not None and frame.f_code not in _CALLS:
        frame = frame.f_back
    caller = frame and frame.f_back
    if caller is None:
        return False
    code, at = caller.f_code, caller.f_lasti
    then = next((each for each in dis.get_instructions(code) if each.offset > at), None)
    if then is None or then.opname in _DROPPED or (then.opname, then.arg) == _PRINT:
        return False
    # what %time evaluates is displayed
    return then.opname != "RETURN_VALUE" or code.co_name != "<module>"
