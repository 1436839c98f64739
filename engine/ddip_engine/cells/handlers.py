"""Signal handlers that a program has set, such as that of torch's data loaders for SIGCHLD: what
they raise ends a cell, but would leave half done what the ranks do together between cells.
"""

import contextlib
import signal

_late = []  # signals whose handlers are to run


@contextlib.contextmanager
def deferred(ours):
    """Within it no handler runs but ours. The others are owed to run_late()."""
    own = {each: signal.getsignal(each) for each in signal.valid_signals()}
    own = {each: it for each, it in own.items() if callable(it) and it not in ours}

    def note(signum, frame):
        _late.append(signum)

    try:
        for each in own:
            signal.signal(each, note)
        yield
    finally:
        _restore(own)


def _restore(own):
    """Sets them all, also if one that is set again raises at once. Raises that."""
    stray = None
    while own:
        try:
            for each in list(own):
                signal.signal(each, own[each])
                del own[each]
        except BaseException as e:
            stray = e
    if stray is not None:
        raise stray


def run_late():
    """Runs the handlers of the signals that have come meanwhile. Raises what one of them raises."""
    while _late:
        signal.raise_signal(_late.pop())
