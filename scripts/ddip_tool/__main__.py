"""All verbs of ddip except mount, demo and help.

usage: python3 ddip_tool MOUNT GROUP TRACE USAGE [ARG…]   run by scripts/ddip; USAGE names the verb

Needs only the standard library. The code that operates on files, on a mount or a socket, submits
cells and reads their streams is in the package ddip, which the magics use as well.
"""

import os
import signal
import sys

# until a verb runs, Ctrl-C ends the tool without a traceback; if it is ignored it stays ignored
_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _interrupts:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit("ddip: this python3 is %d.%d: 3.10 or newer is needed" % sys.version_info[:2])

for _fd in range(3):  # a file of the group must not get the number of a closed one
    try:
        os.fstat(_fd)
    except OSError:
        os.open(os.devnull, os.O_RDONLY)
_here = os.path.dirname(os.path.realpath(__file__))
sys.path[:1] = [_here]  # in an installation it has the package ddip, too
if not os.path.isdir(os.path.join(_here, "ddip")):
    sys.path.insert(1, os.path.join(_here, "../../magics"))

import tool  # noqa: E402
from ddip.errors import DipError  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# The module of each verb, and its function there if that has another name. A module is imported
# when its verb runs: `ddip status` must not wait for what others need.
_VERBS = {
    "run": "program",
    "exec": "cells.exec_code",
    "steer": "cells",
    "watch": "watch",
    "wait": "cells",
    "shell": "shell",
    "attach": "attach",
    "start": "control",
    "stop": "control.start",
    "restart": "control.start",
    "status": "status",
    "interrupt": "control",
    "cancel": "control",
    "save": "control.keep",
    "load": "control.keep",
    "selftest": "control",
    "umount": "control",
    "push": "objects",
    "pull": "objects",
    "tail": "output",
    "report": "output",
    "stack": "output",
    "cat": "paths",
    "write": "paths",
    "ls": "paths",
    "cp": "paths",
    "rm": "paths",
    "mkdir": "paths",
    "top": "top",
    "history": "history",
    "mcp": "mcp_server.serve",
    "doctor": "doctor",
}
# Those without options: there may be a `--` before their words.
_PLAIN = {
    *("attach", "start", "stop", "restart", "status", "report", "selftest", "save", "load"),
    *("cat", "write", "cp", "mkdir"),
}
_INSTALLED = {"mcp", "doctor"}  # use, or look at, packages that are installed


def _run(call: tool.Tool, words: "Sequence[str]") -> int:
    """Runs the verb of a call. Returns the exit status."""
    if call.verb in _INSTALLED:
        import site  # ddip starts Python without it: it may take longer than the verb

        site.main()
    module, _, function = _VERBS[call.verb].partition(".")
    if call.verb in _PLAIN:
        words = tool.Options(call, words, {}, {}, mixed=False).rest
    status: int = getattr(__import__(module), function or call.verb)(call, words)
    return status


def main(named: str, group: str, trace: str, usage: str, *words: str) -> int:
    """Runs a verb. Returns the exit status."""
    call = tool.Tool(named, group, trace, usage)
    try:
        if _interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = _run(call, words)
        tool.end_output()
        return status
    except KeyboardInterrupt:
        return tool.INTERRUPTED
    except BrokenPipeError:  # the reader is gone
        return tool.OK
    except (DipError, OSError) as e:
        failure = tool.failure_of(e)
    except tool.Failure as e:
        failure = e
    tool.say(str(failure))
    return failure.status


sys.exit(main(*sys.argv[1:]))
