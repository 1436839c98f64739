#!/usr/bin/env python3
"""Widgets of ranks work in the notebook."""

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "comm", "ipywidgets", "tqdm")


def test_widgets():
    """Bars of tqdm.notebook move, those of the ranks that are shown."""
    bars = "from tqdm.notebook import tqdm\nfor i in tqdm(range(3)): pass"
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        client, cell = nb.begin(f"%%dip -S all\n{bars}")
        view = "application/vnd.jupyter.widget-view+json"
        shown = nb.finish((client, cell))
        assert len(shown.data(view)) == 2, shown.outputs
        state = nb.ok(
            "from ddip import comms\nlen(comms._ends)",
        ).data()
        assert int(state[0]) > 6, "two bars of three widgets, each with its layout and style"


def test_answers():
    """The front end's replies arrive in order, before the next cell, in few cells."""
    values = list(range(1, 51))
    slider = (
        "%%dip\nimport ipywidgets\nslider, seen = ipywidgets.IntSlider(), []\n"
        "def changed(change):\n    seen.append(change['new'])\n"
        "    if change['new'] == 20:\n        print('at twenty')\n        1 / 0\n"
        "slider.observe(changed, 'value')\nslider"
    )
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", slider) as nb:
        name = nb.ok("%%dip\nslider.comm.comm_id").data()[0].partition(": ")[2].strip("'")
        held = f"{nb.gate}.rank"  # rank 0 is busy until this file exists: the answers must wait
        nb.ok(
            "%%dip --noblock --ranks 0\nimport os, time\n"
            f"while not os.path.exists({held!r}): time.sleep(0.01)"
        )
        begun = nb.begin(
            f"import os, time\nwhile not os.path.exists({nb.gate!r}): time.sleep(0.01)"
        )
        for value in values:
            data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
            message = begun[0].session.msg("comm_msg", {"comm_id": name, "data": data})
            begun[0].shell_channel.send(message)
        nb.open_gate()
        pulled = nb.finish(
            (
                begun[0],
                begun[0].execute(
                    f"open({held!r}, 'w').close()\n%dip mine = list(seen)\n%dipull mine\nmine"
                ),
            )
        )
        assert pulled.error is None, pulled.error
        assert nb.ok(f"mine == {values}").data() == ["True"], "each came, before the next cell"
        cells = int(nb.status()["cell"])
        assert cells < 10, f"{cells} cells for {len(values)} answers"


def test_displays():
    """What a widget's function displays is shown; after clear_output() in the same place."""
    slider = (
        "%%dip\nimport ipywidgets\nfrom IPython.display import clear_output, display, HTML\n"
        "slider = ipywidgets.IntSlider()\ndef changed(change):\n    clear_output(wait=True)\n"
        "    display(HTML(f'<b>{change[\"new\"]}</b>'))\nslider.observe(changed, 'value')\nslider"
    )
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", slider) as nb:
        name = nb.ok("%%dip\nslider.comm.comm_id").data()[0].partition(": ")[2].strip("'")
        client, shown = nb.begin("pass")[0], notebook.Outputs()
        for value in (1, 2):
            data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
            message = client.session.msg("comm_msg", {"comm_id": name, "data": data})
            client.shell_channel.send(message)
            while not any(f"<b>{value}</b>" in str(o.get("data")) for o in shown):
                shown.take(client.get_iopub_msg(timeout=notebook.HANG_LIMIT_S))
        assert [o.data["text/html"] for o in shown] == ["<b>2</b>"], shown
        client.stop_channels()


if __name__ == "__main__":
    notebook.run(globals())
