"""Saved directories: `save` and `load` of 2 ranks with 1 GiB each, beside `cp` of the same bytes to
the same disk, and fsync, as save does it. A load reads what was just written. The standstill is the
longest time between two steps of a running cell within which it is saved."""

import contextlib
import os
import shutil
import subprocess
import time

from lib import Mount, median

SIZE = 1 << 30
ROUNDS = 5


def ratio(taken, peer):
    return f"{median([ours / its for ours, its in zip(taken, peer, strict=True)]):.2f}×"


def seconds(taken):
    return f"{median(taken):.2f} s"


def clock(fn):
    begin = time.perf_counter()
    fn()
    return time.perf_counter() - begin


def freed(m):
    """Waits until rank 0 has freed what the last save has replaced: cp must not wait for that."""
    ours = os.path.join(m.dir, "saved")
    while any(f.startswith(ours) and f.endswith(" (deleted)") for f in files(m.pids()[0])):
        time.sleep(0.01)


def files(pid):
    """The paths of the files that this process has open."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


def copy(source, to):
    subprocess.run(["cp", "-r", source, to], check=True)
    for each in (to, *(os.path.join(to, name) for name in os.listdir(to))):
        fd = os.open(each, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


STEPS = """
import time
opt, go, longest, last = torch.optim.SGD([torch.zeros(1, requires_grad=True)]), True, 0.0, 0.0
while go:
    opt.step()
    now = time.perf_counter()
    longest, last = max(longest, now - (last or now)), now
    time.sleep(0.001)
"""


def standstill(m, save):
    """Seconds that the slowest rank of a running cell made no step while it was saved."""
    fd = os.open(m.file("cell"), os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, STEPS.encode())
    os.close(fd)
    while b"clock=optimizer" not in m.read("status"):
        time.sleep(0.01)
    save()
    m.write("steer", "go = False")
    with contextlib.suppress(OSError):  # the cell has ended
        m.write("cell", "pass")
    return max(float(m.read(f"rank{rank}/vars/longest")) for rank in range(2))


def main(report):
    with Mount(size=2, gpus="none") as m:
        m.write("cell", f"import torch; x = torch.rand({SIZE // 4 // 16}, 16) + rank")
        saved, copied = os.path.join(m.dir, "saved"), os.path.join(m.dir, "copied")
        ours = {"save": [], "load": []}
        peer = []
        for round_ in range(ROUNDS + 1):  # the first one makes no old files free
            shutil.rmtree(copied, ignore_errors=True)
            taken = {"save": clock(lambda: m.write("ctl", f"save {saved}\n"))}
            freed(m)
            its = clock(lambda: copy(saved, copied))
            taken["load"] = clock(lambda: m.write("ctl", f"load {saved}\n"))
            if round_:
                peer.append(its)
                for what, list_ in ours.items():
                    list_.append(taken[what])
        stood = standstill(m, lambda: m.write("ctl", f"save {saved}\n"))
        report.add("standstill of a running cell", seconds([stood]), f"cp, fsync {seconds(peer)}")
        for what, list_ in ours.items():
            work, goal = f"{what} of 2 ranks × 1 GiB", "1.2×"
            report.add(work, seconds(list_), f"cp, fsync {seconds(peer)}", ratio(list_, peer), goal)
