"""Output: 10^6 lines from each of 2 ranks, compared with a plain program that prints to a file."""

import os
import subprocess

from lib import PYTHON, Mount, median, ms

LINES = 1000000
PRINTS = f"""
import time
begin = time.perf_counter()
for i in range({LINES}):
    print(i, "a line as training prints them")
seconds = time.perf_counter() - begin
"""


def plain(m):
    """The time of the slower of two processes that each print to a file."""
    both = []
    for k in range(2):
        with open(os.path.join(m.dir, f"plain{k}"), "wb") as out:
            both.append(
                subprocess.Popen(
                    [PYTHON, "-c", PRINTS + "import sys; print(seconds, file=sys.stderr)"],
                    stdout=out,
                    stderr=subprocess.PIPE,
                    env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
                )
            )
    return max(float(p.communicate()[1]) for p in both)


def main(report):
    expected = b"".join(b"%d a line as training prints them\n" % i for i in range(LINES))
    with Mount(size=2) as m:
        m.write("cell", "pass")
        ratios, ours = [], []
        for _ in range(7):
            base = plain(m)
            m.write("cell", PRINTS)
            taken = max(float(m.read(f"rank{k}/vars/seconds")) for k in range(2))
            for k in range(2):
                assert m.read(f"cells/last/rank{k}/stdout") == expected, "bytes were lost"
            ratios.append(taken / base)
            ours.append(taken)
        report.add(
            "10⁶ lines by each of 2 ranks, every byte",
            ms(median(ours), 0),
            f"plain files {ms(median(ours) / median(ratios), 0)}",
            f"{median(ratios):.2f}×",
            "at most 1.5×",
        )
