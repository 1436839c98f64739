"""Interrupts during imports. Python drops a package whose import was interrupted, and keeps the
parts of it that were done: the next import finds those, and fails until the process ends. So an
interrupt waits for the import that is under way, and where that takes too long, the parts go too.
"""

import _thread
import sys
import time

import _ddip

_WAIT_S = 2.0  # for an import that is under way
_AGAIN_S = 0.02  # between two looks at whether it is done
_IMPORTLIB = "<frozen importlib._bootstrap>"

_deadline = None  # monotonic time; None: no interrupt waits
_interrupted = []  # names of modules whose import was interrupted all the same


def put_off(frame, cell):
    """True: the interrupt comes again later, since modules are being imported in this frame."""
    global _deadline
    names = _imported_in(frame)
    now = time.monotonic()
    if names and _deadline is None:
        _deadline = now + _WAIT_S
        _thread.start_new_thread(_repeat, (cell,))
        return True
    if names and now < _deadline:
        return True
    _deadline = None
    _interrupted.extend(names)
    return False


def _imported_in(frame):
    """The modules whose import is under way, the outermost last."""
    names = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _IMPORTLIB and code.co_name == "_find_and_load":
            names.append(frame.f_locals.get("name", ""))
        frame = frame.f_back
    return names


def _repeat(cell):
    """Sends the interrupt again until it is taken, or its cell has ended."""
    while _deadline is not None and _ddip.repeat(cell):
        time.sleep(_AGAIN_S)


def clean_up():
    """After a cell: removes the parts of packages whose import was interrupted."""
    global _deadline
    _deadline = None
    while _interrupted:
        name = _interrupted.pop()
        if name in sys.modules:
            continue
        for part in [each for each in sys.modules if each.startswith(name + ".")]:
            del sys.modules[part]
