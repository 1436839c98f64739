#!/usr/bin/env python3
"""`-S tabs`: a tab for each rank, in a notebook with widgets and in what is saved of it."""

import ast

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "ipywidgets")

LOAD = ("%load_ext ddip", "%makedip -n 2")
VIEW = "application/vnd.jupyter.widget-view+json"
TAB = (
    "from ipywidgets import HTML, Tab\nfrom ipywidgets.widgets import widget\n"
    "made = getattr(widget, '_instances', None) or widget.Widget.widgets\n"
    "tab, style = ([w for w in made.values() if isinstance(w, k)][-1] for k in (Tab, HTML))\n"
)
TITLES = "list(tab.titles), tab.selected_index"


def tab(nb, expression):
    """The value of an expression of the last `tab`, in the notebook's process, and its `style`."""
    return ast.literal_eval(nb.ok(TAB + expression).data()[-1])


def outputs(nb, rank):
    """The outputs in a rank's tab, as (type, text)."""
    found = tab(nb, f"[o for part in tab.children[{rank}].children for o in part.outputs]")
    return [
        (o["output_type"], o.get("text") or o.get("data", {}).get("text/plain") or o.get("ename"))
        for o in found
    ]


def test_outputs():
    """Printed text, progress bars, displays and results are in the tab of their rank."""
    with notebook.notebook(*LOAD) as nb:
        ran = nb.ok(
            "%%dip -S tabs\nimport sys\nprint('of', rank)\nfor i in range(3):\n"
            "    print(f'\\rstep {i}', end='', file=sys.stderr)\n"
            "print(file=sys.stderr)\ndisplay({'rank': rank})\nrank + 10"
        )
        for rank in (0, 1):
            text = "".join(text for _, text in outputs(nb, rank))
            assert f"of {rank}\n" in text and f"of {1 - rank}" not in text, text
            assert "step 2" in text and "step 1" not in text, text
            assert f"{{'rank': {rank}}}" in text and f"{10 + rank}" in text, text
        assert tab(nb, TITLES) == (["0", "1"], 0)
        (shown,) = [each for each in ran.outputs if "data" in each]
        assert VIEW in shown.data
        plain = shown.data["text/plain"]
        assert "[0] of 0\n" in plain and "[1] of 1\n" in plain and "[1] step 2" in plain, plain
        assert "<summary>rank 1</summary>" in shown.data["text/html"]
        assert nb.ok("import ddip\nddip.Out[1]").data() == ["{0: 10, 1: 11}"]


def test_failure():
    """The tab of a rank that fails says so and comes to the front; a freed one says so, too."""
    with notebook.notebook(*LOAD, "%%dip\nimport os, torch.distributed as dist") as nb:
        nb.run("%%dip -S tabs\nif rank == 1: raise ValueError('boom')\ndist.barrier()")
        assert tab(nb, TITLES) == (["0 freed", "1 ✗ ValueError"], 1), tab(nb, TITLES)
        assert outputs(nb, 1)[-1] == ("error", "ValueError")
        red = tab(nb, "style.value")
        assert "nth-child(2)" in red and "nth-child(1)" not in red, red
        nb.run("%%dip -S tabs\nif rank == 0: os._exit(3)\nimport time; time.sleep(60)")
        titles = tab(nb, "list(tab.titles)")
        assert titles[0] == "0 ✗ died", titles


def test_live():
    """While the cell runs, the tabs say what the ranks do."""
    with notebook.notebook(*LOAD, "%%dip\nimport os, time, torch.distributed as dist") as nb:
        begun = nb.begin(
            f"%%dip -S tabs\nif rank:\n    while not os.path.exists({nb.gate!r}):\n"
            "        time.sleep(0.05)\ndist.barrier()"
        )
        nb.until(begun, "0 in barrier")
        nb.open_gate()
        nb.finish(begun)
        assert tab(nb, TITLES) == (["0", "1"], 0)


def test_without_widgets():
    """Where there are no widgets, the same cell shows prefixes; so does -q."""
    with notebook.notebook(*LOAD) as nb:
        nb.ok("import ddip.tabs\nddip.tabs.available = lambda shell: False")
        for options in ("-S tabs", "-q -S tabs"):
            text = nb.ok(f"%%dip {options}\nprint('of', rank)").text()
            assert sorted(text.splitlines()) == ["[0] of 0", "[1] of 1"], text


def test_default():
    """A setting of IPython's, or a %dip without code, makes tabs the default; -S comes first."""
    with notebook.notebook() as nb:
        nb.ok("get_ipython().config.DdipMagics.see = 'tabs'")
        for source in LOAD:
            nb.ok(source)
        assert nb.ok("%%dip\nprint('of', rank)").data(VIEW)
        assert nb.ok("%dip -S 1 print('of', rank)").text() == "of 1\n"
        assert nb.ok("%dip -S 0").text() == "Shown is the output of rank 0\n"
        assert nb.ok("%dip print('of', rank)").text() == "of 0\n"
        assert nb.ok("%dip -S tabs").text() == "Shown is the output of all ranks, each in a tab\n"
        assert nb.ok("%dip print('of', rank)").data(VIEW)
        assert nb.ok("%dip --replay 1 -S tabs").data(VIEW)
        nb.ok("%dip tabs = 4")
        shown = nb.ok("%dip -S 0 tabs").data()
        assert shown[-1].endswith("]: 4"), f"behind a rank it is code: {shown}"


def test_input():
    """A rank that asks for input brings its tab to the front."""
    with notebook.notebook(*LOAD) as nb:
        _, prompts = nb.talk("%%dip -S tabs\nif rank: print('hi', input('name? '))", "Ada")
        assert prompts == ["[rank 1] name? "], prompts
        assert tab(nb, TITLES)[1] == 1
        assert ("stream", "hi Ada\n") in outputs(nb, 1), outputs(nb, 1)


if __name__ == "__main__":
    notebook.run(globals())
