"""Objects of 1 GiB, beside a file in /dev/shm and the least that a FUSE server can do
(one_buffer.c): reads of a rank's array, and writes to two ranks and to eight."""

import contextlib
import os
import subprocess
import tempfile
import time

import numpy as np
from lib import BUILD, Mount, median, ms

SIZE, MIB = 1 << 30, 1 << 20
ROUNDS = 5
MEMORY = "/dev/shm/ddip-bench.npy"


def readinto(path, size):
    """Reads it through one buffer of this size."""
    buffer = memoryview(bytearray(size))
    with open(path, "rb", buffering=0) as f:
        while f.readinto(buffer):
            pass


def cat(path):
    subprocess.run(["sh", "-c", 'cat "$1" > /dev/null', "-", path], check=True)


def load(path):
    with open(path, "rb") as f:
        np.load(f)


def save(path, data):
    with open(path, "wb") as f:
        np.save(f, data)


def copy(source, path):
    subprocess.run(["cp", source, path], check=True)


@contextlib.contextmanager
def one_buffer(size):
    """The path of its file."""
    with tempfile.TemporaryDirectory() as path:
        subprocess.run([os.path.join(BUILD, "bench", "one_buffer"), str(size), path], check=True)
        try:
            yield os.path.join(path, "x")
        finally:
            subprocess.run(["fusermount3", "-u", path], check=True)


def alternately(work, paths, before=lambda path: None):
    """The median time of work on each path, in as many rounds."""
    taken = [[] for _ in paths]
    for _ in range(ROUNDS + 1):  # the first one warms up
        for path, times in zip(paths, taken, strict=True):
            before(path)
            begin = time.perf_counter()
            work(path)
            times.append(time.perf_counter() - begin)
    return [median(times[1:]) for times in taken]


def row(report, what, taken, goal):
    ours, memory, *rest = taken
    beside, ratio = f"/dev/shm {ms(memory, 0)}", f"{ours / memory:.2f} × the file"
    if rest:
        beside += f", one buffer {ms(rest[0], 0)}"
        ratio += f", {rest[0] / ours:.2f} of one buffer"
    report.add(what, ms(ours, 0), beside, ratio, goal)


def pulls(report, m, least):
    paths = [m.file("rank0/vars/x.npy"), MEMORY, least]
    for what, work, goal in (
        ("`cat` 1 GiB", cat, "1.7 ×, 0.8"),
        ("`readinto` 16 MiB", lambda path: readinto(path, 16 * MIB), "1.7 ×, 0.8"),
        ("`readinto` 64 KiB", lambda path: readinto(path, MIB // 16), "3 ×"),
        ("`np.load`", load, "1.4 ×"),
    ):
        row(report, what, alternately(work, paths if work is not load else paths[:2]), goal)


def remove(path):
    """A file in /dev/shm that is written anew gets new memory, as an object does."""
    if path.startswith("/dev/shm/") and os.path.exists(path):
        os.unlink(path)


def pushes(report, mounts, least, data):
    to_memory = MEMORY + ".new"
    for what, work, goal in (
        ("`np.save`", lambda path: save(path, data), "1.0 ×"),
        ("`cp`", lambda path: copy(MEMORY, path), "1.0 ×"),
    ):
        for m in mounts:
            paths = [m.file("vars/y.npy"), to_memory, least]
            taken = alternately(work, paths, remove)
            row(report, f"{what} 1 GiB to {m.size} ranks", taken, goal)
    remove(to_memory)


def main(report):
    data = np.arange(SIZE // 8, dtype="f8")
    np.save(MEMORY, data)
    try:
        with Mount(size=2) as two, Mount(size=8) as eight, one_buffer(SIZE + 128) as least:
            two.settle()
            two.size, eight.size = 2, 8
            two.write("cell", f"import numpy as np; x = np.arange({SIZE // 8}, dtype='f8')")
            pulls(report, two, least)
            two.write("cell", "del x")
            pushes(report, (two, eight), least, data)
    finally:
        os.unlink(MEMORY)
