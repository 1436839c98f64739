#!/usr/bin/env python3
"""The kernel "DDP (ddipfs)", and the magics in another one, in VS Code, which vscode.py plays."""

import os
import time

import notebook

notebook.need("torch", "IPython", "ipykernel", "jupyter_client", "nbformat", "debugpy")

import vscode  # noqa: E402


def test_hidden_requests():
    """What the editor runs before the first cell and between cells starts no group, takes no
    number, and leaves nothing on the ranks."""
    with vscode.window() as ed:
        ed.types(), ed.described()
        assert ed.nb.status()["state"] == "new", ed.nb.status()
        assert ed.ok("x = 41 + rank\n5").number == 1
        assert ed.hidden("import json as j\nprint(j.dumps([1]))") == "[1]\n"
        ed.types(), ed.described(), ed.rows("type('Rows', (), {'tolist': lambda s: [1]})()", 0, 1)
        last = ed.ok("print([n for n in {**globals()} if 'VSC' in n or 'jupyter' in n], _)")
        assert (last.number, last.text()) == (2, "[] 5\n"), (last.number, last.outputs)
        assert ed.ok("%dip --replay").text() == last.text()
        assert ed.ok("%%local\n'j' in globals()").data() == ["True"]


def test_variables():
    """The panel of variables and the data viewer show those of rank 0, or of the one that is
    debugged."""
    with vscode.window() as ed:
        ed.ok("import torch\nx = 41 + rank\nt = torch.arange(6).reshape(3, 2) + rank\nd = {1: 2}")
        assert ed.types() == {"x": "int", "t": "Tensor", "d": "dict"}, ed.types()
        assert ed.value("x") == ("int", "41"), ed.value("x")
        assert ed.value("t")[0] == "Tensor" and "[4, 5]" in ed.value("t")[1], ed.value("t")
        assert ed.info("t") == {"type": "Tensor", "shape": "(3, 2)", "count": 3}, ed.info("t")
        assert ed.info("d")["count"] == 1, ed.info("d")
        assert ed.rows("t", 1, 3) == [[2, 3], [4, 5]], ed.rows("t", 1, 3)
        described = ed.described()
        assert described["x"] == "41" and "rank" not in described, described
        ed.ok("%dip --debug 1")
        assert ed.value("x") == ("int", "42") and ed.described()["x"] == "42"
        assert ed.rows("t", 0, 1) == [[1, 2]], ed.rows("t", 0, 1)
        assert "name 'nix' is not defined" in ed.rows("nix", 0, 1)


def test_variables_of_busy_ranks():
    """While a cell of another program runs, the panel is filled, and nothing waits."""
    with vscode.window() as ed:
        ed.ok("import torch\nt = torch.zeros(2, 3)\nd = {1: 2}")
        ed.nb.submit("import time\nwhile not stop_now: time.sleep(0.01)\n".replace("stop_now", "0"))
        notebook.until(lambda: ed.nb.status()["state"] == "busy")
        assert ed.types()["t"] == "Tensor", ed.types()
        assert ed.info("t")["shape"] == "(2, 3)" and ed.info("d")["type"] == "dict"
        assert "rank 0 is not ready" in ed.rows("t", 0, 1)
        assert ed.nb.status()["state"] == "busy", ed.nb.status()
        with open(f"{ed.nb.group}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("interrupt\n")


def test_links():
    """Tracebacks link to the cells of this notebook, by its numbers, and to files."""
    with vscode.window("python3") as ed:
        for first in ("%load_ext ddip", "%makedip -n 2", "%%dip\ndef f(x):\n    return 1 / x"):
            ed.ok(first)
        failed = ed.run("%%dip\n\nf(0)")
        assert failed.number == 4
        found = vscode.links(failed.coloured)
        assert (4, 3) in found and (3, 3) in found, found
        assert {place for place, _ in found} == {3, 4}, found
        found = vscode.links(ed.run("%%dip\nimport json\njson.loads('{')").coloured)
        files = [place for place, _ in found if place != 5]
        assert (5, 3) in found and any(str(f).endswith("json/decoder.py") for f in files), found
        assert (6, 2) in vscode.links(ed.run("%%dip\nx = = 1").coloured)
        ed.nb.submit("def g():\n    return 1 / 0\n")
        failed = ed.run("%%dip\ng()")
        assert {place for place, _ in vscode.links(failed.coloured)} == {7}, failed.coloured
        assert " of the group, line 2, in g()" in failed.error[2], failed.error[2]


CELL = """import torch
a = 41
net = torch.nn.Linear(2, 1)
def f(x):
    y = x * 2
    return y
print(f(a))
out = net(torch.ones(4, 2)).sum()
a + 1"""


def test_debug():
    """A cell is debugged: before there are ranks, and again."""
    with vscode.window() as ed:
        for _ in range(2):
            path, cell = ed.debug_cell(["x = 1", CELL], 3, 8)
            thread, frame = ed.stopped(cell)
            assert (frame["line"], frame["source"]["path"]) == (3, path), frame
            scopes = ed.debug("scopes", frameId=frame["id"])["scopes"]
            found = ed.debug("variables", variablesReference=scopes[0]["variablesReference"])
            found = {each["name"]: (each["type"], each["value"]) for each in found["variables"]}
            assert found["a"] == ("int", "41"), found
            how = {"frameId": frame["id"], "context": "repl", "format": {"rawString": True}}
            ed.debug("evaluate", expression=vscode.PROBE, **how)
            asked = '_VSCODE_getVariable("info", True, a)'
            answer = ed.debug("evaluate", expression=asked, **how)["result"]
            assert answer == '{"type": "int", "shape": "", "count": 0}', answer
            ed.debug("evaluate", expression=vscode.FORGET.format("_VSCODE_getVariable"), **how)
            ed.debug("next", threadId=thread)
            assert ed.stopped(cell)[1]["line"] == 4
            ed.debug("continue", threadId=thread)
            assert ed.stopped(cell)[1]["line"] == 8
            ed.debug("next", threadId=thread)
            assert ed.stopped(cell)[1]["line"] == 9
            ed.debug("continue", threadId=thread)
            shown = ed.finish(cell)
            assert shown.error is None and shown.data()[-1].endswith(": 42"), shown.outputs
            ed.end_debug(path)
        assert ed.types().keys() == {"a", "f", "net", "out"}, ed.types()


def test_run_by_line():
    """Each line of the cell is stopped at, and no other; ended before its end, the cell goes on."""
    with vscode.window() as ed:
        path, cell = ed.debug_cell([CELL], 1)
        lines = []
        while (at := ed.stopped(cell)) is not None:
            assert at[1]["source"]["path"] == path, at
            lines.append(at[1]["line"])
            ed.debug("stepIn", threadId=at[0])
        assert lines == [1, 2, 3, 4, 7, 5, 6, 7, 8, 9], lines
        ed.end_debug(path)
        path, cell = ed.debug_cell([CELL], 1)
        ed.stopped(cell)
        frees = ed.send("pass", hidden=True)
        ed.debug("disconnect", restart=False)
        assert ed.finish(cell).text().endswith("82\n")
        assert ed.finish(frees).error is None and ed.ok("print(a)").text() == "41\n"


def test_stop():
    """The stop button, which signals only the kernel's process, interrupts the ranks."""
    with vscode.window() as ed:
        cell = ed.send("import time\nkept = 1\nprint('begun', flush=True)\ntime.sleep(10_000)")
        ed.until(cell, "begun")
        ed.interrupt()
        assert ed.finish(cell).error[0] == "KeyboardInterrupt"
        assert ed.ok("print(kept)").text() == "1\n"


GONE = "print('kept' in globals())"


def test_restart():
    """A restart of the kernel restarts the ranks, also amid a cell, and of no other notebook's."""
    with vscode.window() as ed:
        ed.ok("kept = 1")
        cell = ed.send("import time\nprint('begun', flush=True)\ntime.sleep(10_000)")
        ed.until(cell, "begun")
        ed.restart()
        shown = ed.ok(GONE).text()
        assert "The ranks were restarted with the kernel" in shown, shown
        assert shown.endswith("False\n") and "keeps" not in shown, shown
        assert "restarted" not in ed.ok("kept = 1\nprint()").text()
        ed.end()
        with vscode.Window(ed.nb, name="b.ipynb") as other:
            assert other.ok(GONE).text().endswith("True\n")
        ed.start()
        assert ed.ok(GONE).text().endswith("False\n")
        ed.ok("kept = 1")
        with vscode.Window(ed.nb) as late:  # it has begun before the last one has ended
            ed.end()
            assert late.ok(GONE).text().endswith("False\n")
        ed.start()


def test_close():
    """A notebook that is closed, and opened again later, finds its ranks as they were."""
    with vscode.window(own=True) as ed:
        ed.ok("kept = 1")
        ed.end()
        (mark,) = [name for name in os.listdir(ed.nb.folder) if name.startswith("notebook-")]
        hour_ago = time.time() - 3600
        os.utime(os.path.join(ed.nb.folder, mark), (hour_ago, hour_ago))
        ed.start()
        assert ed.ok(GONE).text().endswith("True\n")
        assert mark not in os.listdir(ed.nb.folder)
        ed.ok("%makedip -k")


def test_magics():
    """In another kernel the editor's requests and its variables are the notebook's own."""
    with vscode.window("python3") as ed:
        for first in ("%load_ext ddip", "%makedip -n 2", "here = 1", "%autodip on", "there = rank"):
            ed.ok(first)
        own = {name: kind for name, kind in ed.types().items() if kind != "module"}
        assert own == {"here": "int"}, own
        assert ed.described()["here"] == "1" and ed.info("here")["type"] == "int"
        assert ed.ok("print(there)").number == 6
        assert ed.ok("%dip --replay").text() == "0\n"
        ed.restart()
        ed.ok("%load_ext ddip")
        assert "keeps 1 variable" in ed.ok("%makedip -n 2").text()


if __name__ == "__main__":
    notebook.run(globals())
