"""Little of much: pages at random of an array of 8 GiB, beside the least that a FUSE server can do
(one_buffer.c); and the inside of objects, listed."""

import functools
import mmap
import os
import random
import subprocess

from bulk import one_buffer
from lib import Mount, median, ms, timed

SIZE, PAGE, ROUNDS = 8 << 30, 4096, 10
MAKE = f"""
import torch, numpy as np
x = np.zeros({SIZE}, dtype='u1')
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(150)])
d = {{f"k{{i}}": i for i in range(10_000)}}
"""


def us(seconds):
    return f"{seconds * 1e6:.0f} µs"


def read_at_random(paths):
    """Seconds for one page that read(2) gets, of each file, in turn."""
    numbers = random.Random(1)
    files = [open(path, "rb", buffering=0) for path in paths]
    taken = [[] for _ in files]
    for _ in range(ROUNDS):
        for file, times in zip(files, taken, strict=True):
            read = functools.partial(os.pread, file.fileno(), PAGE)
            times += timed(lambda read=read: read(numbers.randrange(SIZE - PAGE)), 300)
    for file in files:
        file.close()
    return [median(times) for times in taken]


def map_at_random(path):
    """Seconds for one page that is mapped and touched for the first time."""
    numbers = random.Random(2)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
        return median(timed(lambda: m[numbers.randrange(len(m))], 3000))


def pages(report, m):
    path = m.file("rank0/vars/x.npy")
    with one_buffer(SIZE) as least:
        ours, beside = read_at_random([path, least])
    report.add(
        "4 KiB at random of 8 GiB, read(2)",
        us(ours),
        f"one buffer {us(beside)}",
        f"{ours / beside:.1f} of it",
        "1.5 ×",
    )
    report.add("4 KiB at random of 8 GiB, mmap", us(map_at_random(path)))


def main(report):
    with Mount(size=2, backend="none") as m:
        m.settle()
        m.write("cell", MAKE)
        pages(report, m)
        for what, command, goal in (
            ("`find` in a model of 300 parameters", ["find", m.file("vars/model.d")], "50 ms"),
            ("`ls` of a dict of 10,000", ["ls", m.file("vars/d.d")], "50 ms"),
            ("`ls -l` of a dict of 10,000", ["ls", "-l", m.file("vars/d.d")], ""),
        ):
            taken = timed(functools.partial(subprocess.check_output, command), 5, 1)
            report.add(what, ms(median(taken), 0), goal=goal)
