#!/usr/bin/env python3
"""A front end's debugger in the kernel "DDP (ddipfs)": breakpoints stop a rank."""

import contextlib
import glob
import os
import tempfile
import time

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "jupyter_client", "debugpy")

from test_kernel import kernel  # noqa: E402

CELL = """import torch.distributed as dist
a = 41
b = a + 1
def f(x):
    y = x * 2
    return y
print(f(b))
b"""


@contextlib.contextmanager
def debugged():
    """A notebook of the kernel, whose debugger is on."""
    with notebook.notebook() as plain, kernel(plain) as nb:
        assert nb.debug("initialize", clientID="test", adapterID="")["success"]
        assert nb.debug("attach")["success"]
        assert nb.debug("debugInfo")["body"]["isStarted"]
        yield nb


def break_at(nb, source, *lines):
    """Sets breakpoints in the cell with this source, as JupyterLab does."""
    path = nb.debug("dumpCell", code=source)["body"]["sourcePath"]
    points = [{"line": line} for line in lines]
    given = nb.debug("setBreakpoints", source={"path": path}, breakpoints=points, lines=lines)
    assert [each["line"] for each in given["body"]["breakpoints"]] == list(lines), given
    assert nb.debug("configurationDone")["success"]
    return path


def stopped(nb, begun):
    """Waits until the cell has stopped. Returns the frames of the thread."""
    text = nb.until(begun, "'event': 'stopped'")
    assert "'reason': 'breakpoint'" in text, text
    return frames(nb)


def frames(nb):
    answer = nb.debug("stackTrace", threadId=1)
    assert answer["success"], answer
    return answer["body"]["stackFrames"]


def variables(nb, frame):
    """name -> value of a frame's locals."""
    scopes = nb.debug("scopes", frameId=frame["id"])["body"]["scopes"]
    found = nb.debug("variables", variablesReference=scopes[0]["variablesReference"])
    return {each["name"]: each["value"] for each in found["body"]["variables"]}


def listening(pid):
    """The inodes of the TCP sockets on which a process listens."""
    found = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}", encoding="utf-8") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        found |= {row[9] for row in rows if row[3] == "0A"}
    own = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of the directory
            own.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return {inode for inode in found if f"socket:[{inode}]" in own}


def test_opens_no_port():
    """Neither the rank nor the kernel listens on a port for the debugger, which any user of the
    machine could connect to, and the socket that both have used is gone."""
    with notebook.notebook() as plain, kernel(plain) as nb:
        rank = int(nb.ok("import os\nprint(os.getpid())").text().split()[-1])
        before = [listening(pid) for pid in (rank, nb.pid)]
        nb.debug("initialize")
        nb.debug("attach")
        path = break_at(nb, CELL, 3)
        begun = nb.begin(CELL)
        stopped(nb, begun)
        assert [listening(pid) for pid in (rank, nb.pid)] == before
        assert not glob.glob(f"{tempfile.gettempdir()}/ddip-debug.*")
        assert os.stat(os.path.dirname(path)).st_mode & 0o077 == 0
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).text() == "84\n"


def test_stop():
    """A cell stops where the front end says, shows its frames and variables, and goes on."""
    with debugged() as nb:
        path = break_at(nb, CELL, 3, 5)
        begun = nb.begin(CELL)
        at = stopped(nb, begun)
        assert [(f["source"]["path"], f["line"]) for f in at] == [(path, 3)], at
        found = variables(nb, at[0])
        assert found["a"] == "41" and found["rank"] == "0" and "b" not in found, found
        one = nb.debug("richInspectVariables", variableName="a", frameId=at[0]["id"])
        assert one["body"]["data"] == {"text/plain": "41"}, one
        assert nb.debug("next", threadId=1)["success"]
        nb.until(begun, "'event': 'stopped'")
        assert frames(nb)[0]["line"] == 4, frames(nb)
        assert nb.debug("continue", threadId=1)["success"]
        at = stopped(nb, begun)
        assert [(f["name"], f["line"]) for f in at] == [("f", 5), ("<module>", 7)], at
        assert variables(nb, at[0])["x"] == "42"
        assert nb.debug("continue", threadId=1)["success"]
        outcome = nb.finish(begun)
        assert outcome.error is None, outcome.error
        assert outcome.text().endswith("84\n"), outcome.text()
        assert outcome.data()[-1].endswith(": 42"), outcome.data()
        assert nb.ok("b").data()[-1].endswith(": 42")
        assert nb.debug("disconnect", restart=False, terminateDebuggee=False)["success"]
        assert nb.ok(CELL).text() == "84\n"


THREADS = """import threading
def f(x):
    y = x * 2
    return y
other = threading.Thread(target=f, args=(1,))
other.start()
other.join()
print(f(2))"""


def test_threads():
    """The main thread stops, and no other: among them is the one that answers the mount."""
    with debugged() as nb:
        nb.ok("x = 1")
        break_at(nb, THREADS, 3)
        begun = nb.begin(THREADS)
        at = stopped(nb, begun)
        assert [(f["name"], f["line"]) for f in at] == [("f", 3), ("<module>", 8)], at
        assert variables(nb, at[0])["x"] == "2"
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).text() == "4\n"


HOOKS = """import sys
monitoring = getattr(sys, "monitoring", None)
print(sys.gettrace(), monitoring and monitoring.get_tool(monitoring.DEBUGGER_ID))"""


def test_detached():
    """When the front end has ended its debugger, the interpreter calls nobody: cells are as quick
    as before, also where the last breakpoint was set between two cells."""
    with debugged() as nb:
        nb.ok("x = 1")
        break_at(nb, CELL, 3)
        begun = nb.begin(CELL)
        stopped(nb, begun)
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).error is None
        break_at(nb, CELL, 2)
        assert nb.debug("disconnect", restart=False, terminateDebuggee=False)["success"]
        assert nb.ok(HOOKS).text() == "None None\n"


STEP = """import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
net = DDP(torch.nn.Linear(2, 1))
loss = net(torch.ones(4, 2)).sum()
here = rank
loss.backward()
print(net.module.weight.grad.sum().item())"""


def test_not_stalled():
    """While one rank is stopped for longer than `stall`, the others are not said to be stalled."""
    with debugged() as nb:
        nb.ok(STEP)  # imports what DDP needs
        with open(f"{nb.group}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("stall 0.3\n")
        nb.ok("%dip --debug 1")
        break_at(nb, STEP, 5)
        events = os.open(f"{nb.group}/events", os.O_RDONLY | os.O_NONBLOCK)
        begun = nb.begin(STEP)
        at = stopped(nb, begun)
        assert variables(nb, at[0])["rank"] == "1"
        said = "rank 1 is stopped in the debugger at line 5"
        nb.until(begun, said)  # the line below the cell
        time.sleep(1)  # three times `stall`
        with open(f"{nb.group}/stall", encoding="utf-8") as file:
            assert file.readline() == f"{said}\n"
        with open(f"{nb.group}/ranks", encoding="utf-8") as file:
            assert " state=debug " in file.read()
        story = os.read(events, 1 << 20).decode()
        os.close(events)
        assert "rank 1 stopped-in-debugger" in story and " stall " not in story, story
        assert nb.debug("continue", threadId=1)["success"]
        outcome = nb.finish(begun)
        assert outcome.error is None and outcome.text() == "8.0\n", outcome.text()


def test_ends():
    """Interrupt, timeout and restart end a stopped rank within a second; later cells stop again."""
    with debugged() as nb:
        nb.ok("a = 1")
        break_at(nb, CELL, 3)
        begun = nb.begin(CELL)
        stopped(nb, begun)
        since = time.monotonic()
        nb.interrupt()
        outcome = nb.finish(begun)
        assert time.monotonic() - since < 1, time.monotonic() - since
        assert "KeyboardInterrupt" in outcome.error[2], outcome.error
        assert nb.debug("debugInfo")["body"]["stoppedThreads"] == []

        with open(f"{nb.group}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("timeout 1\n")
        begun = nb.begin(CELL)
        stopped(nb, begun)
        since = time.monotonic()
        outcome = nb.finish(begun)
        assert time.monotonic() - since < 2, time.monotonic() - since
        assert "Timeout" in outcome.error[2], outcome.error

        with open(f"{nb.group}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("timeout off\n")
        begun = nb.begin(CELL)
        stopped(nb, begun)
        since = time.monotonic()
        with open(f"{nb.group}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("restart\n")
        outcome = nb.finish(begun)
        assert time.monotonic() - since < 5, time.monotonic() - since
        assert outcome.error is not None
        begun = nb.begin(CELL)  # on new ranks
        stopped(nb, begun)
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).text() == "84\n"


def test_without_debugpy():
    """A kernel without debugpy says that it has no debugger; ranks without it are said to be."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/debugpy.py", "w", encoding="utf-8") as file:
            file.write("raise ImportError('there is no debugpy')")
        lacking = f"{folder}:{notebook.MAGICS}"
        with notebook.notebook(PYTHONPATH=lacking) as plain, kernel(plain) as nb:
            told = nb.kernel_info()
            assert "debugger" not in told.get("supported_features", ()), told
            assert not told.get("debugger"), told
            nb.ok("x = 1")
            assert "only the kernel" in nb.run("%dip --debug 1").error[2]
    with notebook.notebook() as plain, kernel(plain) as nb:
        nb.ok("import sys\nsys.modules['debugpy'] = None")  # as if there were none
        nb.debug("initialize")
        nb.debug("attach")
        break_at(nb, CELL, 3)
        outcome = nb.ok(CELL)
        assert outcome.text() == "84\n"
        said = outcome.text("stderr")
        assert "no breakpoint stops on rank 0: ModuleNotFoundError" in said, said
        assert nb.ok(CELL).text("stderr") == ""


if __name__ == "__main__":
    notebook.run(globals())
