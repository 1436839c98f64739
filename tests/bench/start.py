"""Start, the first time and from the warm zygote, until a collective and a DDP step are done."""

import json
import os
import subprocess
import tempfile
import time

from lib import PYTHON, Mount, here, median, ms, times

REDUCE = """
import torch, torch.distributed as dist
x = torch.ones(1); dist.all_reduce(x); assert x.item() == 2
"""
STEP = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
model = DDP(torch.nn.Linear(8, 8)); model(torch.ones(1, 8)).sum().backward()
"""
IMPORTS = "import torch, torch.distributed, IPython"


def first(report):
    ours, imports = [], []
    for _ in range(5):
        begin = time.perf_counter()
        subprocess.run([PYTHON, "-c", IMPORTS], check=True)
        imports.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        with Mount(size=2) as m:
            m.write("cell", REDUCE)
            ours.append(time.perf_counter() - begin)
    report.add(
        "first start: mount to all_reduce done",
        ms(median(ours), 0),
        f"`{IMPORTS}` {ms(median(imports), 0)}",
        f"{median(ours) / median(imports):.2f}×",
        "at most 1.3×",
    )


def again(m, source):
    taken = []
    for _ in range(15):
        begin = time.perf_counter()
        m.write("ctl", "restart\n")
        m.write("cell", source)
        taken.append(time.perf_counter() - begin)
        time.sleep(0.5)  # a user's pause, in which the zygote prepares
    return median(taken)


def torchrun(what):
    """Seconds from the start of torchrun until the same is done."""
    taken = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as d:
            out = os.path.join(d, "times")
            begin = time.time()
            subprocess.run(  # gloo may abort at exit; the result is written by then
                [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                 here("torchrun_step.py"), out],
                check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            with open(out, encoding="utf-8") as f:
                taken.append(json.load(f)[what] - begin)
    return median(taken)


def main(report):
    first(report)
    with Mount(size=2) as m:
        m.write("cell", REDUCE)
        m.settle()
        for what, source, goal in (
            ("all_reduce", REDUCE, "100 ms"),
            ("step", REDUCE + STEP, "150 ms; 20×"),
        ):
            ours, peer = again(m, source), torchrun(what)
            report.add(
                f"restart to {'all_reduce' if what == 'all_reduce' else 'first DDP step'} done",
                ms(ours, 0),
                f"torchrun {ms(peer, 0)}",
                times(peer, ours),
                goal,
            )
