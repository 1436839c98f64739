"""Which module has each verb of `ddip`, and how a verb runs."""

from __future__ import annotations

import signal

from ddip.errors import DipError
from ddip.tool.call import INTERRUPTED, OK, Failure, Options, Tool, end_output, failure_of, say

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


def _run(call: Tool, words: Sequence[str]) -> int:
    """Runs the verb of a call. Returns the exit status."""
    if call.verb in _INSTALLED:
        import site  # ddip starts Python without it: it may take longer than the verb

        site.main()
    module, _, function = _VERBS[call.verb].partition(".")
    if call.verb in _PLAIN:
        words = Options(call, words, {}, {}, mixed=False).rest
    found = __import__(f"ddip.tool.{module}", fromlist=[module])
    status: int = getattr(found, function or call.verb)(call, words)
    return status


def main(interrupts: bool, named: str, group: str, trace: str, usage: str, *words: str) -> int:
    """Runs a verb. interrupts: Ctrl-C raises KeyboardInterrupt from now on; False: it is ignored.
    Returns the exit status."""
    call = Tool(named, group, trace, usage)
    try:
        if interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = _run(call, words)
        end_output()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader is gone
        return OK
    except (DipError, OSError) as e:
        failure = failure_of(e)
    except Failure as e:
        failure = e
    say(str(failure))
    return failure.status
