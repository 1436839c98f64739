"""The notebook: %%dip and ipyparallel's %%px in one shell: an empty cell, much output."""

import json
import os
import subprocess

from lib import PEER, ROOT, Mount, here, median, ms, percentile, times


def main(report):
    with Mount(size=2) as m:
        m.settle()
        env = dict(os.environ, DDIP_MOUNT=m.path, PYTHONPATH=os.path.join(ROOT, "magics"))
        run = subprocess.run(
            [PEER, here("notebook_cells.py")], env=env, stdout=subprocess.PIPE, check=True
        )
        taken = json.loads(run.stdout.splitlines()[-1])
    local, dip, px = (median(taken[name]) for name in ("local", "dip", "px"))
    report.add(
        f"`%%dip pass` beyond a local cell (99 %: {ms(percentile(taken['dip'], 99))})",
        ms(dip - local),
        f"`%%px` {ms(px - local)}",
        times(px - local, dip - local),
        "5 ms; 3×",
    )
    dip, px = (median(taken[name]) for name in ("dip_lines", "px_lines"))
    report.add(
        "10⁵ lines by each of 2 ranks, shown and kept",
        ms(dip, 0),
        f"`%%px` {ms(px, 0)}",
        times(px, dip),
        "5×",
    )
    report.add("`import ddip`", ms(taken["import"]), "", "", "50 ms")
