"""The mean of 8 ranks' arrays, and the arrays stacked, compared with only reading the arrays of all
ranks by two threads: the time, and the daemon's CPU time."""

import os
import threading
import time

from lib import Mount, median, ms

RANKS, MIB, ROUNDS = 8, 128, 5
MAKE = f"""
import numpy
x = numpy.arange({MIB << 18}, dtype="float32") * (rank + 1)
"""


def read(paths):
    """Reads files one after the other, as cp does."""
    buffer = bytearray(1 << 20)
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        while os.readv(fd, [buffer]):
            pass
        os.close(fd)


def read_by_two(paths):
    """The same by two threads, each half of the files."""
    readers = [threading.Thread(target=read, args=(paths[k::2],)) for k in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()


def cpu(pid):
    """Seconds of CPU time that a process has used."""
    with open(f"/proc/{pid}/stat") as f:
        user, system = f.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main(report):
    """Reports a row for each."""
    with Mount(size=RANKS, backend="none", gpus="none") as m:
        m.write("cell", MAKE)
        daemon = m.daemon()
        each = [m.file(f"rank{k}/vars/x.npy") for k in range(RANKS)]
        work = {
            "mean": lambda: read([m.file("vars/x.mean.npy")]),
            "gather": lambda: read([m.file("vars/x.gather.npy")]),
            "alone": lambda: read_by_two(each),
        }
        taken = {name: [] for name in work}
        for _ in range(ROUNDS):
            for name, function in work.items():
                before, begin = cpu(daemon), time.perf_counter()
                function()
                taken[name].append((time.perf_counter() - begin, cpu(daemon) - before))
    took = {
        name: [median(column) for column in zip(*rows, strict=True)] for name, rows in taken.items()
    }
    alone, alone_cpu = took.pop("alone")
    for name, (seconds, used) in took.items():
        report.add(
            f"{name} of {RANKS} × {MIB} MiB float32",
            f"{ms(seconds, 0)}, CPU {ms(used, 0)}",
            f"two threads read the {RANKS}: {ms(alone, 0)}, CPU {ms(alone_cpu, 0)}",
            f"{seconds / alone:.2f}×",
            "at most 2×",
        )
