#!/usr/bin/env python3
"""A notebook that nbconvert runs and turns into a page shows what JupyterLab shows."""

import html
import os
import re
import subprocess
import sys
import tempfile

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbconvert", "tqdm")

CELLS = (
    "%load_ext ddip\n%makedip -n 2",
    "%%dip -S all\nimport torch, torch.distributed as dist\n"
    "t = torch.ones(3) * (rank + 1)\ndist.all_reduce(t)\nt",
    "%%dip\nfrom tqdm.auto import tqdm\nfor i in tqdm(range(30)): pass\nprint('done')",
    "%%dip\n1 / 0",
    "%dip -S all 'still ' + 'there'",
)

# nbconvert's time limits: for the start of a kernel, and for the last output.
_LIMITS = ("startup_timeout", "iopub_timeout")


def test_html():
    """Results, a bar at its end, a traceback, and the cells after it."""
    import nbformat

    with tempfile.TemporaryDirectory() as folder, notebook.place(folder) as mount:
        node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
        nbformat.write(node, f"{folder}/cells.ipynb")
        words = ["nbconvert", "--to", "html", "--execute", "--allow-errors", "cells.ipynb"]
        # chosen ports may be taken by others before the kernel has started
        words += ["--KernelManager.transport=ipc", f"--KernelManager.ip={folder}/ipc"]
        words += [f"--NotebookClient.{what}={notebook.HANG_LIMIT_S}" for what in _LIMITS]
        subprocess.run(
            [sys.executable, "-m", *words],
            cwd=folder,
            env={**os.environ, **notebook.environment_of(mount)},
            timeout=notebook.HANG_LIMIT_S,
            check=True,
        )
        with open(f"{folder}/cells.html", encoding="utf-8") as file:
            page = file.read()
    text = html.unescape(re.sub(r"<[^>]*>", "", page[page.index("<main") :]))
    for said in (
        "Out[0:1]: tensor([3., 3., 3.])",
        "Out[1:1]: tensor([3., 3., 3.])",
        " 30/30 [",
        "ZeroDivisionError: division by zero",
        "Out[1:4]: 'still there'",
    ):
        assert said in text, (said, text)
    assert 'role="progressbar"' in page, "the bar is drawn"
    assert text.count("ZeroDivisionError: ") == 1, "equal tracebacks of the ranks are shown once"


if __name__ == "__main__":
    notebook.run(globals())
