#!/usr/bin/env python3
"""`-S tabs`: a tab for each rank, in a notebook with widgets and in what is saved of it."""

import ast
import html
import os
import re
import uuid

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


def words_of(saved):
    """The text of HTML where its style is taken away."""
    return html.unescape(re.sub("<[^>]*>", "", re.sub("<style>.*?</style>", "", saved, flags=re.S)))


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
        assert tab(nb, TITLES) == (["0 ✓", "1 ✓"], 0)
        (shown,) = [each for each in ran.outputs if "data" in each]
        assert VIEW not in shown.data, "a widget is gone with its kernel"
        plain = shown.data["text/plain"]
        assert "[0] of 0\n" in plain and "[1] of 1\n" in plain and "[1] step 2" in plain, plain
        saved = shown.data["text/html"]
        assert saved.count(" checked>") == 1 and "<span>rank </span>1 ✓</label>" in saved, saved
        pieces = re.findall("<pre[^>]*>", saved)
        assert pieces and all("font-family:" in piece for piece in pieces), pieces
        assert nb.ok("import ddip\nddip.Out[1]").data() == ["{0: 10, 1: 11}"]


def test_bars():
    """Each rank's bar is drawn in its tab, and in what is saved; the text is what it is."""
    with notebook.notebook(*LOAD) as nb:
        ran = nb.ok("%%dip -S tabs\nfrom tqdm.auto import tqdm\nfor i in tqdm(range(30)): pass")
        for rank in (0, 1):
            found = tab(nb, f"[o for part in tab.children[{rank}].children for o in part.outputs]")
            (bar,) = [o["data"] for o in found if "data" in o]
            assert "30/30 [" in bar["text/plain"] and "progressbar" in bar["text/html"], found
        (shown,) = [each for each in ran.outputs if "data" in each]
        assert shown.data["text/html"].count('aria-valuenow="100"') == 2, shown


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


def test_a_failure_is_told_once():
    """A traceback is in its tab, and in what is saved of it; below it is what was raised."""
    with notebook.notebook(*LOAD) as nb:
        for see, ranks in (("tabs", "rank 1"), ("0", None)):
            ran = nb.run(f"%%dip -S {see}\nif rank == 1:\n    raise ValueError('boom\\nmore')")
            plain = "\n".join(ran.data())
            saved = "".join(ran.data("text/html"))
            _, value, below = ran.error
            assert value == "ValueError(boom\nmore)", ran.error
            if ranks is None:
                assert below.count("Traceback") == 1, below
                continue
            assert below == "rank 1: ValueError: boom", below
            red = r'-1" checked><label [^>]*style="[^"]*;color:var\(--jp-error-color1,#c62828\);'
            assert re.search(red, saved) and saved.count("</label>") == 2, saved
            assert re.search("<span style=.color:[^>]*>", saved), saved
            for text in (plain, words_of(saved)):
                assert text.count("Traceback") == 1 and "raise ValueError(" in text, text
            assert outputs(nb, 1)[-1] == ("error", "ValueError")
        ran = nb.run("%%dip -S tabs\nraise KeyError(rank)")
        assert ran.error[2] == "rank 0: KeyError: 0\nrank 1: KeyError: 1" or (
            ran.error[2] == "rank 1: KeyError: 1\nrank 0: KeyError: 0"
        ), ran.error
        ran = nb.run("%%dip -S tabs\n1 / 0")
        assert ran.error[2] == "ranks 0-1: ZeroDivisionError: division by zero", ran.error


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
        assert tab(nb, TITLES) == (["0 ✓", "1 ✓"], 0)
        nb.run("%%dip -S tabs\nif rank: raise ValueError")
        assert tab(nb, TITLES) == (["0 ✓", "1 ✗ ValueError"], 1)


def test_ended_ranks():
    """While other ranks run, the tab of one that has ended says so."""
    with notebook.notebook(*LOAD, "%%dip\nimport os, time") as nb:
        begun = nb.begin(
            f"%%dip -S tabs\nif rank:\n    while not os.path.exists({nb.gate!r}):\n"
            "        time.sleep(0.05)\nprint(rank)"
        )
        told = "Cell 2 of ranks 0-1 had not ended when this was saved: "
        nb.until(begun, f"{told}%dip --replay 2 -S tabs shows their output")
        nb.until(begun, "['0 ✓', '1 …']")
        nb.open_gate()
        nb.finish(begun)


def test_without_widgets():
    """Where there are no widgets, the same cell shows prefixes; so does -q."""
    with notebook.notebook(*LOAD) as nb:
        nb.ok("import ddip.shown.tabs\nddip.shown.tabs.available = lambda shell: False")
        for options in ("-S tabs", "-q -S tabs"):
            text = nb.ok(f"%%dip {options}\nprint('of', rank)").text()
            assert sorted(text.splitlines()) == ["[0] of 0", "[1] of 1"], text


def test_unfit_widgets():
    """The same with ipywidgets 7, whose tabs have no titles, with one that cannot be imported, and
    with a module that only has its name."""
    tabless = "made = types.ModuleType('ipywidgets')\nmade.Tab = type('Tab', (), {})"
    fails = (
        "class Fails:\n    def find_spec(name, *what):\n"
        "        assert name != 'ipywidgets'\nsys.meta_path[:0] = [Fails]"
    )
    with notebook.notebook(*LOAD, "import sys, types") as nb:
        for unfit in (
            f"{tabless}\nsys.modules['ipywidgets'] = made",
            "sys.modules['ipywidgets'] = types.ModuleType('ipywidgets')",
            "sys.modules['ipywidgets'] = None",
            f"del sys.modules['ipywidgets']\n{fails}",
        ):
            nb.ok(unfit)
            text = nb.ok("%%dip -S tabs\nprint('of', rank)").text()
            assert sorted(text.splitlines()) == ["[0] of 0", "[1] of 1"], text


def test_default():
    """A setting of IPython's, or a %dip without code, makes tabs the default; -S comes first."""
    with notebook.notebook() as nb:
        nb.ok("get_ipython().config.DdipMagics.see = 'tabs'")
        for source in LOAD:
            nb.ok(source)
        shows_tabs = "ddip-tabs"
        assert shows_tabs in nb.ok("%%dip\nprint('of', rank)").data("text/html")[-1]
        assert nb.ok("%dip -S 1 print('of', rank)").text() == "of 1\n"
        assert nb.ok("%dip -S 0").text() == "Shown is the output of rank 0\n"
        assert nb.ok("%dip print('of', rank)").text() == "of 0\n"
        assert nb.ok("%dip -S tabs").text() == "Shown is the output of all ranks, each in a tab\n"
        assert shows_tabs in nb.ok("%dip print('of', rank)").data("text/html")[-1]
        assert shows_tabs in nb.ok("%dip --replay 1 -S tabs").data("text/html")[-1]
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


def test_figures_with_widgets():
    """A figure of ipympl is a widget in the tab of its rank."""
    notebook.need_package("ipympl")
    with notebook.notebook(*LOAD, "%%dip\n%matplotlib widget") as nb:
        ran = nb.ok(
            "%%dip -S tabs\nimport matplotlib.pyplot as plt\nplt.plot([rank, 1])\nplt.show()"
        )
        assert ran.data(VIEW), "the tabs stay, as no HTML shows a widget"
        shows = "[VIEW in o.get('data', {}) for part in tab.children[RANK].children"
        shows = shows.replace("VIEW", repr(VIEW)) + " for o in part.outputs]"
        for rank in (0, 1):
            found = tab(nb, shows.replace("RANK", str(rank)))
            assert found.count(True) == 1, found


def test_figures():
    """A figure is in what is saved, in its size."""
    notebook.need_package("matplotlib")
    with notebook.notebook(*LOAD, "%%dip\n%config InlineBackend.figure_format = 'retina'") as nb:
        ran = nb.ok("%%dip -S tabs\nimport matplotlib.pyplot as plt\nplt.plot([rank, 1])")
        saved = ran.data("text/html")[-1]
        found = re.findall('<img src="data:image/png;base64,[^"]+" width="\\d+" height=', saved)
        assert len(found) == 2 and not ran.data(VIEW), saved[:500]


def test_plotly():
    """A figure of plotly is in the tab of its rank."""
    notebook.need_package("plotly")
    with notebook.notebook(*LOAD) as nb:
        nb.ok(
            "%%dip -S tabs\nimport plotly.graph_objects as go\n"
            "go.Figure(go.Scatter(y=[rank, 1])).show('plotly_mimetype')"
        )
        kind = "application/vnd.plotly.v1+json"
        for rank in (0, 1):
            each = f"[o['data'][{kind!r}]['data'][0]['y'] for part in tab.children[{rank}].children"
            found = tab(nb, f"{each} for o in part.outputs if {kind!r} in o.get('data', {{}})]")
            assert found == [[rank, 1]], found


def states(client, header=None):
    """comm id -> state of all widgets, as a page that is opened asks the kernel for them."""
    target, comm = "jupyter.widget.control", uuid.uuid4().hex
    data = {"comm_id": comm, "target_name": target, "data": {}}
    opened = client.session.msg("comm_open", data, metadata={"version": "1.0.0"})
    asked = client.session.msg("comm_msg", {"comm_id": comm, "data": {"method": "request_states"}})
    for message in (opened, asked):
        message["header"].update(header or {})
        client.shell_channel.send(message)
    while True:
        content = client.get_iopub_msg(timeout=notebook.HANG_LIMIT_S)["content"]
        if content.get("comm_id") == comm:
            found = content["data"]["states"]
            return {name: each["state"] for name, each in found.items()}


def subshell(client):
    """The header for requests that a busy kernel answers, as newer front ends make it."""
    client.control_channel.send(client.session.msg("create_subshell_request", {}))
    made = client.get_control_msg(timeout=notebook.HANG_LIMIT_S)["content"]
    return {"subshell_id": made["subshell_id"]}


def printed(found):
    """The text in the parts of tabs."""
    each = (state["outputs"] for state in found.values() if "outputs" in state)
    return "".join(o.get("text", "") for outputs in each for o in outputs)


def test_reopened():
    """A page that is closed while a cell runs, and opened again, finds in the tabs all that the
    ranks have printed meanwhile, while the cell runs and after it; without tabs a replay does."""
    with notebook.notebook(*LOAD) as nb:
        wait = "import os, time\nprint('one')\n"
        wait += f"while not os.path.exists({nb.gate!r}): time.sleep(0.01)\n"
        answers = "kernel subshells" in nb.kernel_info().get("supported_features", ())
        begun = nb.begin(f"%%dip -S tabs\n{wait}print('two', rank)")
        nb.until(begun, VIEW)
        begun[0].stop_channels()  # the page is closed
        notebook.until(lambda: nb.is_printed("one\n", 1))
        again = nb.open()
        if answers:
            header = subshell(again)
            notebook.until(lambda: printed(states(again, header)).count("one\n") == 2)
        nb.open_gate()
        notebook.until(lambda: nb.is_printed("two 1\n", 1))
        text = printed(states(again))
        assert text.count("one\n") == 2 and "two 0\n" in text and "two 1\n" in text, text
        again.stop_channels()
        os.unlink(nb.gate)

        begun = nb.begin(f"%%dip\n{wait}print('two')")
        nb.until(begun, "one")
        begun[0].stop_channels()
        nb.open_gate()
        assert nb.ok("%dip --replay").text() == "one\ntwo\n"


if __name__ == "__main__":
    notebook.run(globals())
