"""Where a rank was when it was freed because another one had failed."""

from ddip_engine import frames, patches
from ddip_engine.interrupts import PeerFailed

_WAIT = ("backward", "forward", "wait")  # what waits for other ranks, beside the collectives


def place(error):
    """{"freed": "barrier(), <cell 6>:3"} for the `error` message of such a rank: the collective
    that it was in, if a frame shows one, and the line of the user's. {} for other exceptions."""
    if not isinstance(error, PeerFailed):
        return {}
    # names of the functions within the user's innermost line, the innermost first
    inner = _left(error.__context__)
    for frame, line in frames.of_traceback(error.__traceback__):
        if not frames.is_users(frame):
            inner.append(frame.f_code.co_name)
            continue
        known = [name for name in inner if name in patches.COLLECTIVES or name in _WAIT]
        where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}"
        return {"freed": f"{known[-1]}(), {where}" if known else where}
    return {}


def _left(error):
    """Those that the call had left with an error, as a collective does whose connections end, when
    the interrupt was raised."""
    names = []
    for frame, _ in frames.of_traceback(error.__traceback__) if error is not None else ():
        if frames.is_users(frame):
            break
        names.append(frame.f_code.co_name)
    return names
