"""ddip attach: prints what a rank prints, and passes lines to its input() and debugger."""

import os
import select
import signal
import time

from ddip import files, p9_file
from output import print_end
from tool import OK, number_of, put_out

_PIECE = p9_file.AHEAD
_LAST_LINES = 5  # of the rank's earlier output


def attach(tool, words):
    """ddip attach. Ctrl-C interrupts what the rank runs; Ctrl-D, or the rank's exit, ends it."""
    if len(words) != 1:
        raise tool.misuse()
    rank = f"rank{number_of(tool, words[0])}"
    tool.show(
        f"tail -n {_LAST_LINES} {tool.path(rank)}/stdout; cat {tool.path(rank)}/follow &"
        f" cat > {tool.path(rank)}/stdin"
    )

    def interrupt(*_):
        with tool.telling("interrupt"):
            tool.tell(f"{rank}/ctl", "interrupt")

    signal.signal(signal.SIGINT, interrupt)
    # opened before the last lines are printed, so that nothing is missed in between
    with files.open_(tool.path(f"{rank}/follow")) as follow:
        print_end(tool.path(f"{rank}/stdout"), _LAST_LINES)
        _talk(tool, follow, f"{rank}/stdin")
    return OK


def _talk(tool, follow, name):
    """Copies both ways until either side ends. name: the rank's input."""
    stdin = tool.path(name)
    while True:
        poller = select.poll()
        poller.register(follow.arm(), select.POLLIN)
        poller.register(0, select.POLLIN)
        for fd, _ in poller.poll():
            data = os.read(0, _PIECE) if fd == 0 else follow.read(_PIECE)
            if not data and fd != 0 and files.exists(stdin):
                time.sleep(files.LOOK_S)
                continue
            if not data:
                return
            if fd == 0:
                with tool.telling(name):
                    files.write(stdin, data)
            else:
                put_out(data)
