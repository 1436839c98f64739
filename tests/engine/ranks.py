#!/usr/bin/env python3
"""On real ranks a cell behaves as in a notebook: results, programs, interrupts, process groups."""

import json
import os
import subprocess
import sys
import tempfile
import time

from wire import HANG_LIMIT_S, PYTHON, Agent, same, until

OK, RAISED, INTERRUPTED, SYNTAX, EXIT = range(5)
PROGRAM = """
import argparse, sys
import helper
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return i

def work(i, results):
    results.put(i * 10)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int)
    print(parser.parse_args().n, helper.V, sys.argv[1:])
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(work, (results,), nprocs=2)
    print(sorted([results.get(), results.get()]))
    for how in ("spawn", "fork"):
        loader = DataLoader(Numbers(), num_workers=1, multiprocessing_context=how)
        print([b.tolist() for b in loader])
    raise KeyError("end")

if __name__ == "__main__":
    main()
"""
TUTORIAL = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def setup(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)

def demo(rank, world_size):
    setup(rank, world_size)
    model = DDP(torch.nn.Linear(10, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    model(torch.randn(20, 10)).pow(2).mean().backward()
    optimizer.step()
    dist.destroy_process_group()

demo(rank, world_size)
"""


class Group:
    """The ranks of one group, and requests to all of them."""

    def __init__(self, agent, size, backend):
        self.a, self.size, self.cell, self.generation = agent, size, 0, 1
        env = ""
        if backend != "none":
            agent.call("Tspawn", 99, 1, 1, "group", "store", "", 0)
            env = f"MASTER_ADDR=127.0.0.1\0MASTER_PORT={agent.wait('Nstarted').port}\0"
        for k in range(size):
            same(agent.spawn(k).name, "Rspawn")
        self.all([("Tinit", k, k, size, k, 1, backend, env) for k in range(size)], "Rinit")

    def all(self, messages, name):
        tags = [self.a.ask(*m) for m in messages]
        answers = [self.a.wait(lambda m, t=t: m.tag == t and m.name[0] == "R") for t in tags]
        for m in answers:
            same((m.name, getattr(m, "text", "")), (name, ""))
        return answers

    def start(self, rank, source):
        return self.a.ask("Trun", rank, self.cell, self.generation, source, mark=True)

    def run(self, source, want=OK, timeout=HANG_LIMIT_S):
        """Runs a cell and returns each rank's Rrun; all of them must have the outcome `want`."""
        self.cell += 1
        tags = [self.start(k, source) for k in range(self.size)]
        ended = [self.a.finish(k, tag, timeout) for k, tag in enumerate(tags)]
        for r, _, err in ended:
            assert r.outcome == want, (source, r.error, r.traceback.decode(), err.decode()[-500:])
        return ended

    def one(self, source, want=OK):
        """Runs a cell; (value, stdout, stderr) on rank 0."""
        r, out, err = self.run(source, want)[0]
        return (r.value if want == OK else r.error), out, err

    def values(self, source):
        return [r.value.decode() for r, _, _ in self.run(source)]

    def display(self, rank=0):
        return [json.loads(line) for line in self.a.spool(rank, "display").decode().splitlines()]

    def rebuild(self):
        self.generation += 1
        messages = [("Trebuild", k, self.generation, b"") for k in range(self.size)]
        return [m.not_repaired for m in self.all(messages, "Rrebuild")]


def check_results(g):
    for source, want in (
        ("1+1", b"2"), ("x = 5\nx * 2", b"10"), ("x;", b""), ("None", b""), ("_ + 1", b"11"),
        ("def f():\n    return 1/0", b""), ("__name__", b"'__main__'"),
        ("import asyncio\nawait asyncio.sleep(0.001)\n7", b"7"),
        ("import inspect\ninspect.getsource(f)", b"'def f():\\n    return 1/0\\n'"),
        ("get_ipython().__class__.__name__", b"'ZMQInteractiveShell'"),
        ("a = !echo shell\na", b"['shell']"), ("%time 3", b"3"), ("raise SystemExit", b""),
        ("import sys; sys.exit(0)", b""), ("sys.argv, hasattr(sys, 'ps1')", b"([''], False)"),
    ):  # fmt: skip
        same(g.one(source)[0], want)
    same(g.one("!echo out; echo err >&2; exit 3"), (b"", b"out\n", b"err\n"))
    same(g.one("_exit_code")[0], b"3")
    assert b"number of items" in g.one("len?")[1]


NOTED = "e = %s\ne.__notes__ = ['a note']\nraise e"  # as e.add_note() does from Python 3.11 on


def check_errors(g):
    for source, outcome, error in (
        ("f()", RAISED, "ZeroDivisionError: division by zero"),
        ("a b", SYNTAX, "SyntaxError: invalid syntax"),
        ("y = 1\nreturn y", SYNTAX, "SyntaxError: 'return' outside function"),
        ("exit(3)", EXIT, "SystemExit: 3"), ("sys.exit('why')", EXIT, "SystemExit: why"),
        ("%nosuch", RAISED, "IPython.core.error.UsageError: Line magic function `%nosuch` not"
                            " found."),
        ("# ddip: 'open\nx", SYNTAX, "SyntaxError: first line: want '# ddip: FILE ARG…': No closing"
                                     " quotation"),
        ("raise KeyboardInterrupt", INTERRUPTED, "KeyboardInterrupt"),
        ("raise ValueError('one\\ntwo')", RAISED, "ValueError: one"),
        (NOTED % "ValueError('bad')", RAISED, "ValueError: bad"),
        (NOTED % "SyntaxError('bad', ('f', 1, 1, 'a b'))", RAISED, "SyntaxError: bad"),
    ):  # fmt: skip
        same(g.one(source, outcome)[0], error)
    same(g.one("'y' in globals()")[0], b"False")  # no part of a cell with a SyntaxError has run
    r, _, _ = g.run("f()", RAISED)[0]
    lines = r.traceback.decode().splitlines()
    same(lines[0], "Traceback (most recent call last):")
    same(lines[1:3], [f'  File "<cell {g.cell}>", line 1, in <module>', "    f()"])
    assert lines[-1].startswith("ZeroDivisionError") and "ddip_engine" not in str(lines), lines
    shown = g.display()[-1]
    same((shown["type"], shown["ename"], shown["rank"]), ("error", "ZeroDivisionError", 0))
    assert any(f"In[{g.cell}], line 1" in line for line in shown["traceback"]), shown
    made = (
        "import weakref\nclass Big: pass\nbig = Big(); w = weakref.ref(big)\ndef h(v): 1/0\nh(big)"
    )
    g.run(made, RAISED)
    g.run("del big")
    same(g.one("w() is None")[0], b"True")  # no traceback keeps the objects of a failed cell alive


def check_display(g):
    source = """
from IPython.display import HTML, clear_output, display
h = display(HTML("<b>1</b>"), display_id="same")
h.update(HTML("<b>2</b>"))
clear_output(wait=True)
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.show()
%matplotlib inline
plt.plot([2, 1]);
"""
    before = len(g.display())
    g.run(source)
    shown = g.display()[before:]
    kinds = [d["type"] for d in shown]
    same(kinds[:3], ["display_data", "update_display_data", "clear_output"])
    same([d["transient"]["display_id"] for d in shown[:2]], ["r0-same"] * 2)
    same(["image/png" in d.get("data", ()) for d in shown[3:]], [True, True])


def check_program(g):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("helper.py", "V = 7\n"), ("program.py", PROGRAM)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        path = os.path.join(folder, "program.py")
        r, out, _ = g.run(f"# ddip: {path} --n 3\n{PROGRAM}", RAISED)[0]
        same(
            out.decode().splitlines(),
            ["3 7 ['--n', '3']", "[0, 10]"] + ["[[0], [1], [2], [3]]"] * 2,
        )
        number = PROGRAM.splitlines().index('    raise KeyError("end")') + 1
        assert f'File "{path}", line {number}, in main' in r.traceback.decode(), r.traceback
    state = "sys.argv, '__file__' in globals(), 'helper' in [p.split('/')[-1] for p in sys.path]"
    same(g.one(state)[0], b"([''], False, False)")


def check_children(g):
    source = """
import logging, os
logging.basicConfig(); logging.warning("parent")
p = os.fork()
if p == 0:
    logging.warning("child"); print("printed"); raise ValueError("in the child")
status = os.waitpid(p, 0)[1] >> 8
status
"""
    value, out, err = g.one(source)
    same((value, out), (b"1", b"printed\n"))
    lines = err.decode().splitlines()
    same(lines[:2] + lines[-1:], ["WARNING:root:parent", "WARNING:root:child",
                                  "ValueError: in the child"])  # fmt: skip


INTERRUPTED_TRAP = """
trap = get_ipython().%s
def interrupted():
    del trap.%s
    raise KeyboardInterrupt
trap.%s = interrupted
"""


def interrupted(g, source):
    """Runs a cell on rank 0 and interrupts it when it has printed `on`. Returns its Rrun."""
    g.cell += 1
    before = len(g.a.spool(0, "stdout"))
    tag = g.start(0, source)
    until(lambda: g.a.spool(0, "stdout")[before:].endswith(b"on\n"), what="the cell")
    g.a.send("Nintr", 0, g.cell, 0)
    return g.a.finish(0, tag)[0]


def check_interrupts(g):
    for i in range(200):
        g.cell += 1
        tag = g.start(0, ("pass", "for i in range(30000): pass", "1/0", "display(1)")[i % 4])
        for _ in range(i % 3):
            g.a.send("Nintr", 0, g.cell, 0)
        r, _, _ = g.a.finish(0, tag)
        assert r.outcome in (OK, RAISED, INTERRUPTED), r
    source = "import asyncio\nprint('on')\nawait asyncio.sleep(60)"
    same(interrupted(g, source).outcome, INTERRUPTED)
    source = "import time\nprint('on')\ntry: time.sleep(60)\nexcept KeyboardInterrupt: pass\n"
    source += NOTED % "RuntimeError('gloo: Connection closed by peer')"
    same(interrupted(g, source).outcome, INTERRUPTED)
    same(g.one("await asyncio.sleep(0)\n'next'"), (b"'next'", b"", b""))
    # as if it had arrived while IPython restores its hooks
    for trap, method in ("display_trap", "unset"), ("builtin_trap", "deactivate"):
        g.run(INTERRUPTED_TRAP % (trap, method, method), INTERRUPTED)
        same(g.one("get_ipython() and 'next'"), (b"'next'", b"", b""))


def talk(g, source, *lines):
    """Runs a cell on rank 0 and answers its prompts; None: by an interrupt."""
    g.cell += 1
    tag = g.start(0, source)
    for line in lines:
        g.a.wait(lambda m: m.name == "Ninput" and m.waits == 1, what="Ninput")
        if line is None:
            g.a.send("Nintr", 0, g.cell, 0)
        else:
            g.a.send("Nstdin", 0, line + "\n")
    return g.a.finish(0, tag)


def check_debugger(g):
    r, out, _ = talk(g, "v = 5\nbreakpoint()\nprint('after', v)", "p v * 2", "v = 7", "c")
    same(r.outcome, OK)
    assert b"(Pdb) 10\n" in out and out.endswith(b"after 7\n"), out
    same(talk(g, "breakpoint()", "q")[0].outcome, RAISED)
    g.run("def inner(y):\n    1 / y\ninner(0)", RAISED)
    for source in (
        "__import__('ddip_engine.cells.comms').cells.comms.receive_all([])",  # what widgets send
        "%xmode Plain", "%xmode Context", "%pdb off", "import traceback\ntraceback.print_last()",
    ):  # fmt: skip
        g.run(source)
    r, out, _ = talk(g, "%debug", "p 'y is', y", "q")
    assert r.outcome == OK and b"('y is', 0)" in out, (r, out)
    same(talk(g, "input('name? ')", "Ann")[0].value, b"'Ann'")
    requests = [d for d in g.display() if d["type"] == "input_request"]
    same(requests[-1]["prompt"], "name? ")


def check_debugger_after_failures(g):
    fail = "def deep(z):\n    1 / z\ndeep(0)"
    for mode in ("Context", "Plain"):
        g.run(f"%xmode {mode}\n%pdb on")
        r, out, _ = talk(g, fail, "p 'z is', z", "up", "q")
        same((r.outcome, r.error), (RAISED, "ZeroDivisionError: division by zero"))
        assert out.startswith(b"ZeroDivisionError: division by zero\n> "), out
        assert b"('z is', 0)" in out and b"module>" in out, out
        r, _, _ = talk(g, fail, None)  # an interrupt ends the debugger
        same((r.outcome, r.error), (RAISED, "ZeroDivisionError: division by zero"))
        # after an interrupt and a SyntaxError, none begins
        same(interrupted(g, "import time\nprint('on')\ntime.sleep(60)").outcome, INTERRUPTED)
        g.run("a b", SYNTAX)
    g.run("%xmode Context\n%pdb off")
    g.run(fail, RAISED)


def test_cells():
    with Agent(PYTHON) as a:
        g = Group(a, 1, "none")
        for check in (check_results, check_errors, check_display, check_program, check_children,
                      check_interrupts, check_debugger, check_debugger_after_failures):  # fmt: skip
            check(g)


def check_groups(g):
    g.run("import os, time, torch, torch.distributed as dist\nt = torch.ones(2) * (rank + 1)")
    reduced = "\nt = torch.ones(2) * (rank + 1); dist.all_reduce(t); t.tolist()"
    for source in (
        "", "dist.init_process_group('gloo')", "dist.init_process_group()",
        "dist.destroy_process_group(); dist.init_process_group('gloo')\n"
        "dist.destroy_process_group(); dist.init_process_group()",
        "dist.init_process_group('gloo', init_method='env://', rank=rank, world_size=world_size)",
        "dist.init_process_group('gloo', init_method='tcp://127.0.0.1:9', rank=rank, world_size=2)",
    ):  # fmt: skip
        same(g.values(source + reduced), ["[3.0, 3.0]"] * 2)
    twice = "dist.init_process_group('gloo')\ndist.init_process_group('gloo')"
    same(
        g.one(twice, RAISED)[0], "ValueError: trying to initialize the default process group twice!"
    )
    g.run("dist.destroy_process_group()")
    assert "has not been initialized" in g.one("dist.all_reduce(t)", RAISED)[0]
    store = (
        "st = dist.FileStore(%r, 2)\n"
        "dist.init_process_group('gloo', store=st, rank=rank, world_size=2)"
    )
    same(g.values(store % os.path.join(g.a.dir, "store.file") + reduced), ["[3.0, 3.0]"] * 2)
    for _ in range(60):
        g.run(TUTORIAL)
    without = TUTORIAL.replace("    dist.destroy_process_group()\n", "")
    for _ in range(2):  # a program that never destroys its group, run repeatedly
        g.run(without)


def check_healing(g):
    g.run("model = DDP(torch.nn.Linear(4, 4)); x = torch.randn(4, 4)\n"
          "sub = dist.new_group([0, 1])\n"
          "opt = torch.optim.SGD(model.parameters(), lr=0.01)\n"
          "def step():\n    opt.zero_grad(); model(x).sum().backward(); opt.step()\n"
          "    return sum(float(p.detach().sum()) for p in model.parameters())")  # fmt: skip
    g.run("step()\nimport copy, gc; copied = copy.deepcopy(model)\ngc.freeze()")
    for round_ in range(3):
        g.cell += 1
        tag = g.start(0, "step()")
        same(g.a.run(1, "raise ValueError", cell=g.cell)[0].outcome, RAISED)
        until(lambda: b"ward" in g.a.call("Tstack", 0).text, what="the step")
        g.a.send("Nintr", 0, g.cell, 0)
        g.a.send("Nabort", 0, 1, 0)
        same(g.a.finish(0, tag)[0].outcome, INTERRUPTED)
        told = g.rebuild()
        assert all(("sub: ProcessGroup" in text) == (round_ == 0) for text in told), told
        first, second = g.values("[step() for i in range(3)][-1]")
        same(first, second)
    first, second = g.values("copied(x + rank).sum().backward(); copied.module.weight.grad.sum()")
    same(first, second)


def check_libraries(g):
    code = "import importlib.util as u; u.find_spec('accelerate') is not None"
    if g.one(code)[0] == b"True":
        source = """
from accelerate import Accelerator
acc = Accelerator(cpu=True)
model2, opt2 = acc.prepare(torch.nn.Linear(4, 4), torch.optim.SGD([torch.zeros(1)], lr=0.1))
acc.gather(torch.tensor([acc.process_index])).tolist()
"""
        for extra in ("", "", "\nacc.end_training()", ""):
            g.run(source + extra)
    same(g.values("""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
net = fully_shard(torch.nn.Linear(8, 8), mesh=init_device_mesh("cpu", (2,)))
net(torch.randn(2, 8)).sum().backward()
type(net).__mro__[1].__name__"""), ["'FSDPModule'"] * 2)  # fmt: skip
    assert all("net: FSDPModule" in text for text in g.rebuild())


def test_groups():
    with Agent(PYTHON) as a:
        looks = "import importlib.util as u; print(u.find_spec('torch') is not None)"
        if subprocess.check_output([PYTHON, "-c", looks]) != b"True\n":
            return
        assert "import_torch_ms" in a.warm_phases.phases, a.warm_phases.phases
        g = Group(a, 2, "gloo")
        for check in (check_groups, check_healing, check_libraries):
            check(g)


def main():
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        return 77
    for name, function in list(globals().items()):
        if name.startswith("test_") and (len(sys.argv) < 2 or name[5:] in sys.argv):
            started = time.monotonic()
            function()
            print(f"ok   {time.monotonic() - started:6.2f} s  {name[5:]}", flush=True)
    return 0


HELD_UP = """
import os, time, _ddip
from ddip_engine.groups import dist
begin = dist.begin_cell
def hold():
    while not os.path.exists({0!r}):
        time.sleep(0.01)
    begin()
for _ in range(5):
    _ddip.tick(0)
dist.begin_cell = hold
"""


def test_steps_are_of_one_cell():
    """They count from 0 when the rank has been told of it, not only when its code begins."""
    with Agent() as a:
        a.spawn(0)
        path = os.path.join(a.dir, "go")
        a.run(0, HELD_UP.format(path))
        same(a.call("Tsteps", 0).optimizer, 5)
        tag = a.ask("Trun", 0, 2, 1, "_ddip.tick(0)", mark=True)
        same(a.call("Tsteps", 0).optimizer, 0)
        open(path, "w").close()
        a.finish(0, tag)
        same(a.call("Tsteps", 0).optimizer, 1)


if __name__ == "__main__":
    sys.exit(main())
