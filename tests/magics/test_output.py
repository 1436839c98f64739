#!/usr/bin/env python3
"""What a cell prints and shows on the ranks, in the notebook."""

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "tqdm", "matplotlib", "pandas")
notebook.need("rich", "fastprogress")


def test_streams():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        mixed = nb.ok(
            "%%dip\nimport sys\nfor i in range(3):\n    print('out', i)\n"
            "    print('err', i, file=sys.stderr)"
        )
        order = "".join(o.text for o in mixed.outputs).split("\n")
        assert order[:4] == ["out 0", "err 0", "out 1", "err 1"], order
        _it_streams(nb)
        both = nb.ok("%%dip --see all\nprint(f'a{rank}\\nb{rank}')\nprint('open', end='')")
        lines = sorted(both.text().splitlines())
        assert lines == ["[0] a0", "[0] b0", "[0] open", "[1] a1", "[1] b1", "[1] open"], lines
        assert nb.ok("%%dip\n!echo from a child").text() == "from a child\n"
        assert nb.ok("%%dip local\nprint('here')").text() == "here\n"
        assert nb.ok("%%dip\n5;").data() == []


def _it_streams(nb):
    """The first line is there while the cell runs."""
    code = (
        "%%dip\nimport os, time\nprint('begun')\nwhile not os.path.exists({0!r}):\n"
        "    time.sleep(0.01)\nprint('done')"
    )
    gate = nb.mount + ".gate"
    thread = nb.when(lambda: nb.is_shown("begun"), lambda: open(gate, "w").close())
    assert nb.ok(code.format(gate)).text() == "begun\ndone\n"
    thread.join()


def test_bars():
    bar = "from tqdm.auto import tqdm\nimport time\nfor i in tqdm(range(30)): time.sleep(0.02)\n"
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        live = nb.ok("%%dip\n" + bar).text("stderr")
        assert "\r" in live and "30/30" in live and live.count("\n") <= 1, live
        quiet = nb.ok("%%dip -q\n" + bar + "print('x')")
        assert quiet.text("stderr").count("it/s") == 1, quiet.text("stderr")
        assert "\r" not in quiet.text("stderr") and quiet.text() == "x\n"
        many = nb.ok("%%dip --see all\n" + bar).text("stderr").splitlines()
        assert len(many) == 2 and all("30/30" in line for line in many), many


def test_bars_of_displays():
    fast = "from fastprogress.fastprogress import progress_bar\n"
    fast += "for i in progress_bar(range(20)): time.sleep(0.01)"
    rich = "from rich.progress import track\nfor i in track(range(20), 'going'): time.sleep(0.01)"
    with notebook.notebook("%load_ext ddip", "%makedip", "%%dip\nimport time") as nb:
        for code, end in ((fast, "20/20"), (rich, "100%")):
            for options, times in (("", 1), ("-q", 1), ("--see all", 2)):
                shown = nb.ok(f"%%dip {options}\n{code}")
                bars = [html for html in shown.data("text/html") if end in html]
                assert len(bars) == times, (options, shown.outputs)
                assert len(shown.outputs) <= 2 * times + 1, shown.outputs


def test_rich():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        figure = nb.ok("%%dip\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
        assert len(figure.data("image/png")) == 1
        assert len(nb.ok("%%dip --see all\nplt.plot([1]); plt.show()").data("image/png")) == 2
        table = nb.ok("%%dip\nimport pandas as pd\npd.DataFrame({'a': [1, 2]})")
        assert "<table" in table.data("text/html")[0] and "Out[0:3]:" in table.data("text/html")[0]
        shown = nb.ok(
            "%%dip\nfrom IPython.display import HTML, clear_output, display\n"
            "h = display(HTML('<i>1</i>'), display_id=True)\n"
            "for i in range(5): h.update(HTML(f'<i>{i}</i>'))"
        )
        assert shown.data("text/html") == ["<i>4</i>"], shown.outputs
        cleared = nb.ok("%%dip\nprint('gone')\nclear_output()\nprint('stays')")
        assert cleared.text() == "stays\n", cleared.outputs
        many = nb.ok(
            "%%dip --see all\nfor i in range(3):\n    clear_output(wait=True)\n"
            "    display(f'{rank}{i}')"
        )
        assert sorted(many.data()) == ["'02'", "'12'"], many.outputs
        quiet = nb.ok("%%dip -q\nclear_output()\ndisplay(1)\nclear_output()\ndisplay(2)")
        assert quiet.data() == ["2"]


def test_flood():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        flood = nb.ok("%%dip\nfor i in range(1_000_000): print('line', i)")
        assert len(flood.text()) < 2 << 20, "the notebook is bounded"
        (rest,) = flood.data()
        assert rest.rstrip().endswith("line 999999") and "rank0/stdout" in rest, rest
        with open(f"{nb.group}/cells/last/rank0/stdout", "rb") as file:
            assert sum(1 for _ in file) == 1_000_000, "the file has all of it"


def test_long_silence():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        told = nb.ok("%%dip\nimport time\ntime.sleep(4)\n1").data(passing=True)
        assert told[0].startswith("ran for 4") and told[1].endswith("1"), told


def test_replay():
    with notebook.notebook("%load_ext ddip", "%makedip", "%%dip\nprint('first')\n3") as nb:
        again = nb.ok("%dip --replay")
        assert again.text() == "first\n" and again.data() == ["Out[0:1]: 3"]
        with notebook.Notebook(nb.mount) as other:
            other.ok("%load_ext ddip")
            assert "Attached" in other.ok("%makedip").text()
            assert other.ok("%dip --replay 1 --see all").text().count("first") == 2
            assert other.run("%dip --replay 99").error[0] == "DipError"


if __name__ == "__main__":
    notebook.run(globals())
