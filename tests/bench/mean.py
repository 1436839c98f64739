"""The mean over 8 ranks' arrays, compared with only reading the ranks' arrays."""

import os
import time

from lib import Mount, median, ms

RANKS, MIB, ROUNDS = 8, 16, 7
MAKE = f"""
import numpy
x = numpy.arange({MIB << 18}, dtype="float32") * (rank + 1)
"""


def read(paths, buffer):
    """Seconds to read files one after the other, as cp does."""
    begin = time.perf_counter()
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        while os.readv(fd, [buffer]):
            pass
        os.close(fd)
    return time.perf_counter() - begin


def main(report):
    """Reports one row."""
    with Mount(size=RANKS, backend="none", gpus="none") as m:
        m.write("cell", MAKE)
        each = [m.file(f"rank{k}/vars/x.npy") for k in range(RANKS)]
        whole, buffer = [m.file("vars/x.mean.npy")], bytearray(1 << 20)
        taken = [(read(whole, buffer), read(each, buffer)) for _ in range(ROUNDS)]
    mean, alone = (median(column) for column in zip(*taken, strict=True))
    report.add(
        f"mean of {RANKS} × {MIB} MiB float32",
        ms(mean, 0),
        f"reading the {RANKS} alone {ms(alone, 0)}",
        f"{mean / alone:.2f}×",
        "at most 2×",
    )
