#!/usr/bin/env python3
"""%steer runs code within a running cell, and shows what it prints, its value and its failure."""

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient")

LOOP = """%%dip
import torch, torch.distributed as dist
def main():
    lr, step, last = 1.0, 0, None
    while step != last:
        dist.all_reduce(torch.ones(1))
        step += 1
    return lr
"""


def test_steer():
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        nb.ok(LOOP)
        nb.ok("run = get_ipython().run_cell_magic('dip', '--noblock', 'main()')")
        notebook.until(lambda: nb.status().get("step", "0").split()[0] != "0")
        assert nb.ok("%steer lr = 0.5").outputs == []
        assert nb.ok("%steer -S all lr").text() == "0: 0.5\n1: 0.5\n"
        assert nb.ok("%%steer\nprint('seen', rank)\nlr * 2").text() == "seen 0\n1.0\n"
        assert nb.ok("%steer local = 3; local").text() == "3\n"
        name, value, text = nb.run("%steer 1 / rank").error
        assert (name, value) == ("RemoteError", "ZeroDivisionError(division by zero)"), text
        assert "%steer has no option --foo" in nb.run("%steer --foo").error[1]
        assert nb.status()["state"] == "busy"  # the cell goes on
        text = nb.ok("%watch step % 5 == 2 and rank").text()
        assert text.startswith("rank 1 step ") and text.endswith("; all ranks wait\n"), text
        assert nb.ok("%steer -S all step % 5").text() == "0: 2\n1: 2\n"
        nb.ok("%watch --off")
        assert "nothing is watched" in nb.run("%watch --off").error[1]
        assert "SyntaxError" in nb.run("%watch step =").error[1]
        nb.ok("%steer last = step + 1")
        assert nb.ok("run.wait()\nrun.result()").data() == ["0.5"]
        assert nb.ok("%steer 6 * 7").text() == "42\n"  # nothing runs: it is a cell


def test_ranks_of_the_cell():
    """Of a cell on some ranks, the first is shown; one that does not run it has no value."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", "%%dip\nimport os, time") as nb:
        nb.ok("%%dip\nimport torch\nx = torch.ones(1, requires_grad=True)")
        nb.ok("%%dip\nopt = torch.optim.SGD([x], 0.1)")
        loop = f"while not os.path.exists({nb.gate!r}):\n    time.sleep(0.01)\n    opt.step()"
        nb.ok(f"run = get_ipython().run_cell_magic('dip', '--noblock --ranks 1', {loop!r})")
        notebook.until(lambda: nb.status().get("step", "0").split()[0] != "0")
        assert nb.ok("%steer print('on', rank); rank + 5").text() == "on 1\n6\n"
        assert nb.ok("%steer -S all rank + 5").text() == "1: 6\n"
        ran = nb.ok("%steer -S 0 rank")
        assert ran.text("stderr") == "This runs on rank 1, and -S shows rank 0\n", ran.outputs
        assert ran.text() == "", ran.outputs
        nb.open_gate()
        assert nb.ok("run.wait()").data() == ["True"]


if __name__ == "__main__":
    notebook.run(globals())
