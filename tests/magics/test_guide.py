#!/usr/bin/env python3
"""The cells that the README and ddip-coming-from(7) show run as they are printed."""

import os
import re
import sys

import notebook

sys.path.insert(0, os.path.join(notebook.ROOT, "tests/tool"))
import documents

notebook.need("torch", "IPython", "ipykernel", "nbclient", "accelerate")


def _read(path):
    with open(os.path.join(notebook.ROOT, path), encoding="utf-8") as file:
        return file.read()


def _cells(lines):
    """Cells are separated by an empty line."""
    return "\n".join(lines).split("\n\n")


def _run(cells):
    """All that the cells show, in a notebook with a mount of its own."""
    with notebook.notebook(own=True) as nb:
        outcomes = [nb.ok(cell) for cell in cells]
    return "\n".join(o.text() + "\n".join(o.data()) for o in outcomes)


def test_coming_from():
    """The cells that are compared with other tools' notebooks work."""
    page = _read("scripts/ddip-coming-from.7")
    shown = [lines for _, lines in documents.displays(page) if lines[0].startswith("%")]
    assert len(shown) == 2, shown
    said = _run([cell for lines in shown for cell in _cells(lines)])
    for text in ("Out[0:1]: 0", "Out[1:1]: 10", "[0, 10]", "[1] only rank 1", "Out[1:4]: 1"):
        assert text in said, (text, said)


def test_readme():
    """The README's cells work, in their order."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", _read("README.md"), re.S | re.M)
    said = _run(_cells(block.splitlines()))
    for text in ("[1] hello from 1", "Out[1:2]: tensor([3., 3., 3.])", "Out[1:3]: [3, 4, 5]"):
        assert text in said, (text, said)


if __name__ == "__main__":
    notebook.run(globals())
