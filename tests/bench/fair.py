"""What others wait while gigabytes move: an empty cell and a read of `status`, at 99 %, beside
their time in an idle mount, and beside as many programs that read a file in /dev/shm."""

import contextlib
import os
import subprocess
import threading

import numpy as np
from lib import Mount, ms, percentile, timed

GIB, ROUNDS = 1 << 30, 400
MEMORY = "/dev/shm/ddip-bench-fair.npy"


@contextlib.contextmanager
def moving(*commands):
    """Each of these commands runs again and again."""
    over = threading.Event()

    def again(command):
        while not over.is_set():
            subprocess.run(["sh", "-c", command], check=True)

    movers = [threading.Thread(target=again, args=(command,)) for command in commands]
    for mover in movers:
        mover.start()
    try:
        yield
    finally:
        over.set()
        for mover in movers:
            mover.join()


def waits(m, run):
    """The 99th percentile of an empty cell, and of a read of status."""
    work = (lambda: run("pass"), lambda: m.read("status"))
    return [percentile(timed(one, ROUNDS), 99) for one in work]


def rows(report, m, run):
    pull = f"cat {m.file('rank0/vars/x.npy')} > /dev/null"
    push = f"cp {MEMORY} {m.file('vars/y.npy')}"
    plain = f"cat {MEMORY} > /dev/null"
    idle = waits(m, run)
    for what, commands in (
        ("one reads", [pull]),
        ("one writes", [push]),
        ("one reads, one writes", [pull, push]),
        ("four read", [pull] * 4),
    ):
        with moving(*commands):
            busy = waits(m, run)
        with moving(*[plain] * len(commands)):
            beside = waits(m, run)
        for k, name in enumerate(("an empty cell", "`status`")):
            report.add(
                f"{name} while {what} 1 GiB again and again, 99 %",
                ms(busy[k]),
                f"idle {ms(idle[k])}, beside readers of /dev/shm {ms(beside[k])}",
                f"{busy[k] / idle[k]:.1f} × idle, {busy[k] / beside[k]:.1f} × those",
                "3 × idle",
            )


def main(report):
    np.save(MEMORY, np.arange(GIB // 8, dtype="f8"))
    try:
        with Mount(size=2) as m, m.cells() as run:
            m.settle()
            run(f"import numpy as np; x = np.arange({GIB // 8}, dtype='f8')")
            rows(report, m, run)
    finally:
        os.unlink(MEMORY)
