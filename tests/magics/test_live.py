#!/usr/bin/env python3
"""Displays that are kept up to date: `%dip --top`, and the curves of `%%dip --plot`."""

import re
import sys
import time
import warnings

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "matplotlib")
sys.path.insert(0, notebook.MAGICS)

LOAD = ("%load_ext ddip", "%makedip -n 2", "%%dip\nimport os, time")
TRAINS = (
    "def main():\n    loss, losses = 8.0 + rank, []\n"
    "    while not os.path.exists({gate!r}):\n        time.sleep(0.01)\n"
    "        loss = loss * 0.99\n        losses.append(loss)\n"
)


def test_plot():
    """Numbers, and lists of numbers, in the locals of what runs and in globals; of all ranks."""
    with notebook.notebook(*LOAD) as nb:
        nb.when(lambda: nb.is_shown("losses of rank 1: "), nb.open_gate)
        ran = nb.ok("%%dip --plot loss losses\n" + TRAINS.format(gate=nb.gate) + "main()")
        assert len(ran.data("image/png")) == 1, "one figure, drawn again and again"
        assert "loss of rank 0: " in ran.data()[0], ran.data()
        last = nb.ok("%%dip --plot x\nx = [1, 2, 3 + rank]").data()[0]
        assert last == "x of rank 0: 3\nx of rank 1: 4", last
        for code in "print(1)", "for _ in [1]: print(1)", "x = print(1)":
            assert nb.ok(f"%dip --plot x {code}").text() == "1\n", code
        assert "its code goes below" in nb.run("%dip --plot x").error[1]
        ran = nb.run("%%dip --plot nothing\n1 / 0")
        assert ran.error[1] == "ZeroDivisionError(division by zero)", ran.error


def test_samples():
    """A number is asked for in at most 2 % of the time, but as often as that allows; no warning of
    a figure comes, however many ranks there are, and its axis says what it is."""
    from ddip.shown import live
    from matplotlib.figure import Figure

    axes = []

    def figure(**how):
        made = Figure(**how)
        plain = made.add_subplot
        made.add_subplot = lambda *words: axes.append(plain(*words)) or axes[-1]
        return made

    def gathered(group, name):
        return "locals", [1.0] * 64 if name == "loss" else [[1, 2]] * 64

    before, live._gathered = live._gathered, gathered
    try:
        plot = live.Plot(None, ["loss"], figure)
        waits = [plot.frame()[1] for _ in range(6)]
        assert all(wait <= 0.5 for wait in waits) and len(axes) == 1, (waits, axes)
        plot.ends = True
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert plot.frame()[0]["image/png"]
        assert axes[-1].get_xlabel() == "seconds since the cell was submitted"
        assert len(axes[-1].lines[0].get_xdata()) == 6, "it is drawn less often than it is asked"
        plot = live.Plot(None, ["losses"], figure)
        plot.frame()
        assert plot.frame()[0]
        assert axes[-1].get_xlabel() == "index in the list"
        texts = axes[-1].get_legend().get_texts()
        assert {text.get_fontsize() for text in texts} == {axes[-1].xaxis.label.get_fontsize()}
        live._gathered = lambda *_: time.sleep(0.02) or ("", [])
        plot = live.Plot(None, ["loss"], figure)
        assert [plot.frame()[1] >= 1.0 for _ in range(2)] == [False, True]
    finally:
        live._gathered = before


def test_what_was_there_before():
    """What a name was before the cell is not drawn. A name that becomes a list begins anew, and
    numbers and lists have an axis each."""
    from ddip.shown import live
    from matplotlib.figure import Figure

    drawn, now = [], {"loss": ("vars", [5.0, float("nan")]), "x": ("vars", [[1, 2], [1, 2]])}

    def figure(**how):
        drawn.append(Figure(**how))
        return drawn[-1]

    def curves():
        plot.ends = True
        text = plot.frame()[0]["text/plain"]
        return text, [(each.get_xlabel(), len(each.lines)) for each in drawn[-1].axes]

    seconds, index = "seconds since the cell was submitted", "index in the list"
    before, live._gathered = live._gathered, lambda group, name: now[name]
    try:
        plot = live.Plot(None, ["loss", "x"], figure)
        plot.frame()
        assert curves() == ("loss, x: no number has changed yet", []), curves()
        now["loss"] = "vars", [1.0, float("nan")]
        assert curves() == ("loss of rank 0: 1", [(seconds, 1)]), curves()
        now["loss"], now["x"] = ("vars", [5.0, 2.0]), ("vars", [[1, 2], [3]])
        text = "loss of rank 0: 5\nloss of rank 1: 2\nx of rank 1: 3"
        assert curves() == (text, [(index, 1), (seconds, 2)]), curves()
        now["x"] = "locals", [7, 8]
        text = text.replace("x of rank 1: 3", "x of rank 0: 7\nx of rank 1: 8")
        assert curves() == (text, [(seconds, 4)]), curves()
    finally:
        live._gathered = before


def test_plot_without_matplotlib():
    """It is said what to install, and the cell does not run."""
    with notebook.notebook(*LOAD) as nb:
        nb.ok("import sys\nsys.modules['matplotlib.figure'] = None")
        name, value, _ = nb.run("%%dip --plot x\ny = 1").error
        assert (name, value) == ("DipError", "--plot needs matplotlib: pip install matplotlib")
        assert nb.run("%%dip\ny").error, "it did not run"


def test_top():
    """It follows what the ranks do while the notebook does other things, in the place of the last
    call, and ends with the group. It says when it has looked last."""
    with notebook.notebook(*LOAD, own=True) as nb:
        ran = nb.ok("%dip --top")
        (shown,) = ran.data()
        assert re.search(r": idle, cell 1, .*, as of \d\d:\d\d:\d\d\n", shown), shown
        heads = "RANK STATE        CELL     PID HOST            MEMORY\n"
        assert heads in shown and "NVML" not in shown, f"without what is empty:\n{shown}"
        assert ran.data("text/html")[0].count("font-family:") == 2
        begun = nb.begin(f"%%dip\nwhile not os.path.exists({nb.gate!r}): time.sleep(0.01)")
        nb.until(begun, ": busy, cell 2, ")
        nb.open_gate()
        nb.finish(begun)
        begun = nb.begin("%dip --top")
        nb.until(begun, ": no more looks, as there is a newer %dip --top")
        nb.finish(begun)
        begun = nb.begin("%makedip -k")
        nb.until(begun, ": no more looks, as the group is gone")
        alive = "import threading\n[t for t in threading.enumerate() if t.name.endswith('(_run)')]"
        notebook.until(lambda: nb.ok(alive).data() == ["[]"])


def test_top_at_exit():
    """The last thing that a kernel says of the ranks is that it looks no more."""
    with notebook.notebook(*LOAD) as nb:
        nb.ok("%dip --top")
        begun = nb.begin("pass")
        nb.manage("shutdown_kernel")
        nb.until(begun, ": no more looks, as the kernel has ended")


def test_terminal():
    """In a terminal each is printed once: a table of the ranks, and the last values of a plot."""
    with notebook.notebook(*LOAD) as nb:
        lines = (
            "%load_ext ddip",
            "%dip --top",
            "import threading",
            "print([t for t in threading.enumerate() if t.name.endswith('(_run)')])",
            "%dip --plot x for x in range(25): time.sleep(0.1)",
            "exit",
        )
        done = notebook.at_terminal(nb, lines)
        said = done.stdout
        assert said.count(", as of ") == 1 and "`ddip top`" in said and "[]\n" in said, said
        assert said.count("x of rank 0: ") == 1 and "x of rank 0: 24\n" in said, said
        assert not done.stderr, done.stderr


if __name__ == "__main__":
    notebook.run(globals())
