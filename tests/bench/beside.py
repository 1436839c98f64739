"""What a user of a notebook waits for, with ddipfs and with ipyparallel in one shell, in turn.

Also writes the table to the page scripts/ddip-coming-from.7, between the lines that mark it.
"""

import json
import os
import re
import subprocess

from lib import PEER, ROOT, Mount, here, median, ms, times

PAGE = os.path.join(ROOT, "scripts", "ddip-coming-from.7")
# name of a measurement in beside_cells.py: its name in the table
ROWS = {
    "start": "start, to the end of the first cell",
    "cell": "a cell that does nothing",
    "line": "a printed line, until it is shown",
    "picture": "a picture of 1 MB",
    "error": "1 / 0, until its traceback is shown",
    "interrupt": "Ctrl-C during a sleep, until the prompt",
    "complete": "completion of a rank's name.attribute",
}


def main(report):
    with Mount(size=2) as m:  # the driver mounts another one itself, and measures that
        m.settle()
        env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "magics"), DDIP_STATE=m.dir)
        command = [*m.command[:-1], os.path.join(m.dir, "other")]
        os.mkdir(command[-1])
        run = subprocess.run(
            [PEER, here("beside_cells.py"), m.path, *command],
            env=env,
            stdout=subprocess.PIPE,
            check=True,
        )
    taken = json.loads(run.stdout.splitlines()[-1])
    rows = []
    for name, what in ROWS.items():
        ours, peers = (taken[by].get(name) for by in ("dip", "px"))
        row = what, spell(median(ours)), spell(median(peers)) if peers else "none"
        report.add(*row, times(median(peers), median(ours)) if peers else "")
        rows.append(row)
    write_page(rows)


def spell(seconds):
    """Two significant digits, no more: the machine is not quiet."""
    return f"{seconds:.1f} s" if seconds >= 1 else ms(seconds, 0 if seconds >= 0.01 else 1)


def write_page(rows):
    """Replaces the table between the lines `begin` and `end` of the page."""
    widest = max((row[0] for row in rows), key=len)
    table = [f'.Bl -column "{widest}" "1000 ms" "ipyparallel"']
    table += [".It Sy work Ta Sy ddipfs Ta Sy ipyparallel"]
    table += [".It " + " Ta ".join(row) for row in rows]
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    between = re.compile(r'(?<=\n)(\.\\" begin: make bench T=beside\n).*?(\.\\" end\n)', re.S)
    page = between.sub(lambda m: m[1] + "\n".join([*table, ".El\n"]) + m[2], page)
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page)
