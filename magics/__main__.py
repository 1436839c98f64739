"""The shell tool `ddip`: all its verbs except mount, demo and help.

usage: python3 DIRECTORY MOUNT GROUP TRACE USAGE [ARG…]   run by scripts/ddip; USAGE names the verb,
DIRECTORY is this one, or a link to it

Needs only the standard library. The verbs are in ddip/tool; the code that operates on files, on a
mount or a socket, submits cells and reads their streams is that of the magics.
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

sys.path[0] = os.path.dirname(os.path.realpath(__file__))  # where ddipfs is looked for from

from ddip.tool.verbs import main  # noqa: E402

sys.exit(main(_interrupts, *sys.argv[1:]))
