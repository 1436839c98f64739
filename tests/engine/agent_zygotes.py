#!/usr/bin/env python3
"""The agent's zygotes: which of them, or of their spares, starts a rank, and when they end."""

import contextlib
import os
import resource
import signal
import subprocess
import sys

import wire
from agent import descendants
from wire import PLAIN_PYTHON, PYTHON, Agent, alive, same, until


def test_successor_and_cold():
    with Agent() as a:
        (first,) = zygotes(a)
        same(a.spawn(0).how, "zygote")
        # it is made in a quiet moment, which each start ends
        until(lambda: first not in zygotes(a), what="a successor")
        same(a.spawn(1).how, "successor")
        same(a.spawn(999, cold=1, name="cold").how, "cold")
        r = a.call("Trun", 999, 1, 1, "2 + 3", mark=True)
        same((r.outcome, r.value), (0, b"5"))


def test_eager():
    """With DDIP_EAGER the first zygote imports what a successor would, and needs none."""
    os.environ["DDIP_EAGER"] = "1"
    try:
        with Agent(PYTHON) as a:
            first = zygotes(a)
            spare_of(a, 0)
            same(zygotes(a), first)
            loaded = a.run(0, "import sys; 'torch.nn.parallel.distributed' in sys.modules")
            same(loaded[0].value, b"True")
    finally:
        del os.environ["DDIP_EAGER"]


EARLY = """
from IPython import get_ipython
shell = get_ipython()
made = shell.run_cell("early = 6 * 7")
failed = shell.run_cell("1 / 0")
if not made.success or not isinstance(failed.error_in_exec, ZeroDivisionError):
    raise ImportError(f"{made.error_in_exec} {failed.error_in_exec}")
"""


def test_a_preload_runs_a_cell():
    """IPython runs cells of a module that is imported before the first cell."""
    with Agent(PYTHON, warm=False) as a:
        with open(os.path.join(a.dir, "early_cells.py"), "w", encoding="utf-8") as f:
            f.write(EARLY)
        same(a.warm(1, PYTHON, f"PYTHONPATH={a.dir}", preload="early_cells").name, "Rzygote")
        same(a.wait(lambda m: m.name == "Npreload", what="Npreload").failed, "")
        a.spawn(0)
        same(a.run(0, "import early_cells; early_cells.made.success")[0].value, b"True")


def test_guard_and_age():
    """A zygote with a second thread starts ranks cold; one with changed packages is replaced."""
    with Agent(warm=False) as a:
        site = os.path.join(a.dir, "site")
        os.mkdir(site)
        with open(os.path.join(site, "sitecustomize.py"), "w", encoding="utf-8") as f:
            f.write("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True)"
                    ".start()\n")  # fmt: skip
        same(a.warm(1, PYTHON, env=f"PYTHONPATH={site}").name, "Rzygote")
        r = a.spawn(0)
        same((r.name, r.how), ("Rspawn", "cold"))
        same(a.run(0, "6 * 7")[0].value, b"42")
        user = os.path.join(a.dir, "user")
        packages = subprocess.run(
            [PYTHON, "-c", "import site; print(site.getusersitepackages())"],
            env={**os.environ, "PYTHONUSERBASE": user}, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        os.makedirs(packages)
        env = f"PYTHONUSERBASE={user}"
        same(a.warm(2, PLAIN_PYTHON, env=env).name, "Rzygote")
        same(a.spawn(1, zygote=2, name="rank1").how, "zygote")
        old = zygotes(a)
        with open(os.path.join(packages, "new_module.py"), "w", encoding="utf-8") as f:
            f.write("answer = 42\n")
        same(a.spawn(2, zygote=2, name="rank2").how, "zygote")
        r, _, _ = a.run(2, "import new_module; new_module.answer")
        same(r.value, b"42")
        assert set(zygotes(a)) - set(old), old


def test_spares_of_a_dead_zygote():
    """They have loaded what it had loaded, which may have changed on disk since."""
    with Agent() as a:
        spare = spare_of(a, 0)
        for pid in zygotes(a):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(spare), what="the end of the spare")
        same(a.spawn(1).how, "zygote")


def test_spare_refuses():
    """One that cannot receive an engine's descriptors ends, and is replaced."""
    with Agent() as a:
        spare = spare_of(a, 0)
        resource.prlimit(spare, resource.RLIMIT_NOFILE, (3, 3))
        same(a.spawn(1).how, "cold")
        until(lambda: not alive(spare), what="the end of the spare")


def spare_of(a, slot):
    """Starts an engine, and waits for the spare that is then made for the next one."""
    a.spawn(slot)
    until(lambda: zygotes(a, "ddip-spare"), what="a spare")
    (spare,) = zygotes(a, "ddip-spare")
    until(lambda: parent(spare) == a.process.pid, what="the announcement of the spare")
    a.call("Thello", wire.AGENT, wire.VERSION, "")  # the agent has read that
    return spare


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return int(f.read().rpartition(")")[2].split()[1])


def zygotes(a, name="ddip-zygote"):
    """Pids of the agent's zygotes, or of their spares."""
    found = []
    for pid in descendants(a.process.pid):
        # a replaced zygote may be exiting right now
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as f:
            if f.read() == f"{name}\n":
                found.append(pid)
    return found


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
