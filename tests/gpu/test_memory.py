#!/usr/bin/env python3
"""Views of objects on a GPU equal those of a copy on the host, also while a kernel runs; a push
lands on the GPU; running out of memory, or losing a context, leaves a group that works."""

import io
import os

import group

torch = group.need_gpu()
try:
    import numpy as np
except ImportError as e:
    group.skip(f"{e}")

check = group.Checks()


def npy(array):
    """The bytes that numpy.save() writes."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def views(g):
    g.cell(
        group.PRELUDE
        + "x = torch.arange(1 << 22, dtype=torch.float32).reshape(2048, -1).to(device)\n"
        + "t, half, flags, loss = x.T, x.bfloat16(), x > 5, x.mean()"
    )
    x = torch.arange(1 << 22, dtype=torch.float32).reshape(2048, -1)
    for name, want in (("x", x), ("t", x.T), ("flags", x > 5)):
        check.equal(f"{name}.npy", g.read_bytes(f"vars/{name}.npy") == npy(want.numpy()), True)
    data = g.read_bytes("vars/half.safetensors")
    raw = x.bfloat16().reshape(-1).view(torch.uint8).numpy().tobytes()
    check.equal("safetensors has the bytes of bfloat16", data.endswith(raw), True)
    shown = g.value("print(f'{x}\\n{loss}', flush=True)") or g.read("cells/last/rank0/stdout")
    check.equal("text", g.read("vars/x") + g.read("vars/loss"), shown)
    with g.open("vars/x.npy") as file:
        file.seek(128 + 4096 * 1000)
        row = np.frombuffer(file.read(4096), "f4")
        check.equal("a page in the middle", row[:2].tolist(), [1024000.0, 1024001.0])
        g.cell("x[500] = -1")
        file.seek(128 + 4096 * 1000)
        row = np.frombuffer(file.read(4096), "f4")
        check.equal("a change in place shows", row[:2].tolist(), [-1.0, -1.0])


def while_a_kernel_runs(g):
    gate = os.path.join(g.folder, "gate")
    os.mkfifo(gate)
    busy = "torch.cuda._sleep(1 << 34)" if torch.cuda.is_available() else f"open({gate!r}).read()"
    n = g.submit(f"print('on', flush=True); {busy}; finish()")
    group.until(lambda: "on" in g.read(f"cells/{n}/rank0/stdout"), "the kernel is queued")
    data = g.read_bytes("vars/flags.npy")
    check.equal("the cell runs still", g.state(n), "running")
    if not torch.cuda.is_available():
        open(gate, "w").close()
    want = (torch.arange(1 << 22) > 5).reshape(2048, -1).numpy()
    check.equal("an object of an ended cell is read", data == npy(want), True)
    check.equal("and the cell ends well", g.wait(n), "ok")


def pushes(g):
    g.write("vars/x.npy", npy(np.full((3, 4), 7, "f4")))
    where = "cuda" if torch.cuda.is_available() else "cpu"
    check.equal("where it lands", g.value("x.device.type, float(x[2, 3])"), f"('{where}', 7.0)")
    g.write("vars/fresh.npy", npy(np.ones(3)))
    check.equal("a new name", g.value("type(fresh).__module__"), "'numpy'")
    if torch.cuda.is_available():
        g.write("vars/fresh.cuda.npy", npy(np.ones(3)))
        check.equal("a new name on the GPU", g.value("fresh.device.type"), "'cuda'")
        check.true("gpu names it", "object fresh 24\n" in g.read("rank0/gpu"), g.read("rank0/gpu"))


def out_of_memory(g):
    used = "torch.cuda.memory_allocated()" if torch.cuda.is_available() else "0"
    g.cell("def train():\n    held = torch.ones(1 << 20, device=device)\n    grow(held)")
    g.cell("def grow(held):\n    return torch.empty(1 << 50, dtype=torch.uint8, device=device)")
    before = g.value(used)
    with g.open("events") as events:
        g.fails(g.cell, "train()")
        text = ""
        while " cell " not in text.partition("out-of-memory")[2]:  # its end
            text += events.read(1 << 16).decode()
    check.true("events name it", "train.held:4194304" in text, text)
    check.equal("the cell fails", g.state(), "error")
    check.equal("what its functions held is free", g.value(used), before)


def lost_context(g):
    if not torch.cuda.is_available():
        print("a context that is lost: only on a GPU")
        return
    pid = g.key("rank0/status", "pid")
    g.fails(g.cell, "torch.zeros(1, device=device)[torch.tensor([5], device=device)]\nfinish()")
    group.until(lambda: g.key("rank0/status", "pid") not in (pid, "-", ""), "rank 0 is replaced")
    said = g.read("error")
    check.true("error says why", "device-side assert triggered (cudaErrorAssert)" in said, said)
    check.true("and which GPU", "the CUDA context is lost (GPU 0: " in said, said)
    g.cell(group.PRELUDE + "y = torch.ones(3, device=device).sum().item()")
    check.equal("a new rank works", g.value("y"), "3.0")


with group.Group(size=1, backend="none", gpus="none" if group.REHEARSES else "0") as g:
    for part in (views, while_a_kernel_runs, pushes, out_of_memory, lost_context):
        check.part(g, part)
check.done()
