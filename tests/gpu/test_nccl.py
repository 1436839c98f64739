#!/usr/bin/env python3
"""One, two and four ranks work, on as many GPUs or all on the first.

The self-test through NCCL, with torch and without; a large tensor over all ranks, which NCCL
combines; the group still works after a rank raises, or is interrupted, in the middle of an
all_reduce.
"""

import os
import re

import group

torch = group.need_gpu()
check = group.Checks()
NO_TORCH = os.path.join(group.ROOT, "tests", "fake", "no_torch")
RANKS = (1, 2) if group.REHEARSES else (1, 2, 4)
LARGE = 1000 if group.REHEARSES else 20 << 20  # float32
SIZES = "4 4K 1M" if group.REHEARSES else "4 4K 16M"
ENTER = "dist.all_reduce(torch.ones(1 << 20, device=device)); finish()"
DDP = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(1)
model = DistributedDataParallel(nn.Linear(4, 1).to(device))
def step():
    model.zero_grad()
    model(torch.full((2, 4), rank + 1.0, device=device)).sum().backward()
    return float(model.module.weight.grad.sum())
first = step()
"""


def start(g, size):
    g.ctl("stop", f"size {size}", group.gpus(size), "start")
    g.cell("x = 1")


def times(size):
    """How often to test: not again where many ranks take turns on a GPU, where all is slow."""
    return 1 if size > max(2, torch.cuda.device_count()) else 2


def selftest(g, what, times):
    for again in range(1, times + 1):
        g.ctl(f"selftest {SIZES}")
        text = g.read("selftest")
        print(text, flush=True)
        by = "gloo" if group.REHEARSES else r"NCCL 2\.[0-9.]+"
        where = "cpu" if group.REHEARSES else "cuda"
        head = rf"^# selftest [-0-9: ]+: [0-9]+ ranks?, {by}.*float32 on {where}"
        check.true(f"{what} {again}: by what", re.search(head, text), text)
        if not group.REHEARSES:
            check.true(f"{what} {again}: what NCCL chose", "\n# ring: " in text, text)
        check.true(f"{what} {again}: all is right", "\nerrors 0\n" in text, text)


def sums(g, what, size):
    g.cell("t = torch.full((1,), 100.0 + rank, device=device); dist.all_reduce(t); t = t.item()")
    want = str(100.0 * size + size * (size - 1) / 2)
    for rank in range(size):
        check.equal(f"{what}: rank {rank}", g.read(f"rank{rank}/vars/t").strip(), want)


def over_ranks(g, size):
    """The four OPs on a tensor large enough for NCCL: whole numbers, so everything is exact."""
    code = f"large = (torch.arange({LARGE}, device=device) % 1000).float() + rank"
    g.cell(group.PRELUDE + code)
    base = torch.arange(LARGE).remainder(1000).float()
    least, most = base, base + (size - 1)
    wants = {
        "min": least,
        "max": most,
        "mean": (least + most) / 2,
        "sum": (least + most) / 2 * size,
    }
    with g.trace() as trace:
        for op, want in wants.items():
            got = g.read_bytes(f"vars/large.{op}.npy")[-want.numel() * 4 :]
            same = torch.equal(torch.frombuffer(bytearray(got), dtype=torch.float32), want)
            check.true(f"{op} over {size} ranks", same)
            if not group.REHEARSES:
                seen = trace.read()
                done = seen.count(" Rcombine ") == size
                check.true(f"{op} over {size} ranks was made by NCCL", done, seen[-2000:])


def a_rank_raises_at_first(g, size):
    """No collective has run: what NCCL needs for the first one is there all the same."""
    g.cell(group.PRELUDE)
    g.fails(g.cell, f"if rank == 1: raise ValueError('too early')\n{ENTER}")
    sums(g, "after a failure before the first collective", size)


def a_rank_raises(g, size):
    g.cell(group.PRELUDE + DDP + "kept = torch.full((3,), rank, device=device)")
    sums(g, "first", size)
    g.fails(g.cell, f"if rank == 1: raise ValueError('the cause')\n{ENTER}")
    check.true("the cause is last", "ValueError: the cause" in g.read("traceback")[-200:])
    sums(g, "after a failure", size)


def an_interrupt(g, size):
    g.cell(group.PRELUDE)
    n = g.submit(f"print('in', flush=True)\nif rank == 1: time.sleep(100)\n{ENTER}")
    for rank in range(size):
        name = f"cells/{n}/rank{rank}/stdout"
        group.until(lambda name=name: "in" in g.read(name), "the ranks are in it")
    g.ctl("interrupt")
    check.equal("an interrupt", g.wait(n), "interrupted")
    sums(g, "after an interrupt", size)


def all_goes_on(g, size):
    g.cell("again = step()")
    for rank in range(size):
        got = g.value("(again == first, kept.sum().item() == 3 * rank)", rank)
        check.equal(f"rank {rank} trains on, and has its tensors", got, "(True, True)")


with group.Group(backend=group.backend(), grace="0.5") as g:
    for size in RANKS:
        check.part(g, start, size)
        if size > 1:
            check.part(g, a_rank_raises_at_first, size)
        check.part(g, selftest, f"{size} ranks", times(size))
        for part in (over_ranks, a_rank_raises, an_interrupt, all_goes_on):
            if size > 1:
                check.part(g, part, size)
if not group.REHEARSES:
    with group.Group(env={"PYTHONPATH": NO_TORCH}, backend="nccl") as g:
        for size in RANKS:
            check.part(g, start, size)
            check.part(g, selftest, f"{size} ranks without torch", times(size))
check.done()
