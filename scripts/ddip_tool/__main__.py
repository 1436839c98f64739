"""The verbs of ddip that run Python and follow it: run, exec, wait, shell, attach, top.

usage: python3 ddip_tool GROUP TRACE USAGE VERB [ARG…]   by scripts/ddip, which found the group

Needs the standard library alone. How a cell is submitted and its stream read is in the package
ddip, which the magics use as well.
"""

import os
import sys

if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit("ddip: this python3 is %d.%d: 3.10 or newer is needed" % sys.version_info[:2])

for _fd in range(3):  # one that is closed must not become a file of the group
    try:
        os.fstat(_fd)
    except OSError:
        os.open(os.devnull, os.O_RDONLY)
_here = os.path.dirname(os.path.realpath(__file__))
# in the source tree; where it was installed
_homes = [os.path.join(_here, up) for up in ("../../magics", "../../../share/ddipfs/magics")]
sys.path[:1] = [_here, *(home for home in _homes if os.path.isdir(os.path.join(home, "ddip")))]

import attach  # noqa: E402
import cells  # noqa: E402
import program  # noqa: E402
import shell  # noqa: E402
import tool  # noqa: E402
import top  # noqa: E402
from ddip.errors import DipError  # noqa: E402

_VERBS = {
    "run": program.run,
    "exec": cells.exec_code,
    "wait": cells.wait,
    "shell": shell.shell,
    "attach": attach.attach,
    "top": top.top,
}


def main(path, trace, usage, verb, *words):
    """Does what a verb says. Returns the exit status."""
    try:
        return _VERBS[verb](tool.Tool(path, trace, usage), words)
    except KeyboardInterrupt:
        return tool.INTERRUPTED
    except (DipError, OSError) as e:
        failure = tool.failure_of(e)
    except tool.Failure as e:
        failure = e
    tool.say(str(failure))
    return failure.status


sys.exit(main(*sys.argv[1:]))
