#!/usr/bin/env python3
"""A training on a GPU works as it does outside: CUDA graphs are captured while objects are read,
torch.compile, workers that fork and pin memory, the locals of a loop; `stall` names the rank that
is late in NCCL; an interrupt ends a loop, not its model; what a stopped rank held is free again.
"""

import json
import os
import threading

import group

torch = group.need_gpu()
check = group.Checks()
REAL = not group.REHEARSES and not os.environ.get("FAKE_CUDA")  # fakes capture and compile nothing

LOOP = """
def main(steps):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model = model.to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, step = torch.randn(32, 64, device=device), 0
    for step in range(steps):
        opt.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        opt.step()
    return loss
"""

CAPTURES = """
replays = []
for n in range(50):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * n
        time.sleep(0.005)
        y = y + 1
    graph.replay()
    replays.append(y.sum().item() == 1024 * (n + 1))
"""


class Reader(threading.Thread):
    """Reads files of the group again and again until it is stopped."""

    def __init__(self, g, *names):
        super().__init__()
        self._group, self._names, self._end = g, names, threading.Event()
        self.reads, self.failed = 0, []

    def run(self):
        while not self._end.wait(0.002):
            for name in self._names:
                try:
                    self._group.read_bytes(name)
                    self.reads += 1
                except OSError as e:
                    self.failed.append(f"{name}: {e}")

    def stop(self):
        self._end.set()
        self.join()


def graphs(g):
    """A capture is global to the process by default: a copy by another thread would end it."""
    g.cell(
        group.PRELUDE
        + "seen, x = torch.arange(1 << 20, device=device), torch.ones(1024, device=device)"
    )
    if not REAL:
        print("captures: only on a GPU")
        return
    reader = Reader(g, "vars/seen.npy", "vars/x.npy", "rank0/gpu")
    reader.start()
    try:
        g.cell(CAPTURES)
    finally:
        reader.stop()
    check.equal("all captures hold", g.value("len(replays), all(replays)"), "(50, True)")
    check.true("objects were read meanwhile", reader.reads > 50, reader.reads)
    unexpected = [each for each in reader.failed if "capture" not in each and "EAGAIN" not in each]
    print(f"{reader.reads} reads beside 50 captures, of which failed: {reader.failed[:2]}")
    check.equal("and what failed says why", unexpected[:3], [])


def compiled(g):
    if not REAL:
        print("torch.compile: only on a GPU")
        return
    g.cell(group.PRELUDE)
    code = (
        "f = torch.compile(lambda a: (a.sin() ** 2 + a.cos() ** 2).sum())\n"
        "total = f(torch.ones(1000, device=device)).item()"
    )
    try:
        g.cell(code)
    except OSError:
        said = g.read("error")
        if "compiler" in said or "gcc" in said or "Triton" in said:
            print(f"torch.compile: {said[-300:]}")
            return
        raise
    check.equal("torch.compile", g.value("round(total)"), "1000")


def workers(g):
    g.cell(
        group.PRELUDE + "from torch.utils.data import DataLoader, TensorDataset\n"
        "data = TensorDataset(torch.arange(640.0).reshape(64, 10))\n"
        "def total():\n"
        "    loader = DataLoader(data, batch_size=8, num_workers=2, pin_memory=CUDA)\n"
        "    return sum(b[0].to(device, non_blocking=True).sum().item() for b in loader)"
    )
    check.equal("workers", g.value("total()"), "204480.0")


def the_locals_of_a_loop(g):
    g.cell(group.PRELUDE + LOOP)
    n = g.submit("main(10 ** 9)")
    group.until(lambda: "step" in g.read("rank0/frames"), "the loop runs")

    def read(name):
        try:
            return g.read(f"rank0/locals/{name}")
        except OSError:
            return ""

    first = int(group.until(lambda: read("step"), "its step is seen"))
    group.until(lambda: int(read("step") or 0) > first, "it trains on")
    text = group.until(lambda: read("loss"), "its loss is seen")
    check.true("a loss", float(text) > 0, text)
    batch = group.until(lambda: g.read_bytes("rank0/locals/batch.npy"), "a tensor is read")
    check.equal("the bytes of a tensor", len(batch), 128 + 4 * 32 * 64)
    g.ctl("interrupt")
    check.equal("and it is ended", g.wait(n), "interrupted")


def a_stall(g):
    g.ctl("stop", "size 2", group.gpus(2), f"backend {group.backend()}", "grace off", "start")
    g.cell(group.PRELUDE + "t = torch.ones(4, device=device); dist.all_reduce(t); finish()")
    n = g.submit("if rank == 1: time.sleep(1000)\ndist.all_reduce(t); finish()")
    text = group.until(
        lambda: next(
            (x for x in g.read("stall").splitlines() if "rank 1" in x and "wait" in x), ""
        ),
        "stall names the rank",
    )
    print(f"stall: {text}")
    check.true(
        "it names rank 1", text.startswith("rank 1 ") and "all_reduce" in text, g.read("stall")
    )
    g.ctl("interrupt")
    check.equal("the wait is ended", g.wait(n), "interrupted")
    g.cell("t = torch.ones(4, device=device); dist.all_reduce(t); t = t.tolist()")
    check.equal("and the group works", g.read("rank1/vars/t.json").strip(), "[2.0, 2.0, 2.0, 2.0]")


def interrupted(g):
    """Interrupts that hit the forward, the backward, NCCL, the optimizer."""
    g.cell(
        group.PRELUDE + "from torch.nn.parallel import DistributedDataParallel\n"
        "torch.manual_seed(1)\n"
        "model = DistributedDataParallel(torch.nn.Linear(64, 64).to(device))\n"
        "opt = torch.optim.SGD(model.parameters(), lr=1e-3)\n"
        "def loop(steps):\n"
        "    for _ in range(steps):\n"
        "        opt.zero_grad()\n"
        "        model(torch.randn(8, 64, device=device)).square().mean().backward()\n"
        "        opt.step()\n"
        "    finish()"
    )
    for round in range(5):
        n = g.submit("print('in', flush=True); loop(10 ** 9)")
        group.until(lambda n=n: "in" in g.read(f"cells/{n}/rank1/stdout"), "it runs")
        threading.Event().wait(0.05 * round)
        g.ctl("interrupt")
        check.equal(f"interrupt {round}", g.wait(n), "interrupted")
        g.cell(
            "loop(3)\nmine = model.module.weight.grad.sum()\n"
            "both = [mine.clone() for _ in range(2)]\ndist.all_gather(both, mine)"
        )
        check.equal(f"gradients agree {round}", g.value("(both[0] == both[1]).item()"), "True")


def free_again(g):
    """What a killed or stopped rank held is given back."""
    if not REAL:
        print("memory that is given back: only on a GPU")
        return
    g.ctl("stop")
    before, _ = torch.cuda.mem_get_info()
    g.ctl("size 1", "gpus 0", "backend none", "start")
    g.cell(group.PRELUDE + "held = torch.empty(4 << 30, dtype=torch.uint8, device=device)")
    held, _ = torch.cuda.mem_get_info()
    check.true("it is held", before - held > 4 << 30, before - held)
    print(json.dumps({"a context and 4 GiB": before - held}))
    print(g.read("rank0/gpu"))
    g.submit("torch.cuda._sleep(1 << 36); finish()")
    group.until(lambda: g.state() == "running", "a kernel runs")
    g.ctl("stop")
    group.until(lambda: abs(torch.cuda.mem_get_info()[0] - before) < 64 << 20, "it is free")


with group.Group(size=1, backend="none", gpus="none" if group.REHEARSES else "0") as g:
    for part in (graphs, compiled, workers, the_locals_of_a_loop, a_stall, interrupted, free_again):
        check.part(g, part)
check.done()
