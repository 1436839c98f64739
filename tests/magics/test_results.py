#!/usr/bin/env python3
"""The values of cells in the notebook, and whose group a program in it gets."""

import os
import sys
import warnings

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient")


def test_own_outputs():
    """The notebook's own `Out` and `_` have its own numbers, whatever the group's are."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        for number in range(3, 7):
            nb.ok(f"{number} * 1000")  # execution counts 3 to 6
        for number in range(1, 8):
            nb.ok(f"%%dip\n'of cell {number}'")
        nb.ok("assert (Out[5], _5, Out[6]) == (5000, 5000, 6000), (Out, _5)")
        nb.ok("assert _ == 6000 and sorted(Out) == [3, 4, 5, 6], Out")
        nb.ok("import ddip\nassert ddip.Out[5] == 'of cell 5' and len(ddip.Out) == 7, ddip.Out")


def test_value():
    """A value that is used is that of rank 0, or a list; one that is not is shown only once."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 3") as nb:
        nb.ok("r = %dip [rank, 'text']\nassert r == [0, 'text'], r")
        nb.ok("r = %dip --ranks 1-2 rank\nassert r == [1, 2], r")
        nb.ok("r = %dip -S 2 rank\nassert r == 0, r")
        nb.ok("r = %dip rank if rank else None\nassert r is None, r")
        nb.ok("r = %dip x = 5\nassert r is None, r")
        nb.ok("r = %dip list(range(2000))\nassert repr(r).endswith('...]'), 'what was shown'")
        nb.ok("r = get_ipython().run_cell_magic('dip', '', 'y = 6\\ny + rank')\nassert r == 6, r")
        nb.ok("r = %dip __import__('torch').ones(2)\nassert repr(r) == 'tensor([1., 1.])', r")
        for use in ("r + 1", "2 * r", "r[0]", "r.sum()", "float(r)"):
            said = nb.run(use).error[1]
            assert "shown of its value" in said and "%dipull brings the object" in said, said
        nb.ok("assert r and r == r and not hasattr(r, '_repr_html_')")
        nb.ok(
            "def f():\n    return get_ipython().run_line_magic('dip', '40 + 2')\nassert f() == 42"
        )
        for source in (
            "%%dip\n5",
            "%dip 5",
            "%dip 5\nz = 1",
            "%time %dip 5",
            "if True:\n    %dip 5",
        ):
            shown = nb.ok(source)
            number = nb.status()["cell"]
            assert shown.data() == [f"Out[0:{number}]: 5"], (source, shown.outputs)


ASSIGNED = (
    ("r = %dip rank + 5", 5),
    ("r = %dip -S all rank + 5", 5),
    ("r = %dip --ranks 0,2 rank", [0, 2]),
    ("r = %dip -q rank", 0),
    ("d['r'] = %dip rank + 6\nr = d['r']", 6),
    ("z = 1\nr = %dip rank + 7", 7),
    ("if True:\n    r = %dip 8", 8),
    ("%time r = %dip 9", 9),
    ("a, r = %dip --ranks 0-1 rank", 1),
    ("r: int = %dip 4", 4),
)


def test_assigned():
    """A value that is assigned is displayed nowhere, as in Python; what is printed is shown."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 3", "import ddip\nd = {}") as nb:
        for source, value in ASSIGNED:
            shown = nb.ok(source)
            assert shown.data() == [], (source, shown.outputs)
            assert nb.ok("r").data() == [repr(value)], source
        shown = nb.ok("r = %dip print('said'), 3")
        assert shown.text() == "said\n" and shown.data() == [], shown.outputs
        assert nb.ok("r, ddip.Out[max(ddip.Out)]").data() == ["((None, 3), (None, 3))"]
        shown = nb.ok("r = %dip -S tabs rank + 4711")
        assert "471" not in str(shown.outputs), shown.outputs
        assert nb.ok("r").data() == ["4711"]
        assert nb.run("r = %dip 1 / 0").error[0] == "RemoteError"


def test_assigned_by_autodip():
    """%autodip leaves such a line to the notebook, where the name is set."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", "%autodip on", "d = {}") as nb:
        assert nb.ok("r = %dip rank + 5").data() == []
        assert nb.ok("%%dip local\nr").data() == ["5"]
        nb.ok("%%dip local\nd = {}")
        assert nb.ok("d['x'] = %dip --ranks 0-1 rank").data() == []
        assert nb.ok("#dip_locally\nd").data() == ["{'x': [0, 1]}"]
        nb.ok("y = 1; z = 'x=%dip'\nassert rank >= 0")
        nb.ok("#dip_locally\nfrom ddip.notebook import magics")
        for name in nb.ok("#dip_locally\nprint(*magics._NAMES)").text().split():
            told = nb.run(f"y = 2\nr = %{name} rank").error[1]
            assert "first line of a cell of its own" in told, (name, told)


def test_group_of_the_notebook():
    """ddip.group() is the group that the magics use, also where $DDIP_MOUNT names another."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 1", "import ddip") as nb:
        path = f"{nb.mount}/other"
        os.mkdir(path)
        with open(f"{path}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("size 1\nstart\n")
        assert nb.ok("ddip.group().path").data() == [repr(nb.group)]
        nb.ok("%dip -g other")
        assert nb.ok("ddip.group().path").data() == [repr(path)]
        assert nb.ok(f"ddip.group({os.path.basename(nb.group)!r}).path").data() == [repr(nb.group)]
        assert nb.ok(f"ddip.group(mount={nb.mount!r}).path").data() == [repr(nb.group)]
        assert nb.ok(f"ddip.group('other', {nb.mount!r}).path").data() == [repr(path)]
        with open(f"{path}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("stop\n")
        os.rmdir(path)
        assert "is gone" in nb.run("ddip.group()").error[1]


def test_quiet():
    """A text that Python would warn of, were it a source, is a value like others."""
    sys.path.insert(0, notebook.MAGICS)
    from ddip.shown import results

    text = r"'\d'"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert results.literal(text) == [r"\d"]
        warnings.simplefilter("error")
        assert results.literal(text) == [r"\d"]
    assert not warned, warned


if __name__ == "__main__":
    notebook.run(globals())
