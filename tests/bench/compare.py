"""Two builds in one run, alternately: has anything become slower? usage: compare.py OLD [NAME…]

OLD is the build directory of another tree (its magics are expected next to it), NAME one of the
measurements below. Each pair is measured old, new, new, old, so that a machine that slows down or
speeds up meanwhile favours neither. A row has both medians, the ratio of the medians, and the
middle half of the pairs' own ratios: if that includes 1, no difference was found.
"""

import contextlib
import os
import subprocess
import sys
import time

import failures
import numpy as np
import start
from lib import BUILD, PYTHON, Mount, alone, here, median, ms, percentile

LINES = "for i in range(100000): print(i, 'a line of a cell')"
STEPS = """
import time
if "model" not in globals():
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    opt, data = torch.optim.SGD(model.parameters(), 0.01), torch.ones(8, 64)
taken = time.process_time()
for _ in range(1000):
    model(data).sum().backward()
    opt.step()
    opt.zero_grad()
taken = time.process_time() - taken
"""
SMALL, BIG = 1 << 10, 64 << 20  # bytes


def cell(m):
    """Twenty empty cells from one descriptor."""
    with m.cells() as run:
        for _ in range(20):
            run("pass")


def shell(m):
    """echo pass > cell, by a process of its own."""
    subprocess.run(["sh", "-c", f"echo pass >{m.file('cell')}"], check=True)


def lines(m):
    """10⁵ lines by each rank."""
    m.write("cell", LINES)


def status(m):
    """A hundred times status, opened, read and closed."""
    for _ in range(100):
        m.read("status")


def push_small(m):
    """Ten arrays of 1 KiB to both ranks."""
    for _ in range(10):
        np.save(m.file("vars/small.npy"), np.zeros(SMALL // 8))


def push_big(m):
    """64 MiB to both ranks."""
    np.save(m.file("vars/big.npy"), np.zeros(BIG // 8))


def pull_small(m):
    """Ten times a number as text."""
    for _ in range(10):
        m.read("rank0/vars/x")


def pull_big(m):
    """64 MiB from one rank."""
    np.load(m.file("rank0/vars/big.npy"))


def restart(m):
    """Restart until an all_reduce is done."""
    m.write("ctl", "restart\n")
    m.write("cell", start.REDUCE + "\nx = 1.0")


def failure(m):
    """A rank fails, the other in a collective: until the next all_reduce is done."""
    failures.ended(m, failures.submit(m, "if rank == 0:\n    1 / 0\ndist.all_reduce(t)"))
    m.write("cell", "dist.all_reduce(t)")


def interrupt(m):
    """An interrupt of a collective: until the next all_reduce is done."""
    n = failures.submit(m, "print('in', flush=True)\nif rank == 0:\n    dist.all_reduce(t)\n"
                           "else:\n    while True: pass")  # fmt: skip
    failures.runs(m, n)
    failures.interrupt(m, n)
    failures.ended(m, n)
    m.write("cell", "dist.all_reduce(t)")


def step(m):
    """A thousand small steps of DDP: CPU time of rank 0."""
    m.write("cell", STEPS)
    return float(m.read("rank0/vars/taken"))


def mount(m):
    """Mount until an all_reduce is done, and unmount."""
    with Mount(build=m.build, size=2) as other:
        other.write("cell", start.REDUCE)


def notebook(m):
    """%%dip pass beyond a local cell, in an IPython shell of its own: the medians of 200."""
    magics = os.path.join(os.path.dirname(os.path.realpath(m.build)), "magics")
    with contextlib.ExitStack() as stack:
        old = {name: os.environ.get(name) for name in ("DDIP_MOUNT", "PYTHONPATH")}
        for name, value in old.items():
            stack.callback(restore, name, value)
        os.environ |= {"DDIP_MOUNT": m.path, "PYTHONPATH": magics}
        return alone(here("notebook_pass.py"))


def restore(name, value):
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


# the measurements, and the number of rounds of four
MEASURES = (
    (cell, 25), (shell, 25), (status, 15), (lines, 8), (pull_small, 15), (push_small, 15),
    (push_big, 5), (pull_big, 8), (restart, 8), (failure, 10), (interrupt, 10), (mount, 3),
    (notebook, 4), (step, 25),
)  # fmt: skip


def once(measure, m):
    """The seconds of one call: those that it returns, or those that it took."""
    begin = time.perf_counter()
    told = measure(m)
    return told if told is not None else time.perf_counter() - begin


def compare(measure, rounds, old, new):
    taken = {old: [], new: []}
    for m in (old, new):
        once(measure, m)  # warm-up: the first run would be slower than the second
    for _ in range(rounds):
        for m in (old, new, new, old):
            taken[m].append(once(measure, m))
    pairs = [n / o for o, n in zip(taken[old], taken[new], strict=True)]
    before, after = median(taken[old]), median(taken[new])
    middle = f"{percentile(pairs, 25):.3f} to {percentile(pairs, 75):.3f}"
    what = measure.__doc__.rstrip(".")
    print(f"| {what} | {ms(before)} | {ms(after)} | {after / before:.3f} | {middle} |", flush=True)


def main():
    if len(sys.argv) < 2 or not os.access(os.path.join(sys.argv[1], "ddipfs"), os.X_OK):
        sys.exit(f"{sys.argv[0]}: want a build directory with ddipfs, not {sys.argv[1:2]}")
    wanted = set(sys.argv[2:])
    unknown = wanted - {measure.__name__ for measure, _ in MEASURES}
    if unknown:
        names = " ".join(measure.__name__ for measure, _ in MEASURES)
        sys.exit(f"{sys.argv[0]}: no measure {' '.join(unknown)}; there are {names}")
    print(f"old: {sys.argv[1]}, new: {BUILD}, Python {PYTHON}\n")
    print("| 2 ranks | old | new | new / old | middle half |\n|---|---|---|---|---|")
    with Mount(build=sys.argv[1], size=2) as old, Mount(size=2) as new:
        for m in (old, new):
            m.settle()
            m.write("ctl", "grace 0\n")
            m.write("cell", "import torch, torch.distributed as dist\nx, t = 1.0, torch.ones(1)")
            m.write("cell", f"import numpy\nbig = numpy.zeros({BIG // 8})")
        for measure, rounds in MEASURES:
            if not wanted or measure.__name__ in wanted:
                compare(measure, rounds, old, new)
                for m in (old, new):
                    m.write("cell", "import torch, torch.distributed as dist\nt = torch.ones(1)")


if __name__ == "__main__":
    main()
