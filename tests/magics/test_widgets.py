#!/usr/bin/env python3
"""Widgets of ranks in the notebook."""

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


if __name__ == "__main__":
    notebook.run(globals())
