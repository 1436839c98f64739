"""Saved directories: `save` and `load` of 2 ranks with 1 GiB each, beside `cp` of the same bytes to
the same disk, and fsync, as save does it. A load reads what was just written."""

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
        for what, list_ in ours.items():
            work, goal = f"{what} of 2 ranks × 1 GiB", "1.2×"
            report.add(work, seconds(list_), f"cp, fsync {seconds(peer)}", ratio(list_, peer), goal)
