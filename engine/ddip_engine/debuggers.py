"""Debuggers in a cell: their stack begins with the cell, and stepping out of it goes nowhere."""

import functools
import sys


def change(module):
    """Changes the module bdb, on which pdb and IPython's debugger are built."""
    plain = module.Bdb.set_trace

    @functools.wraps(plain)
    def set_trace(self, frame=None, *args, **kwargs):
        frame = frame or sys._getframe(1)
        bottom = _bottom(frame)
        plain(self, frame, *args, **kwargs)
        if bottom is None:  # in a thread of the program
            return
        # from here on each call would be stepped into
        self.botframe = bottom
        above = bottom.f_back
        while above is not None:
            above.f_trace = None
            above = above.f_back

    module.Bdb.set_trace = set_trace


def _bottom(frame):
    """The frame of the cell that runs, None: this one is not within it."""
    from ddip_engine import run  # which imports this one, by way of the shell

    file, found = run.file_of_cell(), None
    while frame is not None:
        if frame.f_code.co_filename == file:
            found = frame
        frame = frame.f_back
    return found
