#!/usr/bin/env python3
"""Measures work on a GPU next to what CUDA does alone: a table, which is added to
tests/gpu/RESULTS.md, or RESULTS.md in $OUT, if there is a device.

With DDIP_REHEARSE=1 everything runs on the CPU with small sizes, objects on the fake CUDA runtime
if $DDIP_CUDART names one; then the figures mean nothing.
"""

import os
import platform
import random
import statistics
import sys
import threading
import time
import traceback
from importlib.metadata import version

import group

torch = group.need_gpu()

MIB, GIB = 1 << 20, 1 << 30
PAGE = 4096
READ_BYTES = 8 * MIB
PULL_BYTES = 16 * MIB if group.REHEARSES else 8 * GIB
PUSH_BYTES = 8 * MIB if group.REHEARSES else GIB
PAGES = 50 if group.REHEARSES else 3000
TRAIN_S = 0.5 if group.REHEARSES else 8
ROUNDS = 3
READS_PER_S = 10
COLUMNS = ("| work | ddipfs | beside it | ratio | to reach |", "|---|---|---|---|---|")
RESULTS = os.path.join(
    os.environ.get("OUT") or os.path.dirname(os.path.abspath(__file__)), "RESULTS.md"
)

# Used by the cells: bytes on the device, their copies through pinned memory, a training step.
WORK = (
    group.PRELUDE
    + """
import statistics, numpy as np
PIECE = 256 << 20

def make(n):
    if "DDIP_CUDART" in os.environ:
        import cupy
        return cupy.array(np.arange(n // 8))
    return torch.arange(n // 8, device=device)

def pinned(n):
    return torch.empty(n, dtype=torch.uint8, pin_memory=CUDA)

def copy_rate(n, out):
    # bytes a second between pinned memory and the device, the best of three times
    piece = min(n, PIECE)
    host, there = pinned(piece), torch.zeros(piece, dtype=torch.uint8, device=device)
    best = 0.0
    for _ in range(3):
        finish()
        begin = time.perf_counter()
        for _ in range(n // piece):
            if out:
                host.copy_(there, non_blocking=True)
            else:
                there.copy_(host, non_blocking=True)
        finish()
        best = max(best, n // piece * piece / (time.perf_counter() - begin))
    return best

def make_model(width):
    global model, optimizer, batch, loss, weights
    layers = [torch.nn.Linear(width, width) for _ in range(4)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch, loss = torch.randn(256, width, device=device), torch.zeros((), device=device)
    weights = model[0].weight

def train(seconds):
    # the median of the steps, in seconds
    global loss
    taken, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        finish()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)
"""
)

rows = []


def add(work, found, beside="", ratio="", goal=""):
    """Adds a row to the table and prints it at once."""
    rows.append("| " + " | ".join((work, found, beside, ratio, goal)) + " |")
    print(rows[-1], flush=True)


def rate(bytes_per_s):
    return f"{bytes_per_s / 1e9:.2f} GB/s"


def us(seconds):
    return f"{seconds * 1e6:.1f} µs"


def ms(seconds):
    return f"{seconds * 1e3:.1f} ms"


def best(function, times=ROUNDS):
    """The shortest time in seconds."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def sizes():
    """(bytes to pull, bytes to push) that fit into the memory of the device and of the host."""
    if group.REHEARSES:
        return PULL_BYTES, PUSH_BYTES
    free, _ = torch.cuda.mem_get_info()
    host = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    pull = min(PULL_BYTES, free * 2 // 5, host // 3)
    return pull // MIB * MIB, min(PUSH_BYTES, pull // 4) // MIB * MIB


def read_all(g, name):
    memory = memoryview(bytearray(READ_BYTES))
    with g.open(name) as file:
        while file.readinto(memory):
            pass


def read_pages(g, name, size):
    """The median seconds to read 4 KiB at random offsets."""
    taken = []
    with g.open(name) as file:
        for _ in range(PAGES):
            place = random.randrange(1, size // PAGE - 1) * PAGE
            begin = time.perf_counter()
            file.seek(place)
            assert len(file.read(PAGE)) == PAGE
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def pulls(g, size):
    what = f"pull {size / GIB:.2f} GiB from the GPU as .npy"
    there = size / best(lambda: read_all(g, "vars/x.npy"))
    here = size / best(lambda: read_all(g, "vars/h.npy"))
    copy = float(g.value(f"copy_rate({size}, True)"))
    goal = "0.8 of the copy, or of FUSE's ceiling (below)"
    add(
        what,
        rate(there),
        f"pinned copy to the host alone {rate(copy)}",
        f"{there / copy:.2f}",
        goal,
    )
    add("the same of an array of the host", rate(here), "", f"{there / here:.2f}")
    gpu, cpu = read_pages(g, "vars/x.npy", size), read_pages(g, "vars/h.npy", size)
    beside = f"of an array of the host {us(cpu)}"
    add("4 KiB of it at random", us(gpu), beside, f"+{us(gpu - cpu)}", "+30 µs")


def pushes(g, size):
    data = g.read_bytes("vars/p.npy")
    taken = best(lambda: g.write("vars/p.npy", data))
    copy = float(g.value(f"copy_rate({size}, False)"))
    beside = f"pinned copy to the GPU alone {rate(copy)}"
    what = f"push {size / GIB:.2f} GiB to the GPU"
    add(what, rate(size / taken), beside, f"{size / taken / copy:.2f}", "0.8")


class Reader(threading.Thread):
    """Reads the loss and a row ten times a second until it is stopped."""

    def __init__(self, g):
        super().__init__()
        self._group, self._end, self.reads = g, threading.Event(), 0

    def run(self):
        while not self._end.wait(1 / READS_PER_S):
            self._group.read("vars/loss")
            with self._group.open("vars/weights.npy") as file:
                file.seek(PAGE)
                file.read(PAGE)
            self.reads += 1

    def stop(self):
        self._end.set()
        self.join()


def training(g):
    g.cell(f"make_model({64 if group.REHEARSES else 4096})\ntrain(1)")
    alone, beside, reads = [], [], 0
    for _ in range(ROUNDS):
        alone.append(float(g.value(f"train({TRAIN_S})")))
        reader = Reader(g)
        reader.start()
        beside.append(float(g.value(f"train({TRAIN_S})")))
        reader.stop()
        reads += reader.reads
    read, plain = statistics.median(beside), statistics.median(alone)
    what = f"a training step while vars/loss and 4 KiB are read ({reads} times)"
    add(what, ms(read), f"without {ms(plain)}", f"{read / plain - 1:+.2%}", "within 1 %")


def events_until(events, text, done):
    while not done(text):
        text += events.read(1 << 16).decode()
    return text


def failing(g):
    """Seconds from the end of grace to the prompt, and to the end of the next all_reduce."""
    grace = float(g.key("ctl", "grace"))
    with g.open("events") as events:
        enter = "dist.all_reduce(torch.ones(1 << 20, device=device)); finish()"
        g.fails(g.cell, f"if rank == 1: raise ValueError('the cause')\n{enter}")
        n = g.last()
        end = f" cell {n} error"
        text = events_until(events, "", lambda text: end in text and text.endswith("\n"))
        begin = time.perf_counter()
        g.cell("t = torch.ones(1, device=device); dist.all_reduce(t); finish()")
        again = time.perf_counter() - begin
    lines = [line.split(" ", 2) for line in text.splitlines()]
    failed = next(float(at) for _, at, what in lines if what.startswith(f"cell {n} failed rank=1"))
    ended = next(float(at) for _, at, what in lines if what.startswith(end.strip()))
    assert g.value("t.item()") == "2.0"
    return ended - failed - grace, again


def restart(g):
    """Seconds to the end of the first all_reduce, and the phases that the daemon reports."""
    begin = time.perf_counter()
    g.ctl("restart")
    g.cell(group.PRELUDE + "t = torch.ones(1, device=device); dist.all_reduce(t); finish()")
    taken = time.perf_counter() - begin
    phases = [line for line in g.read("status").splitlines() if line.split(" ")[0].endswith("_ms")]
    return taken, ", ".join(phases)


def collectives(g):
    g.ctl("stop", "size 2", group.gpus(2), f"backend {group.backend()}", "grace 0.5", "start")
    g.cell(group.PRELUDE + "t = torch.ones(1, device=device); dist.all_reduce(t); finish()")
    found = [failing(g) for _ in range(ROUNDS)]
    prompt, again = (statistics.median(each) for each in zip(*found, strict=True))
    add("a rank raises in an all_reduce: end of grace to the prompt", ms(prompt), goal="500 ms")
    add("… and from there to the end of the next all_reduce", ms(again), goal="1 s")
    taken, phases = min(restart(g) for _ in range(ROUNDS))
    add("restart to the end of the first all_reduce", ms(taken), phases)
    add("reset", ms(best(lambda: g.ctl("reset"))), goal="100 ms")


def head(g):
    """The hardware and the versions that were measured."""
    if group.REHEARSES:
        name = "no GPU: a rehearsal, these figures mean nothing"
    else:
        facts, count = torch.cuda.get_device_properties(0), torch.cuda.device_count()
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        name = f"{count} × {facts.name}, {facts.total_memory / GIB:.0f} GiB, NCCL {nccl}"
    versions = f"Python {platform.python_version()}, torch {version('torch')}"
    way = "a mount" if os.path.ismount(g.place) else "a socket, no mount is possible"
    return f"{name}; {os.cpu_count()} cores; {versions}; on {way}; {time.strftime('%Y-%m-%d')}"


def objects(g):
    pull, push = sizes()
    g.cell(f"x, h, p = make({pull}), np.arange({pull} // 8), make({push})")
    pulls(g, pull)
    pushes(g, push)
    g.cell("del x, h, p")


def keep(table):
    """Adds the table to the results."""
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write("\n".join(["", *table, *rows, ""]))


failed = 0
with group.Group(size=1, backend="none", gpus="none" if group.REHEARSES else "0") as g:
    table = [
        head(g),
        "",
        "| work | ddipfs | beside it | ratio | to reach |",
        "|---|---|---|---|---|",
    ]
    print("\n".join(table), flush=True)
    g.cell(WORK)
    for measure in (objects, training, collectives):
        try:
            measure(g)
        except (Exception, group.Late) as e:  # the others are measured all the same
            traceback.print_exc()
            g.report()
            failed = 1
            if isinstance(e, group.Late):
                break
if not group.REHEARSES:
    keep(table)
sys.exit(failed)
