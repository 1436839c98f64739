#!/usr/bin/env python3
"""What a cell's `!command` writes to a group and fails is said in its output: one line, once."""

import re

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient")

WHO = r"ddipfs: (?:test[0-9]+: )?"  # of one group, or of several
FAILED = re.compile(WHO + r"cell [0-9]+ failed on rank [01]: ZeroDivisionError: division by zero "
                    r"\(cells/[0-9]+/traceback\)\r?\n")  # fmt: skip
NOT_JSON = re.compile(WHO + r"w\.json: not JSON: .*\r?\n")


def _shows(nb, source, pattern=FAILED):
    """The cell shows one line of ours, which is like that, and none of ours elsewhere."""
    cell = nb.run(source)
    shown = cell.text() + cell.text("stderr") + "\n".join(cell.data(passing=True))
    assert len(pattern.findall(shown)) == shown.count("ddipfs:") == 1, (source, cell.outputs)
    assert "division by zero" not in pattern.sub("", shown), (source, cell.outputs)


def _commands(nb):
    write = f"echo '1 / 0' > {nb.group}/cell"
    _shows(nb, f"!{write}")
    _shows(nb, f"!{write}; true")
    _shows(nb, f"!for i in 1; do {write}; done | cat")
    _shows(nb, f"said = !{write}\nprint(said.n)")
    _shows(nb, f"%%bash\n{write}")
    _shows(nb, f"!echo '{{' > {nb.group}/vars/w.json", NOT_JSON)
    seen = nb.run(f"!echo '1 / 0' | cp /dev/stdin {nb.group}/cell").text()
    assert "Remote I/O error" in seen and "ddipfs:" not in seen, seen
    good = nb.ok(f"!echo '1 + 1' > {nb.group}/cell")
    assert good.outputs == [], good.outputs


def test_with_the_magics():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        _commands(nb)


def test_without_the_magics():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb, nb.other() as plain:
        _commands(plain)


if __name__ == "__main__":
    notebook.run(globals())
