"""ddip attach: what a rank prints, and lines for its input() and debugger."""

import os
import select
import signal

from cells import write_all
from tool import NOTHING, OK, USAGE, Failure

_PIECE = 64 << 10
_LAST_LINES = 5  # of what the rank printed before


def attach(tool, words):
    """Ctrl-C interrupts what the rank runs; Ctrl-D, or the rank's end, ends this."""
    if len(words) != 1:
        raise tool.misuse()
    rank = f"rank{words[0]}"
    if not words[0].isdecimal():
        raise Failure(USAGE, f"a rank is a number, not '{words[0]}'")
    if not os.path.isdir(tool.path(rank)):
        raise Failure(NOTHING, f"no rank {words[0]} in {tool.group.path}")
    tool.show(
        f"tail -n {_LAST_LINES} {tool.path(rank)}/stdout; cat {tool.path(rank)}/follow &"
        f" cat > {tool.path(rank)}/stdin"
    )
    signal.signal(signal.SIGINT, lambda *_: tool.tell(f"{rank}/ctl", "interrupt"))
    # opened before the end is printed: nothing is missed between the two
    with open(tool.path(f"{rank}/follow"), "rb", 0) as follow:
        _print_end(tool.path(f"{rank}/stdout"))
        _talk(follow, tool.path(f"{rank}/stdin"))
    return OK


def _print_end(path):
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _PIECE))
        write_all(1, b"".join(file.readlines()[-_LAST_LINES:]))


def _talk(follow, stdin):
    """Until either side ends."""
    poller = select.poll()
    poller.register(follow, select.POLLIN)
    poller.register(0, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            data = os.read(fd, _PIECE)
            if not data:
                return
            if fd == 0:
                with open(stdin, "wb", 0) as file:
                    write_all(file.fileno(), data)
            else:
                write_all(1, data)
