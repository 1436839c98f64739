"""When things go wrong: seconds from the end of grace, an interrupt or kill -9 to the prompt."""

import os
import signal
import time

from lib import Mount, median, ms, percentile

TIMES = 30
REDUCE = "import torch, torch.distributed as dist\nx = torch.ones(1); dist.all_reduce(x)"
# rank 0 fails while rank 1 waits for it in: (code, goal)
FAILS = {
    "a collective": ("dist.all_reduce(x)", 0.5),
    "Python": ("import time; time.sleep(60)", 0.2),
}


def submit(m, source):
    """Queues a cell. Returns its number."""
    fd = os.open(m.file("cell"), os.O_RDWR | os.O_NONBLOCK)
    os.write(fd, source.encode())
    os.fsync(fd)
    number = os.read(fd, 32).decode().strip()
    os.close(fd)
    return number


def runs(m, number):
    """Waits until both ranks are in the cell: each prints a line first."""
    with open(m.file(f"cells/{number}/stream"), encoding="utf-8") as f:
        seen = 0
        while seen < 2:
            seen += '"in"' in f.readline().replace("in\\n", "in")


def interrupt(m, number):
    with open(m.file(f"cells/{number}/ctl"), "w", encoding="utf-8") as f:
        f.write("interrupt\n")


def ended(m, number):
    return m.read(f"cells/{number}/wait")


def freed(report, m):
    m.write("ctl", "grace 0\n")
    for where, (waits, goal) in FAILS.items():
        back, healed = [], []
        for _ in range(TIMES):
            begin = time.perf_counter()
            n = submit(m, f"if rank == 0:\n    1 / 0\n{waits}")
            ended(m, n)
            end = time.perf_counter()
            m.write("cell", REDUCE)
            back.append(end - begin)
            healed.append(time.perf_counter() - end)
        report.add(
            f"one rank fails, the other in {where}: failure to prompt (grace 0)",
            ms(median(back), 0),
            "",
            f"99 %: {ms(percentile(back, 99), 0)}",
            f"{goal} s",
        )
        report.add(
            "… and then to the next all_reduce done",
            ms(median(healed), 0),
            "",
            f"99 %: {ms(percentile(healed, 99), 0)}",
            "0.2 s",
        )


def interrupted(report, m):
    for where, waits, goal in (
        ("a Python loop", "while True: pass", 0.1),
        ("a collective", "if rank == 0: dist.all_reduce(x)\nelse:\n    while True: pass", 0.5),
    ):
        taken = []
        for _ in range(TIMES):
            n = submit(m, f"print('in', flush=True)\n{waits}")
            runs(m, n)
            begin = time.perf_counter()
            interrupt(m, n)
            ended(m, n)
            taken.append(time.perf_counter() - begin)
            m.write("cell", REDUCE)
        report.add(
            f"interrupt to prompt: {where}",
            ms(median(taken), 0),
            "",
            f"99 %: {ms(percentile(taken, 99), 0)}",
            f"{goal} s",
        )


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def killed(report):
    taken = []
    for _ in range(10):
        with Mount(size=2) as m:
            m.write("cell", REDUCE)
            submit(m, "while True: pass")
            pids = m.pids()
            daemon = m.daemon()
            begin = time.perf_counter()
            os.kill(daemon, signal.SIGKILL)
            while any(alive(p) for p in pids):
                time.sleep(0.001)
            taken.append(time.perf_counter() - begin)
    report.add(
        "kill -9 of the daemon to the last engine's end",
        ms(median(taken), 0),
        "",
        f"max: {ms(max(taken), 0)}",
        "1 s",
    )


def main(report):
    with Mount(size=2) as m:
        m.write("cell", REDUCE)
        freed(report, m)
        interrupted(report, m)
    killed(report)
