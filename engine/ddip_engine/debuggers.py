"""Debuggers in a cell: their stack begins at the cell, and stepping does not leave it."""

import functools
import sys


def change(module):
    """Patches the module bdb, on which pdb and IPython's debugger are built."""
    plain = module.Bdb.set_trace

    @functools.wraps(plain)
    def set_trace(self, frame=None, *args, **kwargs):
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

    module.Bdb.set_trace = set_trace


def _bottom(frame):
    """The frame of the running cell; None if this frame is not inside it."""
    from ddip_engine import run  # which imports this module by way of the shell

    file, found = run.file_of_cell(), None
    while frame is not None:
        if frame.f_code.co_filename == file:
            found = frame
        frame = frame.f_back
    return found
