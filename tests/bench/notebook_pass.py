"""One IPython shell on the mount of DDIP_MOUNT: the median seconds of `%%dip pass`, as JSON."""

import contextlib
import io
import json
import os
import statistics
import time

from IPython.core.interactiveshell import InteractiveShell

TIMES = 200


def main():
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "ddip")
    taken = []
    with contextlib.redirect_stdout(io.StringIO()):
        shell.run_line_magic("makedip", "-m " + os.environ["DDIP_MOUNT"])
        for _ in range(TIMES):
            begin = time.perf_counter()
            shell.run_cell("%%dip\npass").raise_error()
            taken.append(time.perf_counter() - begin)
    print(json.dumps(statistics.median(taken)))


main()
