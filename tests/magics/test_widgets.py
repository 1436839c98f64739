#!/usr/bin/env python3
"""Widgets of ranks work in the notebook."""

import ast
import re

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
            "from ddip.cells import comms\nlen(comms._ends)",
        ).data()
        assert int(state[0]) > 6, "two bars of three widgets, each with its layout and style"


def test_a_label_goes_with_its_widget():
    """Nested bars of tqdm that close leave no labels of their ranks behind."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        bars = (
            "from tqdm.notebook import tqdm\nfor i in tqdm(range(2)):\n"
            "    for j in tqdm(range(3), leave=False): pass"
        )
        for options in ("-S all", "-S all -q"):
            shown = nb.ok(f"%%dip {options}\n{bars}")
            labels = sorted(text.strip() for text in shown.data() if text.strip() in ("0", "1"))
            assert labels == ["0", "1"], shown.outputs
            assert shown.text("stdout").strip() == "", shown.outputs


def send_state(client, name, state):
    """Changes the state of the widget with this comm id, as its front end does."""
    data = {"method": "update", "state": state, "buffer_paths": []}
    message = client.session.msg("comm_msg", {"comm_id": name, "data": data})
    client.shell_channel.send(message)


def send_at_once(nb, name, states):
    """Sends these states of a widget to rank 0, which takes none of them before all are sent.

    Returns the number of cells that carried them.
    """
    held = f"{nb.gate}.rank"  # rank 0 is busy until this file exists: the states must wait
    nb.ok(
        "%%dip --noblock --ranks 0\nimport os, time\n"
        f"while not os.path.exists({held!r}): time.sleep(0.01)"
    )
    before = int(nb.status()["cell"])
    begun = nb.begin(f"import os, time\nwhile not os.path.exists({nb.gate!r}): time.sleep(0.01)")
    for state in states:
        send_state(begun[0], name, state)
    nb.open_gate()
    release = f"open({held!r}, 'w').close()\n%dip mine = list(seen)\n%dipull mine\nmine"
    pulled = nb.finish((begun[0], begun[0].execute(release)))
    assert pulled.error is None, pulled.error
    return int(nb.status()["cell"]) - before - 1


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
        cells = send_at_once(nb, name, [{"value": value} for value in values])
        assert nb.ok(f"mine == {values}").data() == ["True"], "each came, before the next cell"
        assert cells < 5, f"{cells} cells for {len(values)} answers"


def begin_callback(nb, code):
    """Moves a slider of rank 0, whose callback runs this code; returns once it runs."""
    slider = (
        "%%dip\nimport ipywidgets, os, time\nslider = ipywidgets.IntSlider()\n"
        f"def changed(_):\n    {code}\n"
        "slider.observe(changed, 'value')\ndisplay(slider)\nslider.comm.comm_id"
    )
    name = nb.ok(slider).data()[-1].partition(": ")[2].strip("'")
    begun = nb.begin("1")
    send_state(begun[0], name, {"value": 3})
    notebook.until(lambda: nb.status()["state"] == "busy")
    nb.finish(begun)


def test_a_callback_that_waits():
    """A cell behind a callback of this notebook's own widget says so."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        begin_callback(nb, f"while not os.path.exists({nb.gate!r}): time.sleep(0.01)")
        begun = nb.begin("%%dip\n5")
        nb.until(begun, "queued behind cell 2, a callback of a widget here")
        nb.open_gate()
        assert nb.finish(begun).data()[-1] == "Out[0:3]: 5"


def test_stop_behind_a_callback():
    """The stop button ends the callback of an own widget, too, for which the cell waits."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        begin_callback(nb, "time.sleep(1000)")
        begun = nb.begin("%%dip\n5")
        nb.until(begun, "a callback of a widget here")
        nb.interrupt()
        assert nb.finish(begun).error[0] == "KeyboardInterrupt"
        assert nb.ok("%%dip\n6").data()[-1].endswith(": 6")


def test_linked():
    """One slider drives the callbacks of all ranks, which may hold a collective."""
    slider = (
        "%%dip --linked\nimport ipywidgets, torch, torch.distributed as dist\nseen = []\n"
        "slider = ipywidgets.IntSlider()\n"
        "def changed(change):\n    t = torch.tensor([change['new'] + rank])\n"
        "    dist.all_reduce(t)\n    seen.append((slider.value, int(t)))\n    print(int(t))\n"
        "slider.observe(changed, 'value')\ndisplay(slider)\nslider.comm.comm_id"
    )
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        name = nb.ok(slider).data()[-1].partition(": ")[2].strip("'")
        client, _ = nb.begin("pass")
        for value in (3, 5):
            send_state(client, name, {"value": value})
        # by the same client, whose messages are taken in their order
        seen = nb.finish((client, client.execute("r = %dip --ranks 0-1 seen\nr"))).data()[-1]
        assert seen == "[[(3, 7), (5, 11)], [(3, 7), (5, 11)]]", seen
        ran = nb.ok("%%dip --linked\nif rank: ipywidgets.Text()\nelse: ipywidgets.IntSlider()")
        assert "different widgets: they are not linked" in ran.text("stderr"), ran.outputs


def test_linked_are_shown():
    """The front end is told of what becomes of the widgets of all ranks, whichever was moved."""
    slider = (
        "%%dip -S all --linked\nimport ipywidgets\nslider = ipywidgets.IntSlider()\n"
        "text = ipywidgets.Text()\n"
        "def changed(change):\n    text.value = f'{rank}: {change.new}'\n"
        "slider.observe(changed, 'value')\ndisplay(slider, text)"
    )
    names = "%dip --ranks 0-1 [slider.comm.comm_id, text.comm.comm_id]"
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", slider) as nb:
        ids = ast.literal_eval(nb.ok(f"r = {names}\nr").data()[-1])
        client, _ = nb.begin("pass")
        send_state(client, ids[0][0], {"value": 5})
        wanted = {
            (ids[1][0], "value", 5),
            (ids[0][1], "value", "0: 5"),
            (ids[1][1], "value", "1: 5"),
        }
        while wanted:
            message = client.get_iopub_msg(timeout=notebook.HANG_LIMIT_S)
            if message["msg_type"] == "comm_msg":
                content = message["content"]
                state = content["data"].get("state", {})
                wanted -= {(content["comm_id"], *item) for item in state.items()}


def test_told_outputs():
    """Of the messages that wait and tell all outputs of a widget, only the last is sent."""
    texts = ["a" * count for count in range(1, 51)]
    widget = (
        "%%dip\nimport ipywidgets\nout, seen = ipywidgets.Output(), []\n"
        "def told(change):\n    seen.append(change['new'][0]['text'])\n"
        "out.observe(told, 'outputs')\nout.comm.comm_id"
    )
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        name = nb.ok(widget).data()[0].partition(": ")[2].strip("'")
        states = [
            {"outputs": [{"output_type": "stream", "name": "stdout", "text": text}]}
            for text in texts
        ]
        send_at_once(nb, name, states)
        # the first ones may be sent before the others come
        assert nb.ok(f"mine[-1] == {texts[-1]!r} and len(mine) < 5").data() == ["True"]


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
            send_state(client, name, {"value": value})
            while not any(f"<b>{value}</b>" in str(o.get("data")) for o in shown):
                shown.take(client.get_iopub_msg(timeout=notebook.HANG_LIMIT_S))
        assert [o.data["text/html"] for o in shown] == ["<b>2</b>"], shown
        client.stop_channels()


def test_output_widgets():
    """An Output widget of a rank gets what this rank shows while it captures, and nothing else."""
    shown = (
        "%%dip -S all\nimport ipywidgets\nfrom IPython.display import clear_output, display, HTML\n"
        "out = ipywidgets.Output()\nprint('before', rank)\nwith out:\n    print('lost')\n"
        "    clear_output()\n    print('inside', rank)\n    display(HTML(f'<b>{rank}</b>'))\n"
        "print('after', rank)\nout.comm.comm_id"
    )
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        outcome = nb.finish(nb.begin(shown))
        lines = sorted(outcome.text().splitlines())
        assert [line for line in lines if "] " in line] == [
            f"[{rank}] {word} {rank}" for rank in (0, 1) for word in ("after", "before")
        ], lines
        names = [text.partition(": ")[2].strip("'") for text in outcome.data()]
        for rank, name in enumerate(names):
            text, picture = outcome.captured.pop(name)
            assert text["text"] == f"inside {rank}\n", text
            assert picture["data"]["text/html"] == f"<b>{rank}</b>", picture
        assert not outcome.captured, outcome.captured
        again = nb.finish(nb.begin(f"%dip --replay {nb.status()['cell']}"))
        assert not again.captured, "a replay repeats nothing in a widget"
        more = nb.finish(nb.begin("%%dip\nwith out:\n    print('more')"))
        ((name, (text,)),) = more.captured.items()
        assert (name, text["text"]) == (names[0], "more\n"), more.captured


def test_interact():
    """interact() shows what its function prints, returns or raises, anew for each value.

    That is output of the cell that made the widget, which a front end still shows.
    """
    made = (
        "%%dip\nimport ipywidgets\ndef divide(x):\n    print('by', x)\n    return 12 // x\n"
        "shown = ipywidgets.interact(divide, x=(0, 10)).widget"
    )
    names = "%%dip\n[child.comm.comm_id for child in shown.children]"
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        client, cell = nb.begin(made)
        nb.finish((client, cell))
        slider, out = re.findall("[0-9a-f]{32}", nb.ok(names).data()[0])
        client = nb.begin("pass")[0]
        msg_id, captured, values = "", [], {"": 0, "ZeroDivisionError": 4}
        while "3" not in captured:
            if (value := values.pop(captured[-1] if captured else "", None)) is not None:
                send_state(client, slider, {"value": value})
            message = client.get_iopub_msg(timeout=notebook.HANG_LIMIT_S)
            kind, content = message["msg_type"], message["content"]
            if content.get("comm_id") == out:
                msg_id = content["data"]["state"]["msg_id"]
                assert msg_id in (cell, ""), msg_id
            elif kind in ("stream", "display_data", "clear_output", "error"):
                assert message["parent_header"]["msg_id"] == msg_id, message
                said = content.get("data", {}).get("text/plain") or content.get("text")
                captured.append(said or content.get("ename") or kind)
        client.stop_channels()
        first = ["clear_output", "by 0\n", "ZeroDivisionError"]
        assert captured == [*first, "clear_output", "by 4\n", "3"], captured


if __name__ == "__main__":
    notebook.run(globals())
