"""Debuggers in a cell: their stack begins at the cell, and stepping does not leave it."""

from __future__ import annotations

import functools
import sys

from ddip_engine import patches, raised, state
from ddip_engine.cells import prompts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from ddip_engine.cells.cell import Cell


def change(plain: Callable[..., None]) -> Callable[..., None]:
    """Makes Bdb.set_trace, on which pdb and IPython's debugger are built."""

    @functools.wraps(plain)
    def set_trace(self: Any, frame: FrameType | None = None, *args: Any, **kwargs: Any) -> None:
        frame = frame or sys._getframe(1)
        bottom = _bottom(frame)
        plain(self, frame, *args, **kwargs)
        if bottom is None:  # in a thread of the program
            return
        # else the debugger would go on stepping in the frames above the cell
        self.botframe = bottom
        above = bottom.f_back
        while above is not None:
            above.f_trace = None
            above = above.f_back

    return set_trace


def _bottom(frame: FrameType | None) -> FrameType | None:
    """The frame of the running cell; None if this frame is not inside it."""
    found = None
    while frame is not None:
        if frame.f_code.co_filename == state.cell_file:
            found = frame
        frame = frame.f_back
    return found


def begin(
    shell: Any, cell: Cell | None, post_mortem: Callable[[bool], object], force: bool
) -> None:
    """Calls IPython's debugger for %debug, or for the exception that was just shown, with %pdb on.

    Then the prompt can be interrupted like the cell's code. A cell that was interrupted ends
    without it: the stop button must end it on all ranks.
    """
    error = shell.shown_error
    interrupted = cell is not None and (cell.interrupted or raised.is_a(error, KeyboardInterrupt))
    if cell is None or (cell.in_code and force):
        prompts.run(post_mortem, force)
    elif shell.call_pdb and not interrupted and raised.trace(error) is not None:
        with cell.code():
            if cell.held is not None:
                return
            if (keep := patches.EXC_INFO.of(shell)) is not None:
                keep((type(error), error, raised.trace(error)))  # sets sys.last_value …
            # the prompt is shown before the traceback
            print(*raised.only(error), sep="", end="")
            prompts.run(post_mortem, True)
