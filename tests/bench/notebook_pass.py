"""One IPython shell on the mount of DDIP_MOUNT, as JSON: how many seconds `%%dip pass` takes more
than a local cell, by the medians of both.
"""

import contextlib
import io
import json
import os
import statistics
import time

from IPython.core.interactiveshell import InteractiveShell

TIMES = 200


def seconds(shell, source):
    """The median of a cell."""
    taken = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        shell.run_cell(source).raise_error()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def main():
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "ddip")
    with contextlib.redirect_stdout(io.StringIO()):
        shell.run_line_magic("makedip", "-m " + os.environ["DDIP_MOUNT"])
        beyond = seconds(shell, "%%dip\npass") - seconds(shell, "pass")
    print(json.dumps(beyond))


main()
