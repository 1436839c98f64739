"""Cells: the cost of an empty one, from an open descriptor and from a process of its own."""

import subprocess

from lib import Mount, ipyparallel, median, ms, percentile, timed, times

TIMES = 1000


def main(report):
    with Mount(size=2) as m:
        m.settle()
        with m.cells() as run:
            timed(lambda: run("pass"), 200)
            ours = timed(lambda: run("pass"), TIMES)
        peer = ipyparallel("cell", TIMES)
        report.add(
            f"empty cell on 2 ranks (99 %: {ms(percentile(ours, 99))})",
            ms(median(ours)),
            f"ipyparallel {ms(median(peer))}",
            times(median(peer), median(ours)),
            "12×; 0.3 ms",
        )

        def shell(path):
            subprocess.run(["sh", "-c", f"echo pass > {path}"], check=True)

        null, cell = [], []
        for _ in range(100):
            null += timed(lambda: shell("/dev/null"), 1, warm=0)
            cell += timed(lambda: shell(m.file("cell")), 1, warm=0)
        report.add(
            "`echo pass > cell` as a process",
            ms(median(cell)),
            f"`> /dev/null` {ms(median(null))}",
            f"+{ms(median(cell) - median(null))}",
            "at most 3 ms more",
        )
