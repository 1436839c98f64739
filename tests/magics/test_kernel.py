#!/usr/bin/env python3
"""The kernel "DDP (ddipfs)": all of a notebook runs on the ranks, with no magics to learn."""

import json
import os
import sys

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "jupyter_client")

sys.path.insert(0, os.path.join(notebook.ROOT, "scripts"))
import build_backend  # noqa: E402


def kernel(nb):
    """Makes this notebook one of the kernel, as the package installs it."""
    folder = os.path.join(nb.folder, "share", "kernels", "ddipfs")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kernel.json"), "w", encoding="utf-8") as file:
        json.dump(build_backend.KERNEL, file)
    os.environ["JUPYTER_PATH"] = os.path.join(nb.folder, "share")
    return nb.of_kernel("ddipfs")


def test_cells():
    """The first cell makes the group; all run on the ranks, but those that say otherwise."""
    with notebook.notebook() as plain, kernel(plain) as nb:
        first = nb.ok("import os\nx = rank + 1\nworld_size")
        assert "DDP group: idle, 2 CPU ranks" in first.text(), first.text()
        assert first.data()[-1].endswith(": 2"), first.data()
        assert nb.ok("%%time\ny = x").error is None
        assert nb.ok("print(x, y)").text() == "1 1\n"
        assert nb.ok("%%local\nimport os\nx = 'here'\nx").data() == ["'here'"]
        waits = "import asyncio\nawait asyncio.sleep(0)\nx"
        assert nb.ok(f"%%local\n{waits}").data() == ["'here'"]
        here, there = (nb.ok(f"{way}print(os.getpid())").text() for way in ("%%local\n", ""))
        assert here == f"{nb.pid}\n" and there != here, (here, there)
        assert nb.ok("z = %timeit -q -o -n 1 -r 1 x\nprint(z.loops)").text() == "1\n"
        assert nb.run("1 / 0").error[1] == "ZeroDivisionError(division by zero)"
        nb.ok("r = %dip x + 1")
        assert nb.ok("%%local\nr").data() == ["2"]
        nb.ok("%load_ext ddip")
        assert "unchanged" in nb.ok("%load_ext ddip\n%makedip -n 2").text()
        for begins in "", "%load_ext ddip\n":
            assert nb.ok(f"{begins}%%dip -S all\nprint(world_size)").text().count("2\n") == 2
        assert nb.ok("%load_ext ddip\n%%local\nprint('here')").text() == "here\n"
        told = nb.run("y = 2\nr = %dip x").error[2]
        assert "%dip runs in the notebook" in told and "cell of its own" in told, told
        assert nb.complete("wor") == ["world_size"], nb.complete("wor")


def test_beside_magics():
    """%%dip in another notebook and this kernel share the group."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", "%%dip\nx = 5") as other:
        with kernel(other) as nb:
            first = nb.ok("x += 1\nprint(x)").text()
            assert "Attached to" in first and first.endswith("6\n"), first
            assert other.ok("%%dip\nx").data()[0].endswith(": 6")


def test_restart():
    """A restart of the kernel restarts the ranks, also amid a cell, and the next cell says so."""
    with notebook.notebook() as plain, kernel(plain) as nb:
        nb.ok("x = 1")
        begun = nb.begin("import time\nprint('begun', flush=True)\ntime.sleep(1000)")
        nb.until(begun, "begun")
        nb.manage("restart_kernel")
        begun[0].stop_channels()
        nb.await_ready()
        shown = nb.ok("print('x' in globals())").text()
        assert "The ranks were restarted with the kernel" in shown, shown
        assert shown.endswith("False\n"), shown
        assert "restarted" not in nb.ok("print('x')").text()
        nb.ok("%makedip -k")
        assert "restarted" not in nb.ok("print('x')").text()


def test_ended_group():
    """Ranks that have ended meanwhile, as after two idle hours, are started again, and that is
    said."""
    with notebook.notebook() as plain, kernel(plain) as nb:
        nb.ok("x = 1")
        with open(f"{nb.group}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("stop\n")
        shown = nb.ok("print('x' in globals())").text()
        assert shown.startswith("The ranks had ended") and shown.endswith("False\n"), shown


def test_variables():
    """The front end's panel of variables shows those of rank 0, or of the one that is debugged."""
    with notebook.notebook() as plain, kernel(plain) as nb:
        nb.ok("import torch\nx = 41 + rank\nt = torch.zeros(3, 4)")
        answer = nb.debug("inspectVariables")
        found = {row["name"]: (row["type"], row["value"]) for row in answer["body"]["variables"]}
        assert found["x"] == ("int", "41"), found
        assert found["t"] == ("Tensor", "[3, 4] float32 cpu"), found
        one = nb.debug("richInspectVariables", variableName="x")
        assert one["body"]["data"] == {"text/plain": "41"}, one
        assert not nb.debug("richInspectVariables", variableName="nothing")["success"]
        nb.ok("%dip --debug 1")
        one = nb.debug("richInspectVariables", variableName="x")
        assert one["body"]["data"] == {"text/plain": "42"}, one


if __name__ == "__main__":
    notebook.run(globals())
