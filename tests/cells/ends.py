"""Scenes in which a cell waits, the ways to end them, and how long each takes: see ends.sh.

usage: ends.py [cuda]   cuda: the scenes of a GPU instead
"""

import os
import signal
import subprocess
import sys
import time

G = os.environ["G"]
SOON_S = 1.0  # from the request to the end of the cell on all ranks
DEAF_S = 4.5  # the third step, with killafter 1
HANG_S = 60
LIMITS = {  # where something else decides
    "DataLoader workers": 6.0,  # torch waits 5 s for a worker that the signal found at its start
    "an import": 3.5,  # it is given 2 s, so that it can be repeated
    # If no other rank ends at once, this may be a step that succeeds: it is given 1 s. So it is by
    # `stop`, as handlers may use the process group.
    "a collective of NCCL": 2.5,
    "the same with the GIL": 2.5,
}
# Their exception may be another: that of torch for a worker that the interrupt has ended first.
OWN_ERRORS = (
    "%%bash", "DataLoader workers", "a collective of gloo", "the store", "the same with the GIL",
)  # fmt: skip
# Interrupted code that asks: (what waits, how it asks). Who has interrupted it may answer; so a
# person does it again. Otherwise there is nobody, and the input is at its end.
ASKS = {
    "input() in finally": "input()",
    "sys.stdin.read() in finally": "__import__('sys').stdin.read()",
    "getpass in finally": "__import__('getpass').getpass()",
    "os.read(0) in finally": "__import__('os').read(0, 1)",
    "a child that reads in finally": "__import__('subprocess').run(['cat'])",
    "breakpoint() in finally": "breakpoint(); x = 1",
    "code.interact() in finally": "__import__('code').interact(local={})",
    "input() in __exit__": None,
}
IN_EXIT = """
class Asks:
    __enter__ = lambda self: begins()
    __exit__ = lambda self, *why: input() and None
with Asks():
    time.sleep(1000)"""
# What waits -> (cell, what it writes when it is about to wait, what is then typed, after which it
# writes `begins`). "" for what it writes: `begins`.
SCENES = {
    "breakpoint()": ("breakpoint()\nx = 1", "db> |Pdb"),
    "pdb.set_trace()": ("import pdb\npdb.set_trace()\nx = 1", "Pdb"),
    "pdb.pm()": (
        "import pdb\ntry:\n    1 / 0\nexcept ZeroDivisionError as e:\n"
        "    pdb.post_mortem(e.__traceback__)",
        "Pdb",
    ),
    "%debug before its prompt": (
        "import time, IPython.core.debugger as d\nown = d.Pdb.print_stack_entry\n"
        "d.Pdb.print_stack_entry = lambda *args, **kw: (begins(), time.sleep(1000))\n"
        "try:\n    get_ipython().run_line_magic('debug', '1 + 1')\n"
        "finally:\n    d.Pdb.print_stack_entry = own",
        "",
    ),
    "breakpoint(), continued": (
        "breakpoint()\nimport time\nbegins()\ntime.sleep(1000)",
        "db> |Pdb",
        "c\n",
    ),
    "code.interact()": ("import code\ncode.interact(local={})", ">>> "),
    "input()": ("input('begins')", ""),
    "sys.stdin.read()": ("begins()\nimport sys\nsys.stdin.read()", ""),
    "os.read(0)": ("import os\nbegins()\nos.read(0, 1)", ""),
    "a child that reads": ("import subprocess\nbegins()\nsubprocess.run(['cat'])", ""),
    "getpass": ("import getpass\nbegins()\ngetpass.getpass()", ""),
    "await": ("import asyncio\nbegins()\nawait asyncio.Event().wait()", ""),
    "%%bash": ("%%bash\n(sleep 1000 & exec sleep 1000) &\necho begins\nwait\nsleep 1000", ""),
    "x = !cmd": ("begins()\nx = !sleep 1000\nimport time\ntime.sleep(1000)", ""),
    "subprocess.run": ("import subprocess\nbegins()\nsubprocess.run(['sleep', '1000'])", ""),
    # which ignores SIGINT while it waits; ends.sh has children that are started later
    "os.system": ("import os, time\nos.system('echo begins; sleep 1000')\ntime.sleep(1000)", ""),
    "os.system in a thread": (
        "import os, threading, time\n"
        "t = threading.Thread(target=os.system, args=('echo begins; sleep 1000',))\n"
        "t.start()\nt.join()\ntime.sleep(1000)",
        "",
    ),
    "DataLoader workers": (
        "import time, torch.utils.data as d\n"
        "class Slow(d.Dataset):\n    def __len__(self): return 4\n"
        "    def __getitem__(self, i): begins(); time.sleep(1000)\n"
        "list(d.DataLoader(Slow(), num_workers=2))",
        "",
    ),
    "a thread": (
        "import threading\nt = threading.Thread(target=threading.Event().wait, daemon=True)\n"
        "t.start()\nbegins()\nt.join()",
        "",
    ),
    "time.sleep": ("import time\nbegins()\ntime.sleep(1000)", ""),
    "a lock": ("import threading\nl = threading.Lock()\nl.acquire()\nbegins()\nl.acquire()", ""),
    "a socket": (
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\nbegins()\ns.accept()",
        "",
    ),
    "an import": ("begins()\nimport endless", ""),
    "a collective of gloo": (
        "import time, torch, torch.distributed as dist\nbegins()\n"
        "dist.all_reduce(torch.ones(1)) if rank == 0 else time.sleep(1000)",
        "",
    ),
    "the store": (
        "import datetime, torch.distributed as dist\n"
        "s = dist.distributed_c10d._get_default_store()\n"
        "begins()\ns.wait(['never'], datetime.timedelta(seconds=1000))",
        "",
    ),
}
DEAF = {
    what: (
        f"import ctypes\nL, m = ctypes.{library}(None), (ctypes.c_char * 64)()\nbegins()\n"
        "L.pthread_mutex_lock(m)\nL.pthread_mutex_lock(m)",
        "",
    )
    for what, library in (
        ("C code with the GIL", "PyDLL"),
        ("C code that takes no signals", "CDLL"),
    )
}
SCENES |= {
    what: (
        "import time"
        + (f"\nbegins()\ntry:\n    time.sleep(1000)\nfinally:\n    {asks}" if asks else IN_EXIT),
        "",
    )
    for what, asks in ASKS.items()
}
NCCL = (
    "import ctypes, time, torch, torch.distributed as dist\n"
    "t = torch.ones(1 << 16, device='cuda')\n"
    "dist.all_reduce(t)  # which makes the communicator\ntorch.cuda.synchronize()\nbegins()\n"
    "if rank: time.sleep(1000)\ndist.all_reduce(t)\n"
)
CUDA = {
    "a collective of NCCL": (NCCL + "torch.cuda.synchronize()", ""),
    "the same with the GIL": (
        NCCL + "ctypes.PyDLL('libcudart.so.13').cudaDeviceSynchronize()",
        "",
    ),
}
BEGINS = "def begins(): print('begins', flush=True)\n"
failures = []


def read(path):
    with open(f"{G}/{path}", encoding="utf-8", errors="replace") as file:
        return file.read()


def ctl(line, path="ctl"):
    with open(f"{G}/{path}", "w", encoding="utf-8") as file:
        file.write(line.rstrip("\n") + "\n")


def until(condition, what):
    end = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)


def pids():
    return [line.split()[2] for line in read("ranks").splitlines()]


def write(source):
    """A writer like `cat >cell`: its process, which Ctrl-C reaches as in a terminal."""
    code = (
        "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)\n"
        "os.write(fd, sys.argv[2].encode())\nos.close(fd)"
    )
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code, f"{G}/cell", source], stderr=subprocess.DEVNULL
    )


def begin(scene):
    """Starts a cell; returns its number and writer when all ranks are about to wait, or it is over:
    on a busy machine, a timeout may come before."""
    source, said, *typed = scene
    number = int(read("cell") or 0) + 1
    magic = source.startswith("%%") or (not said and "begins()" not in source)
    writer = write(source if magic else BEGINS + source)
    words = (said or "begins").split("|")

    def wrote(words):
        try:
            texts = [read(f"cells/{number}/rank{rank}/stdout") for rank in range(2)]
        except OSError:
            return False
        return over(number) or all(any(word in text for word in words) for text in texts)

    until(lambda: wrote(words), f"begin of {source!r}")
    for line in () if over(number) else typed:
        for rank in range(2):
            ctl(line, f"rank{rank}/stdin")
        until(lambda: wrote(["begins"]), f"{line!r} in {source!r}")
    return number, writer


def over(number):
    status = read(f"cells/{number}/status")
    return "state running" not in status and "state queued" not in status


def end_by(way, number, writer, asks):
    """Asks for the end. asks: the cell asks then. Returns the seconds until it has ended."""
    start = time.monotonic()
    if way == "Ctrl-C":
        writer.send_signal(signal.SIGINT)
    elif way == "death":
        writer.send_signal(signal.SIGKILL)
    elif way == "interrupt":
        ctl("interrupt", f"cells/{number}/ctl")
        if asks:
            until(lambda: read("ranks").count("state=input") == 2, "the question")
            start = time.monotonic()
            ctl("interrupt", f"cells/{number}/ctl")
    elif way == "stop":
        ctl("stop")
    until(lambda: over(number), f"end by {way}")
    return time.monotonic() - start


def soonest(*args):
    """The least of five: others may have the processor just then."""
    for _ in range(4):
        before = failures[:]
        if (took := check(*args)) <= args[-1]:
            return took
        failures[:] = [each for each in failures if each in before or ": took " not in each]
    return check(*args)


def check(what, scene, way, most):
    timeout = 0.5 if way == "timeout" else 0
    before = pids()
    if timeout:
        ctl(f"timeout {timeout}")
    try:
        number, writer = begin(scene)
        took = end_by(way, number, writer, what in ASKS)
        if timeout:
            took = float(read(f"cells/{number}/status").split("seconds ")[1].split()[0]) - timeout
        writer.wait(HANG_S)
        state = read(f"cells/{number}/status").split("state ")[1].split()[0]
        want = {"timeout": ("timeout",)}.get(way, ("interrupted", "cancelled"))
        if most == DEAF_S or (what, way) == ("an import", "stop"):
            want = (*want, "lost")
        if state not in want:
            failures.append(f"{what} by {way}: state {state}: {read(f'cells/{number}/error')}")
        if took > most:
            failures.append(f"{what} by {way}: took {took:.2f} s")
        error = read(f"cells/{number}/error")
        name = {"timeout": "ddip.Timeout", "stop": "ddip.Stopped"}.get(way, "KeyboardInterrupt")
        if "lost" not in want and name not in error and what not in (*OWN_ERRORS, *ASKS):
            failures.append(f"{what} by {way}: {name} is not in {error!r}")
    finally:
        if timeout:
            ctl("timeout off")
        if way == "stop":
            ctl("start")
    if most != DEAF_S and way != "stop":
        if pids() != before:
            failures.append(f"{what} by {way}: ranks were replaced")
        with open(f"{G}/cell", "w", encoding="utf-8") as file:
            file.write("assert kept == 7")
    return took


def main():
    ways = ("Ctrl-C", "interrupt", "timeout", "death", "stop")
    print(f"{'seconds to the end':30}" + "".join(f"{way:>10}" for way in ways))
    cuda = sys.argv[1:] == ["cuda"]
    for what, scene in (CUDA if cuda else SCENES).items():
        took = [soonest(what, scene, way, LIMITS.get(what, SOON_S)) for way in ways]
        with open(f"{G}/cell", "w", encoding="utf-8") as file:
            file.write("kept = 7\nimport sys\nsys.path.insert(0, %r)" % os.environ["T"])
        print(f"{what:30}" + "".join(f"{t:10.2f}" for t in took), flush=True)
    ctl("killafter 1")
    for what, scene in ({} if cuda else DEAF).items():
        took = [soonest(what, scene, way, DEAF_S) for way in ways]
        print(f"{what:30}" + "".join(f"{t:10.2f}" for t in took), flush=True)
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
