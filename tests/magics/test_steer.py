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


if __name__ == "__main__":
    notebook.run(globals())
