#!/usr/bin/env python3
"""The example programs learn on a GPU, run by `ddip run` on one rank and on two; those that need
Fashion-MNIST only where it is (Debian's package dataset-fashion-mnist, or FASHION_MNIST=folder).
"""

import os
import re
import subprocess

import group

group.need_gpu()
if os.environ.get("FAKE_CUDA"):
    group.skip("fakes have too few operators for the examples")
check = group.Checks()
TOOL = os.path.join(os.path.dirname(group.PROGRAM), "ddip")
EXAMPLES = os.path.join(group.ROOT, "scripts", "examples")
DATA = os.environ.get("FASHION_MNIST") or "/usr/share/datasets/fashion-mnist"
PROGRAMS = ("ddp", "fsdp", "ddp_checkpoint", "data_parallel", "single")
STEPS, WORST = (50, 2.5) if group.REHEARSES else (200, 1.5)
FEW = ("--epochs", "1", "--images", "6000")


def run(g, program, *words):
    """What a program prints. It runs in new processes of the group's ranks."""
    environment = dict(os.environ, DDIP_MOUNT=g.place, DDIP_GROUP="group")
    command = [TOOL, "run", "-f", os.path.join(EXAMPLES, f"{program}.py"), *words]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    check.equal(f"{program}: exit status", done.returncode, 0)
    print(done.stderr)
    return done.stdout


def start(g, size):
    g.ctl("stop", f"size {size}", group.gpus(size), "start")


def gpt(g):
    text = run(g, "gpt", "--steps", str(STEPS))
    losses = [float(x) for x in re.findall(r"loss ([0-9.]+)", text)]
    check.true("gpt.py learns", losses and losses[-1] < WORST, text)
    check.true("its curve is a picture", g.read_bytes("vars/fig.png").startswith(b"\x89PNG"))


def fashion(g, program):
    text = run(g, program, *FEW, "--data", DATA)
    loss = [float(x) for x in re.findall(r"(?:loss|share|by rank) ([0-9.]+)", text)]
    check.true(f"{program}.py learns", loss and loss[-1] < 1.2, text)


with group.Group(backend=group.backend()) as g:
    for size in (1, 2):
        check.part(g, start, size)
        check.part(g, gpt)
        if group.REHEARSES or not os.path.isdir(DATA):
            print("the others: on a GPU, and where Fashion-MNIST is")
            continue
        for program in PROGRAMS:
            check.part(g, fashion, program)
check.done()
