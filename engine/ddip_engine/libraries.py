"""Makes libraries that would reach a notebook through a Jupyter kernel's channels use displays.

rich draws animated output (progress bars, `Live`) into a widget; here it becomes a display with
updates. Functions that start processes are in launchers.py, widget communication is in comms.py.
"""

import sys

from ddip_engine import comms, debuggers, launchers

_MOVED_ON = {"text/plain": ""}  # what is left of a transient display


def install():
    """Patches the modules of the table as soon as they are imported, or now if they already are."""
    sys.meta_path.insert(0, _Finder())
    for name, change in _CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])


class _Finder:
    """Finds modules through the other finders, and applies the table's changes after execution."""

    def find_spec(self, name, path=None, target=None):
        change = _CHANGES.get(name)
        if change is None:
            return None
        finders = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in finders)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _followed(spec.loader.exec_module, change)
        return spec


def _followed(execute, change):
    def exec_module(module):
        execute(module)
        change(module)

    return exec_module


class _Place:
    """Where a rich.live.Live is drawn; takes the place of its widget."""

    def __init__(self):
        self._handle = None

    def draw(self, data):
        from IPython.display import display

        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def close(self):
        """Called by rich at the end of a transient display."""
        self.draw(_MOVED_ON)


def _change_rich_live(module):
    plain = module.Live.refresh

    def refresh(self):
        """Update the display of the Live Render."""
        if self._nested or not self.console.is_jupyter:
            plain(self)
            return
        from rich.jupyter import _render_segments

        with self._lock:
            self._live_render.set_renderable(self.renderable)
            segments = list(self.console.render(self._live_render.renderable))
            text = self.console._render_buffer(segments)
            if self.ipy_widget is None:
                self.ipy_widget = _Place()
            self.ipy_widget.draw({"text/plain": text, "text/html": _render_segments(segments)})

    module.Live.refresh = refresh


_CHANGES = {
    "rich.live": _change_rich_live,
    "bdb": debuggers.change,
    "comm": comms.change,
    **launchers.CHANGES,
}
