#!/usr/bin/env python3
"""The notebook shows what a cell prints and displays on the ranks."""

import re
import sys
import time

import notebook

sys.path.insert(0, notebook.MAGICS)
from ddip.shown.elapsed import Elapsed
from ddip.shown.show import View

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
    """The first line is shown while the cell runs."""
    code = (
        "%%dip\nimport os, time\nprint('begun')\nwhile not os.path.exists({0!r}):\n"
        "    time.sleep(0.01)\nprint('done')"
    )
    gate = nb.gate
    thread = nb.when(lambda: nb.is_shown("begun"), nb.open_gate)
    assert nb.ok(code.format(gate)).text() == "begun\ndone\n"
    thread.join()


def test_who_waits():
    """A cell without output says which rank waits for which."""
    code = (
        "%%dip\nimport os, time, torch, torch.distributed as dist\n"
        "while rank == 1 and not os.path.exists({0!r}): time.sleep(0.01)\n"
        "dist.all_reduce(torch.ones(4))\nprint('done')"
    )
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        said = "rank 1 is in no collective (line 3); rank 0 waits for it in all_reduce"
        thread = nb.when(lambda: nb.is_shown(said), nb.open_gate)
        assert "done\n" in nb.ok(code.format(nb.gate)).text()
        thread.join()


NESTED = """
import time
from tqdm.auto import tqdm
for epoch in tqdm(range(2), desc="epochs"):
    for step in tqdm(range(20), desc="steps", leave=False):
        time.sleep(0.01)
    print("end of", epoch)
"""


def test_bars():
    """Bars are in one display that is always last, below what was printed, and never in red."""
    bar = "from tqdm.auto import tqdm\nimport time\nfor i in tqdm(range(30)): time.sleep(0.02)\n"
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        for options, marks in (("", [""]), ("-q", [""]), ("-S all", [" 0  ", " 1  "])):
            shown = nb.ok(f"%%dip {options}\n{bar}")
            (bars,) = shown.data()
            lines = bars.splitlines()
            assert [line[: len(mark)] for line, mark in zip(lines, marks, strict=True)] == marks
            assert all("30/30" in line for line in lines), bars
            assert shown.text("stderr") == shown.text() == "", shown.outputs
            (page,) = shown.data("text/html")
            assert page.count('aria-valuenow="100"') == len(marks), page
        shown = nb.ok(f"%%dip\n{bar}print('x')\n{bar}")
        above, x, below = shown.outputs
        assert "30/30" in above.data["text/html"] and x.text == "x\n", shown.outputs
        assert "30/30" in below.data["text/html"], shown.outputs
        for options, prints in (("", ["end of 0\n", "end of 1\n"]), ("-q -S all", None)):
            shown = nb.ok(f"%%dip {options}\n{NESTED}")
            (bars,) = shown.data()
            assert bars.count("epochs: 100%") == (1 if prints else 2) and "steps" not in bars, bars
            assert shown.text() == "".join(prints) if prints else shown.text().count("end of") == 4
            assert shown.text("stderr") == "", shown.outputs
        shown = nb.ok(f"%%dip\n{NESTED.replace(', leave=False', '')}")
        lines = "".join(o.get("text") or o.data["text/plain"] + "\n" for o in shown.outputs)
        words = [line.split(":")[0] for line in lines.splitlines() if line]
        assert words == ["steps", "end of 0", "steps", "end of 1", "epochs"], shown.outputs
        stuck = bar.replace("time.sleep(0.02)", "i < 15 or 1 / 0")
        (page,) = nb.run(f"%%dip -S all\n{stuck}").data("text/html")
        assert page.count("--jp-error-color1") == page.count('aria-valuenow="50"') == 2, page


def test_many_drawings():
    """A megabyte of carriage returns is drawn a few times; each rank's bar is drawn to its end."""
    flood = "import sys\nfor i in range(20_000): sys.stdout.write(f'\\r{i} ' + 'x' * 50)"
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        nb.ok(
            "import time\nfrom ddip.shown import sink\nplain, calls = sink.Sink.display, []\n"
            "def display(*args, **kwargs):\n    calls.append(args)\n    plain(*args, **kwargs)\n"
            "sink.Sink.display, begun = display, time.monotonic()"
        )
        for options, ranks in (("", 1), ("-S all", 2)):
            (bars,) = nb.ok(f"%%dip {options}\n{flood}").data()
            assert bars.count("19999 xxx") == ranks == len(bars.splitlines()), bars
        updates = "h = display('0', display_id=True)\nfor i in range(2000): h.update(str(i))"
        shown = nb.ok(f"%%dip\n{updates}")
        assert shown.data() == ["'1999'"], shown.outputs
        # ten per second, and for each of the three cells the first and the last ones
        nb.ok("assert len(calls) <= 10 * (time.monotonic() - begun) + 12, len(calls)")


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


def lines_of(outcome, rank):
    """The lines of one of several ranks, printed or displayed, from above to below."""
    shown = "".join(o.get("text") or o.data["text/plain"] + "\n" for o in outcome.outputs)
    return [line[4:] for line in shown.splitlines() if line.startswith(f"[{rank}] ")]


def test_figures_in_the_order_of_ranks():
    """What several ranks display at about the same time is in the order of the ranks."""
    code = (
        "%%dip -S all\nimport time\nfrom IPython.display import HTML\n"
        "for k in range(2):\n    time.sleep(3 * k)\n    torch.distributed.barrier()\n"
        "    time.sleep(0.03 * (3 - rank))\n"
        "    display(HTML(f'{rank}.{k}a'))\n    display(HTML(f'{rank}.{k}b'))"
    )
    with notebook.notebook("%load_ext ddip", "%makedip -n 3", "%%dip\nimport torch") as nb:
        nb.ok("from ddip.shown import show\nshow._TURN_S = 2")  # a busy machine is later
        shown = nb.ok(code)
        want = [f"{rank}.{k}{part}" for k in range(2) for rank in range(3) for part in "ab"]
        assert shown.data("text/html") == want, shown.outputs
        assert shown.text().split() == [str(rank) for _ in want[::6] for rank in (0, 0, 1, 1, 2, 2)]


def test_cleared():
    """After clear_output() only what follows is shown, of one rank or of several."""
    loop = "    clear_output(wait=True)\n    print('step', i)\n"
    first = "%%dip\nfrom IPython.display import clear_output\nimport time"
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", first) as nb:
        mixed = nb.ok(f"%%dip -S all\nfor i in range(3):\n{loop}    display(i)")
        printed = sorted(line.strip() for line in mixed.text().splitlines())
        assert printed == ["0", "1"], printed
        assert sorted(mixed.data()) == ["2", "2", "[0] step 2\n", "[1] step 2\n"], mixed.outputs
        less = nb.ok(
            "%%dip -S all\nfor i in range(5, 0, -1):\n    clear_output(wait=True)\n"
            "    for j in range(i): display(f'{i}{j}')"
        )
        assert less.data() == ["'10'", "'10'"], less.outputs
        many = nb.ok(f"%%dip\nfor i in range(6000):\n{loop}")
        assert many.text() == "step 5999\n"
        much = "    clear_output(wait=True)\n    print('x\\n' * 3000)\n    time.sleep(0.3)"
        counted = nb.ok(f"%%dip\nfor i in range(3):\n{much}")
        assert counted.text() == "x\n" * 3000 + "\n", "what was cleared does not count"
        last = "print('step', rank, end=''); clear_output(wait=True)"
        for options, ranks in (("", [0]), ("-q", [0]), ("-S all", [0, 1])):
            kept = nb.ok(f"%%dip {options}\nfor i in range(3): {last}")
            shown = "".join([kept.text(), *kept.data()])
            assert all(f"step {rank}" in shown for rank in ranks), (options, kept.outputs)
        named = nb.ok(
            "%%dip -S all\nfor i in range(3):\n    clear_output(); print('a')\n"
            "    display(f'{rank}{i}', display_id=f'{rank}{i}'); print('b'); time.sleep(0.3)"
        )
        for rank in (0, 1):
            own = [text.strip() for text in named.data() if str(rank) in text]
            assert own == [f"[{rank}] a", f"{rank}", f"'{rank}2'", f"[{rank}] b"], named.outputs
        assert not named.text(), "no labels are left"
        again = nb.ok(
            "%%dip -S all\nfor i in range(3):\n    clear_output(wait=True)\n"
            "    shown = display(f'{rank}{i}', display_id=f'again{rank}'); time.sleep(0.2)\n"
            "    shown.update(f'{rank}new')\nclear_output(); print('end')"
        )
        assert sorted(again.data()) == ["[0] end\n", "[1] end\n"], again.outputs
        stays = nb.ok("%%dip\nprint('stays'); clear_output(wait=True); time.sleep(3.5)")
        assert stays.text() == "stays\n", stays.outputs
        long = nb.ok(
            "%%dip -S all\nclear_output()\nfor i in range(450):\n    print(i)\n"
            "    if i % 100 == 0: time.sleep(0.3)"
        )
        for rank in (0, 1):
            assert lines_of(long, rank) == [str(i) for i in range(450)], long.outputs


def test_results():
    """Each result names its rank; the results that were shown are in Out."""
    code = {
        "Markdown('**bold**')": ("text/markdown", "**bold**"),
        "Math('x')": ("text/latex", "$\\displaystyle x$"),
        "SVG('<svg/>')": ("image/svg+xml", "<svg/>"),
        "fig": ("image/png", "iVBOR"),
    }
    first = (
        "%%dip\nfrom IPython.display import SVG, Markdown, Math\nimport matplotlib.pyplot as plt\n"
    )
    first += "fig = plt.figure()\nfig.add_subplot()\nplt.close()"
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", first) as nb:
        for cell, (source, (mime, begin)) in enumerate(code.items(), 2):
            shown = nb.ok(f"%%dip -S all\n{source}")
            assert shown.text().splitlines() == [f"Out[{k}:{cell}]:" for k in (0, 1)], shown.text()
            assert [data[: len(begin)] for data in shown.data(mime)] == [begin] * 2, source
            kinds = [output.output_type for output in shown.outputs]
            assert kinds == ["stream", "display_data"] * 2, kinds
        assert nb.ok("import ddip\nddip.Out[2][1]").data("text/markdown") == ["**bold**"]
        cell = int(nb.status()["cell"]) + 1
        assert nb.ok("%%dip -S all\n[rank, 'text']").data()[1] == f"Out[1:{cell}]: [1, 'text']"
        assert nb.ok(f"assert ddip.Out[{cell}] == {{0: [0, 'text'], 1: [1, 'text']}}").error is None
        nb.ok("%%dip -S 1\n{'a': rank}")
        assert nb.ok(f"assert ddip.Out[{cell + 1}] == {{'a': 1}}").error is None
        nb.ok("%%dip\nimport torch\ntorch.ones(2)")
        assert nb.ok(f"ddip.Out[{cell + 2}]").data() == ["tensor([1., 1.])"]
        nb.ok("%%dip\nlist(range(2000))")
        assert nb.ok(f"isinstance(ddip.Out[{cell + 3}], list)").data() == ["False"], "it was elided"
        nb.ok("%dip x = rank + 1\nx, shown = 500, 1")
        text = nb.ok('%dip -S all print(f"{x} $x")').text()
        assert sorted(text.splitlines()) == ["[0] 1 $x", "[1] 2 $x"], text
        assert nb.ok("%%dip -S $shown\nprint(f'{x} $x')").text() == "2 $x\n"


def test_flood():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        flood = nb.ok("%%dip\nfor i in range(1_000_000): print('line', i)")
        assert len(flood.text()) < 2 << 20, "the notebook is bounded"
        (rest,) = flood.data()
        assert rest.rstrip().endswith("line 999999") and "rank0/stdout" in rest, rest
        with open(f"{nb.group}/cells/last/rank0/stdout", "rb") as file:
            assert sum(1 for _ in file) == 1_000_000, "the file has all of it"


class Recorded:
    """A sink that notes what it is given."""

    redraws = coloured = True

    def __init__(self):
        self.given = []

    def write(self, name, text):
        self.given.append(text)

    def display(self, data, metadata=None, transient=None, update=False):
        self.given.append(data["text/plain"])

    def flush(self):
        pass

    def clear(self, wait):
        pass


def test_before_an_input_field():
    """What was printed before a rank asks stands above the input field."""
    sink, elapsed = Recorded(), Elapsed(lambda: "", lambda: "")
    elapsed._started = elapsed._moved = time.monotonic() - 60
    view = View(sink, [0], lambda rank, name: "", elapsed)
    view.asks(0, "")
    assert "running for 60 s" in sink.given[-1], sink.given
    elapsed.moved = lambda: None  # the line stays
    view.take([{"type": "stream", "rank": 0, "name": "stdout", "text": "answer\n"}])
    view.asks(0, "(Pdb) ")
    before, held = sink.given.index(""), sink.given.index("answer\n")
    assert before < held, sink.given


def test_verdict_at_the_end():
    """What a hang was is not hidden by its end; one that lasts says how to end it."""
    for seconds, hint in ((5, False), (60, True)):
        elapsed = Elapsed(lambda: "", lambda: "rank 1 has ended its part")
        elapsed._started = elapsed._moved = time.monotonic() - seconds
        line = elapsed.line()
        assert line.startswith(f"rank 1 has ended its part (running for {seconds} s"), line
        assert ("an interrupt ends it" in line) == hint, line
        assert "rank 1" not in elapsed.last_line()
        end = f"; seen after {seconds} s: rank 1 has ended its part\n"
        assert elapsed.last_line(failed=True).endswith(end), elapsed.last_line(failed=True)
        elapsed.moved()
        assert "rank 1" not in elapsed.last_line(failed=True)


def test_interrupted_before_the_end():
    """While a cell that was stopped has not ended, nobody is said to have failed."""
    elapsed = Elapsed(lambda: "", lambda: "", lambda: ([1], None))
    elapsed.failed({"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["T"], "rank": 0})
    elapsed._failed -= 1
    assert elapsed.line() == "T\nrank 0 was interrupted; rank 1 goes on\n", elapsed.line()
    elapsed.failed({"ename": "ValueError", "evalue": "x", "traceback": ["V"], "rank": 2})
    assert elapsed.line() == "V\nrank 2 failed: ValueError: x; rank 1 goes on\n", elapsed.line()


def test_long_silence():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        told = nb.ok("%%dip\nimport time\ntime.sleep(4)\n1").data(passing=True)
        seconds = re.fullmatch(r"ran for ([0-9.]+) s\n?", told[0])
        assert float(seconds[1]) >= 4 and told[1].endswith("1"), told


def test_replay():
    with notebook.notebook("%load_ext ddip", "%makedip", "%%dip\nprint('first')\n3") as nb:
        again = nb.ok("%dip --replay")
        assert again.text() == "first\n" and again.data() == ["Out[0:1]: 3"]
        nb.ok("%%dip -S all\nprint('all')")
        assert nb.ok("%dip --replay").text().count("all") == 2, "as it was shown"
        assert nb.ok("%dip --replay -S 0").text().count("all") == 1
        with nb.other() as other:
            other.ok("%load_ext ddip")
            assert "Attached" in other.ok("%makedip").text()
            assert other.ok("%dip --replay 1 --see all").text().count("first") == 2
            assert other.run("%dip --replay 99").error[0] == "DipError"
        with open(f"{nb.group}/ctl", "w") as ctl:
            ctl.write("spool 4096\n")
        nb.ok("%%dip\nfor i in range(100_000): print('line', i)")
        short = nb.ok("%dip --replay")
        assert "bytes of output are not kept any more" in short.data()[-1], short.data()
        assert short.text().endswith("line 99999\n"), short.text()[-100:]


if __name__ == "__main__":
    notebook.run(globals())
