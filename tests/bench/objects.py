"""Objects: push to both ranks, pull from one; a value read while training runs."""

import contextlib
import os
import time

import numpy as np
from lib import Mount, ipyparallel, median, ms, percentile, timed, times

LOOP = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
model = DDP(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loss = 0.0
while loss >= 0:
    out = model(torch.randn(64, 256)).square().mean()
    optimizer.zero_grad(); out.backward(); optimizer.step()
    loss = out.item()
"""


def sizes(report, m):
    for name, size, count in (("1 KB", 1 << 10, 200), ("100 MB", 100 << 20, 10)):
        data = np.arange(size // 8, dtype="f8")

        def push(data=data):
            np.save(m.file("vars/x.npy"), data)

        def pull():
            with open(m.file("rank0/vars/x.npy"), "rb") as f:
                return np.load(f)

        ours = {"push": timed(push, count), "pull": timed(pull, count)}
        assert np.array_equal(pull(), data)
        peer = ipyparallel("objects", size, count)
        for what, taken in ours.items():
            report.add(
                f"{what} {name}",
                ms(median(taken)),
                f"ipyparallel {ms(median(peer[what]))}",
                times(median(peer[what]), median(taken)),
                "5×",
            )


def loss(report, m):
    fd = os.open(m.file("cell"), os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, LOOP.encode())
    os.fsync(fd)
    os.close(fd)

    def read():
        return float(m.read("vars/loss"))

    while True:  # until it trains
        with contextlib.suppress(FileNotFoundError):
            if read():
                break
        time.sleep(0.01)

    taken = timed(read, 1000)
    n = os.readlink(m.file("cells/last"))
    with open(m.file(f"cells/{n}/ctl"), "w", encoding="utf-8") as f:
        f.write("interrupt\n")
    m.read(f"cells/{n}/wait")
    report.add(
        "`cat vars/loss` in a training loop",
        ms(median(taken)),
        "",
        f"99 %: {ms(percentile(taken, 99))}",
        "1 ms; 99 % 10 ms",
    )


def main(report):
    with Mount(size=2) as m:
        m.settle()
        m.write("cell", "import numpy as np")
        sizes(report, m)
        loss(report, m)
