#!/usr/bin/env python3
"""A front end's debugger in the kernel "DDP (ddipfs)": breakpoints stop a rank."""

import contextlib
import glob
import os
import re
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
    given = given["body"]["breakpoints"]
    assert [each["line"] for each in given] == list(lines), given
    # JupyterLab lists them by this
    assert all(each["source"]["path"] == path and each["verified"] for each in given), given
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
        said = nb.ok("%dip --debug 1").text()
        assert said == "From the next cell on breakpoints stop rank 1.\n", said
        assert "there is no rank 2" in nb.run("%dip --debug 2").error[2]
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


SOON_S = 20  # also on a busy machine


def test_ends():
    """Interrupt, timeout and restart end a stopped rank soon: before it would be killed as one that
    runs no Python, after 30 s. Later cells stop again."""
    with debugged() as nb:
        nb.ok("a = 1")
        break_at(nb, CELL, 3)
        begun = nb.begin(CELL)
        stopped(nb, begun)
        since = time.monotonic()
        nb.interrupt()
        outcome = nb.finish(begun)
        assert time.monotonic() - since < SOON_S, time.monotonic() - since
        assert "KeyboardInterrupt" in outcome.error[2], outcome.error
        assert not re.search("pydevd|threading.py", outcome.error[2]), outcome.error
        assert outcome.error[2].count("line 3") == 1, outcome.error
        assert nb.debug("debugInfo")["body"]["stoppedThreads"] == []

        with open(f"{nb.group}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("timeout 1\n")
        begun = nb.begin(CELL)
        stopped(nb, begun)
        since = time.monotonic()
        outcome = nb.finish(begun)
        assert time.monotonic() - since < SOON_S, time.monotonic() - since
        assert "Timeout" in outcome.error[2], outcome.error

        with open(f"{nb.group}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("timeout off\n")
        begun = nb.begin(CELL)
        stopped(nb, begun)
        since = time.monotonic()
        with open(f"{nb.group}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("restart\n")
        outcome = nb.finish(begun)
        assert time.monotonic() - since < SOON_S, time.monotonic() - since
        assert outcome.error is not None
        begun = nb.begin(CELL)  # on new ranks
        stopped(nb, begun)
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).text() == "84\n"


TOGETHER = """import torch, torch.distributed as dist
t = torch.ones(1)
t += rank
dist.all_reduce(t)
print(t.item())
if rank == 1:
    t += 1
    x = 1
    x = 2
    x = 3
    x = 4
    x = 5
    x = 6
dist.barrier()"""


def places(nb):
    """How many ranks are stopped, and in which line each of them is."""
    with open(f"{nb.group}/ranks", encoding="utf-8") as file:
        states = [line for line in file if " state=debug " in line]
    lines = []
    for rank in 0, 1:
        with open(f"{nb.group}/rank{rank}/stack", encoding="utf-8") as file:
            lines += re.findall(r"<cell \d+>\D+(\d+)", file.read())[:1]
    return len(states), lines


def test_all_ranks():
    """`%dip --debug all`: breakpoints stop all ranks, and steps and continue move all of them, also
    over a collective. A rank that stops alone is shown."""
    with debugged() as nb:
        nb.ok(TOGETHER)
        assert "want a rank or all" in nb.run("%dip --debug=some").error[2]
        said = nb.ok("%dip --debug all").text()
        assert said == "From the next cell on breakpoints stop all ranks, which step together.\n"
        nb.ok("%%local\nfrom ddip.notebook import every_rank\nevery_rank._TOGETHER_S = 5")
        break_at(nb, TOGETHER, 3, 7)
        begun = nb.begin(TOGETHER)
        assert stopped(nb, begun)[0]["line"] == 3
        notebook.until(lambda: places(nb) == (2, ["3", "3"]))
        assert frames(nb)[0]["name"] == "rank 0: <module>"
        threads = nb.debug("threads")["body"]["threads"]
        assert "rank 0: MainThread" in [each["name"] for each in threads], threads
        nb.until(begun, "ranks 0,1 are stopped in the debugger at line 3")  # the line below
        for line in 4, 5:
            assert nb.debug("next", threadId=1)["success"]
            assert until_event(nb, begun, "stopped")["threadId"] == 1
            assert frames(nb)[0]["line"] == line
            notebook.until(lambda: places(nb) == (2, [str(line)] * 2))  # noqa: B023
        assert nb.debug("continue", threadId=1)["success"]
        at = stopped(nb, begun)  # rank 1 alone: rank 0 is in the barrier
        assert at[0]["line"] == 7 and variables(nb, at[0])["rank"] == "1", at
        assert at[0]["name"] == "rank 1: <module>", at
        check_steps_alone(nb, begun)
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).error is None
        assert frames(nb) == []
        assert nb.ok("r = %dip --ranks 0-1 t.item()\nr").data()[-1] == "[3.0, 4.0]"
        _ends_of_all(nb)


def _ends_of_all(nb):
    """An interrupt and a death while all are stopped; then one rank stops alone."""
    begun = nb.begin(TOGETHER)
    stopped(nb, begun)
    notebook.until(lambda: places(nb)[0] == 2)
    nb.interrupt()
    assert nb.finish(begun).error is not None and frames(nb) == []
    begun = nb.begin(TOGETHER)
    stopped(nb, begun)
    with open(f"{nb.group}/rank1/ctl", "w", encoding="utf-8") as ctl:
        ctl.write("kill\n")
    nb.debug("continue", threadId=1)
    assert nb.finish(begun).error is not None and frames(nb) == []
    begun = nb.begin(TOGETHER)  # with a new rank 1
    assert stopped(nb, begun)[0]["line"] == 3
    notebook.until(lambda: places(nb) == (2, ["3", "3"]))
    assert nb.debug("continue", threadId=1)["success"]
    assert stopped(nb, begun)[0]["line"] == 7
    assert nb.debug("continue", threadId=1)["success"]
    assert nb.finish(begun).error is None
    nb.ok("%dip --debug 0")
    begun = nb.begin(TOGETHER)
    assert stopped(nb, begun)[0]["line"] == 3
    notebook.until(lambda: places(nb) == (1, ["3", "4"]))  # rank 1 is in the collective
    assert nb.debug("continue", threadId=1)["success"]
    assert nb.finish(begun).text() == "3.0\n"


EARLIER = """import torch, torch.distributed as dist
def f(x):
    t = torch.ones(1)
    dist.all_reduce(t)
    return t.item() + x"""


def test_defined_before():
    """A breakpoint in a function stops on every rank that is debugged, wherever it was defined:
    before the debugger was on, and while another rank was debugged."""
    with notebook.notebook() as plain, kernel(plain) as nb:
        nb.ok(EARLIER)
        said = nb.ok("%dip --debug 0").text()
        assert "stop rank 0, when the front end's debugger is on" in said, said
        nb.debug("initialize")
        nb.debug("attach")
        path = break_at(nb, EARLIER, 3)
        begun = nb.begin("f(1)")
        at = stopped(nb, begun)
        assert [(f["name"], f["line"]) for f in at] == [("f", 3), ("<module>", 1)], at
        assert at[0]["source"]["path"] == path, at
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).error is None
        nb.ok("%dip --debug all")
        begun = nb.begin("f(2)")
        assert [f["name"] for f in stopped(nb, begun)] == ["rank 0: f", "rank 0: <module>"]
        notebook.until(lambda: places(nb)[0] == 2)
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).data()[-1].endswith(": 4.0")
        nb.ok("%dip --debug 1")
        begun = nb.begin("f(3)")
        assert stopped(nb, begun)[0]["source"]["path"] == path
        notebook.until(lambda: places(nb)[0] == 1)
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).error is None


def test_off_and_on():
    """Off and on again, nothing is set, as with ipykernel; what is set then stops."""
    with debugged() as nb:
        for source in CELL, CELL + "\n'on again'":
            assert nb.debug("debugInfo")["body"]["breakpoints"] == []
            assert nb.ok(source).text().endswith("84\n")
            path = break_at(nb, source, 3)
            listed = [{"source": path, "breakpoints": [{"line": 3}]}]
            assert nb.debug("debugInfo")["body"]["breakpoints"] == listed
            begun = nb.begin(source)
            stopped(nb, begun)
            assert nb.debug("continue", threadId=1)["success"]
            assert nb.finish(begun).error is None
            assert nb.debug("disconnect", restart=False, terminateDebuggee=False)["success"]
            assert not nb.debug("debugInfo")["body"]["isStarted"]
            assert nb.debug("initialize", clientID="test", adapterID="")["success"]
            assert nb.debug("attach")["success"]


def check_steps_alone(nb, begun):
    """Rank 1 steps while rank 0, which does not stop, is not waited for again: 6 times 5 s."""
    since = time.monotonic()
    for line in range(8, 14):
        assert nb.debug("next", threadId=1)["success"]
        until_event(nb, begun, "stopped")
        assert frames(nb)[0]["line"] == line
    assert time.monotonic() - since < SOON_S, time.monotonic() - since


def until_event(nb, begun, name):
    """The body of the next debug event of this name."""
    while True:
        message = begun[0].get_iopub_msg(timeout=notebook.HANG_LIMIT_S)
        if message["msg_type"] == "debug_event" and message["content"]["event"] == name:
            return message["content"]["body"]


def test_panels():
    """What the front end shows is true after a step, after continue, and when nothing is stopped;
    each `continued` names its thread."""
    with debugged() as nb:
        nb.ok("x = 1")
        break_at(nb, CELL, 3, 5)
        begun = nb.begin(CELL)
        stopped(nb, begun)
        (scope, *_) = nb.debug("scopes", frameId=frames(nb)[0]["id"])["body"]["scopes"]
        for command, line in (("next", 4), ("continue", 5), ("stepOut", 7)):
            assert nb.debug(command, threadId=1)["success"]
            assert until_event(nb, begun, "continued")["threadId"] == 1
            assert until_event(nb, begun, "stopped")["threadId"] == 1
            assert nb.debug("debugInfo")["body"]["stoppedThreads"] == [1]
            assert frames(nb)[0]["line"] == line, (command, frames(nb))
        assert nb.debug("continue", threadId=1)["success"]
        assert until_event(nb, begun, "continued")["threadId"] == 1
        assert nb.finish(begun).error is None

        def nothing_is_stopped():
            assert nb.debug("debugInfo")["body"]["stoppedThreads"] == []
            assert frames(nb) == []
            gone = nb.debug("variables", variablesReference=scope["variablesReference"])
            assert not gone["success"] and "is not stopped" in gone["message"], gone

        nothing_is_stopped()
        begun = nb.begin(CELL)
        stopped(nb, begun)
        nb.interrupt()
        assert until_event(nb, begun, "continued")["threadId"] == 1
        assert nb.finish(begun).error is not None
        nothing_is_stopped()
        begun = nb.begin(CELL)
        stopped(nb, begun)
        with open(f"{nb.group}/rank0/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("kill\n")
        assert until_event(nb, begun, "continued")["threadId"] == 1
        assert nb.finish(begun).error is not None
        nothing_is_stopped()
        begun = nb.begin(CELL)  # on the new rank
        stopped(nb, begun)
        assert nb.debug("continue", threadId=1)["success"]
        stopped(nb, begun)
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).text() == "84\n"


def test_two_notebooks():
    """Two notebooks debug one group: each one's breakpoints stop its cells, in turn."""
    other_cell = CELL + "\n'other'"
    with debugged() as nb, nb.of_kernel("ddipfs") as other:
        nb.ok("x = 1")
        other.debug("initialize", clientID="test", adapterID="")
        other.debug("attach")
        break_at(nb, CELL, 3)
        break_at(other, other_cell, 2)
        for book, source, line in ((nb, CELL, 3), (other, other_cell, 2)) * 2:
            begun = book.begin(source)
            assert stopped(book, begun)[0]["line"] == line
            assert book.debug("continue", threadId=1)["success"]
            assert book.finish(begun).text().endswith("84\n")
        begun = other.begin(other_cell)
        stopped(other, begun)
        waits = nb.begin(CELL)  # behind that
        notebook.until(lambda: nb.status()["queued"] == "1")
        assert other.debug("continue", threadId=1)["success"]
        assert other.finish(begun).error is None
        stopped(nb, waits)
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(waits).text().endswith("84\n")


TRACER = """import sys
calls = []
def tracer(frame, event, arg):
    if frame.f_code.co_name == "f": calls.append(event)
sys.settrace(tracer)"""


def test_other_tracer():
    """A tracer of the user's goes on tracing; that no breakpoint stops is said once."""
    with debugged() as nb:
        if nb.ok("import sys\nhasattr(sys, 'monitoring')").data()[-1].endswith("True"):
            return  # a tracer and pydevd each have a place of their own
        nb.ok(TRACER)
        break_at(nb, CELL, 3)
        said = nb.ok(CELL).text("stderr")
        assert said.count("no breakpoint stops here before sys.settrace(None)") == 1, said
        assert nb.ok(CELL).text("stderr") == ""
        assert (
            nb.ok("calls, sys.gettrace() is tracer").data()[-1].endswith("(['call', 'call'], True)")
        )
        nb.ok("sys.settrace(None)")
        begun = nb.begin(CELL)
        stopped(nb, begun)
        assert nb.debug("continue", threadId=1)["success"]
        assert nb.finish(begun).text().endswith("84\n")


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
