#!/usr/bin/env python3
"""%autodip takes the cells that a user submits, and no other code that IPython runs."""

import notebook
from test_editor import editor

notebook.need("torch", "IPython", "ipykernel", "nbclient", "jupyter_client", "nbformat")

IN_A_CELL = (
    "%%time\nhere.append(1)",
    "%time here.append(1)",
    "%timeit -n 1 -r 1 here.append(1)",
    "%%timeit -n 1 -r 1\nhere.append(1)",
    "%prun -q here.append(1)",
    "%%capture\nhere.append(1)",
    "%run other.ipynb",
    "%%dip local\n%time here.append(1)",
    "#dip_locally\nget_ipython().run_cell('here.append(1)')",
    "#dip_locally\nimport asyncio\nawait asyncio.sleep(0)\n%time here.append(1)",
)


def test_in_a_cell():
    """What a cell runs in the notebook stays there: the code of %time, %timeit, %%capture, %run."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", "%%dip\nhere = 'there'") as nb:
        nb.ok(
            "import nbformat.v4 as v4\nwith open('other.ipynb', 'w') as file:\n"
            "    file.write(v4.writes(v4.new_notebook(cells=[v4.new_code_cell('here.append(1)')])))"
        )
        nb.ok("%autodip on")
        for source in IN_A_CELL:
            nb.ok("%%dip local\nhere = []")
            cells = nb.status()["cell"]
            nb.ok(source)
            assert nb.ok("%%dip local\nhere").data() == ["[1]"], source
            assert nb.status()["cell"] == cells, source
        assert nb.ok("await __import__('asyncio').sleep(0)\nhere").data()[0].endswith("'there'")


def test_await():
    """A cell for the notebook may await; where that cannot be, it is told what can."""
    waits = "import asyncio\nawait asyncio.sleep(0)\n%time 1\n[rank async for rank in ranks()]"
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        nb.ok("async def ranks():\n    yield 'here'")
        for state in ("off", "on"):
            nb.ok(f"%autodip {state}")
            assert nb.ok(f"%%dip local\n{waits}").data() == ["['here']"], state
            for line in ("%%dip everywhere", "%%dip -q local"):
                error = nb.run(f"{line}\n{waits}").error
                assert error[0] == "DipError" and "begins with #dip_locally" in error[1], error
        text = nb.run("%%dip local\nawait asyncio.sleep(0)\n1 / 0").error[2]
        assert "----> 3 1 / 0" in text, "lines have the numbers that the user sees"
        assert nb.status()["cell"] == "0", "nothing ran on the ranks"


def test_terminal():
    """The same at a terminal, where there are no requests."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", "%%dip\nhere = 0") as nb:
        lines = (
            "%load_ext ddip",
            "%autodip on",
            "print('remote', here)",
            "%time here = 1",
            " ",
            "%time print('local', here)",
            "print('remote', here + rank)",
            "exit",
        )
        done = notebook.at_terminal(nb, lines)
        said = done.stdout
        assert said.count("remote 0\n") == 2 and "local 1\n" in said, (said, done.stderr)


def test_hidden_requests():
    """An editor's own requests run in the notebook, and their output is as printed there."""
    with editor() as ed:
        ed.ok('%autodip -a "-S all" on')
        hidden = ed.ok("import os, json\nprint(json.dumps(os.getpid()))", hidden=True).text()
        local = ed.ok("#dip_locally\nimport os\nprint(os.getpid())").text()
        assert hidden == local, (hidden, local)
        assert len(ed.ok("rank").data()) == 2, "the user's cells run on the ranks"
        ed.ok(
            "#dip_locally\ndef clicked(comm, message):\n    get_ipython().run_cell('seen = 1')\n"
            "get_ipython().kernel.comm_manager.register_target('button', clicked)"
        )
        ed.open_comm("button")
        assert ed.ok("#dip_locally\nseen").data() == ["1"], "a widget's code runs in the notebook"


def test_voila():
    """Voila submits a notebook's cells without history: in its kernels they run on the ranks."""
    with editor(VOILA_PREHEAT="False") as voila:
        voila.ok('%autodip -a "-S all" on', hidden=True)
        assert len(voila.ok("rank", hidden=True).data()) == 2


if __name__ == "__main__":
    notebook.run(globals())
