"""Cells of one IPython shell, by %%dip and by ipyparallel's %%px in turn. Prints seconds as JSON.

usage: notebook_cells.py, in an environment with ipyparallel; DDIP_MOUNT is a mount with 2 ranks
"""

import contextlib
import io
import json
import os
import time

started = time.perf_counter()
import ddip  # noqa: E402,F401

imported = time.perf_counter() - started

import ipyparallel  # noqa: E402
from IPython.core.interactiveshell import InteractiveShell  # noqa: E402

TIMES, LINES = 300, 100000
PRINTS = f"for i in range({LINES}): print(i, 'a line of a cell')"


def timed(shell, source, times):
    taken = []
    for _ in range(times + 3):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            begin = time.perf_counter()
            result = shell.run_cell(source)
            taken.append(time.perf_counter() - begin)
        result.raise_error()
    return taken[3:], out.getvalue()


def main():
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "ddip")
    with contextlib.redirect_stdout(io.StringIO()):
        shell.run_line_magic("makedip", "-m " + os.environ["DDIP_MOUNT"])
    result = {"import": imported}
    with ipyparallel.Cluster(n=2, log_level=40) as client:
        client[:].activate()
        for name, cell in (("local", ""), ("dip", "%%dip\n"), ("px", "%%px --block\n")):
            result[name], _ = timed(shell, cell + "pass", TIMES)
        for name, cell in (("dip", "%%dip --see all\n"), ("px", "%%px --block\n")):
            result[name + "_lines"], out = timed(shell, cell + PRINTS, 3)
            assert f"{LINES - 1} a line of a cell" in out, out[-1000:]
    print(json.dumps(result))


main()
