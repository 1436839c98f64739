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

import attach  # noqa: E402
import cells  # noqa: E402
import control  # noqa: E402
import doctor  # noqa: E402
import history  # noqa: E402
import mcp_server  # noqa: E402
import objects  # noqa: E402
import output  # noqa: E402
import paths  # noqa: E402
import program  # noqa: E402
import shell  # noqa: E402
import tool  # noqa: E402
import top  # noqa: E402
from ddip.errors import DipError  # noqa: E402


def _plain(verb):
    """A verb without options: there may be a `--` before its words."""
    return lambda call, words: verb(call, tool.Options(call, words, {}, {}, mixed=False).rest)


_VERBS = {
    "run": program.run,
    "exec": cells.exec_code,
    "wait": cells.wait,
    "shell": shell.shell,
    "attach": _plain(attach.attach),
    "start": _plain(control.start),
    "stop": _plain(control.start),
    "restart": _plain(control.start),
    "status": _plain(control.status),
    "interrupt": control.interrupt,
    "cancel": control.cancel,
    "selftest": _plain(control.selftest),
    "umount": control.umount,
    "push": objects.push,
    "pull": objects.pull,
    "tail": output.tail,
    "stack": output.stack,
    "cat": _plain(paths.cat),
    "write": _plain(paths.write),
    "ls": paths.ls,
    "cp": _plain(paths.cp),
    "rm": paths.rm,
    "mkdir": _plain(paths.mkdir),
    "top": top.top,
    "history": history.history,
    "mcp": mcp_server.serve,
    "doctor": doctor.doctor,
}


def main(named, group, trace, usage, *words):
    """Runs a verb. Returns the exit status."""
    call = tool.Tool(named, group, trace, usage)
    try:
        if _interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = _VERBS[call.verb](call, words)
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
