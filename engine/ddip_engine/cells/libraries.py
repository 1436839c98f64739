"""Makes libraries that would reach a notebook through a Jupyter kernel's channels use displays.

rich draws animated output (progress bars, `Live`) into a widget; here it becomes a display with
updates. Functions that start processes are in launchers.py, widget communication is in comms.py.
"""

from __future__ import annotations

import sys

from ddip_engine import patches
from ddip_engine.cells import comms, debuggers, launchers, prompts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from ddip_engine.patches import Row

    Execute = Callable[[ModuleType], None]

_MOVED_ON = {"text/plain": ""}  # what is left of a transient display


def install() -> None:
    """Patches the modules of the table as soon as they are imported, or now if they already are."""
    sys.meta_path.insert(0, _Finder())
    for name in _MODULES & sys.modules.keys():
        _change(name)


class _Finder:
    """Finds modules through the other finders, and applies the table's changes after execution."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As importlib asks a finder; None: not a module of the table, or there is none."""
        if name not in _MODULES:
            return None
        finders = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in finders)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            followed = _followed(spec.loader.exec_module, name)
            spec.loader.exec_module = followed  # type: ignore[method-assign, assignment]
        return spec


def _followed(execute: Execute, name: str) -> Execute:
    def exec_module(module: ModuleType) -> None:
        execute(module)
        _change(name)

    return exec_module


def _change(module: str) -> None:
    for row, make in _CHANGES.items():
        if row.module == module:
            row.replace(make)


class _Place:
    """Where a rich.live.Live is drawn; takes the place of its widget."""

    def __init__(self) -> None:
        self._handle: Any = None  # IPython's, of the display

    def draw(self, data: Mapping[str, str]) -> None:
        """data: MIME type -> text."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def close(self) -> None:
        """Called by rich at the end of a transient display."""
        self.draw(_MOVED_ON)


def _refreshed(plain: Callable[[Any], None]) -> Callable[[Any], None]:
    """Live.refresh() that draws into a display of the cell."""

    def refresh(self: Any) -> None:
        """Update the display of the Live Render."""
        with patches.RICH_REFRESH:
            if self.console.is_jupyter and _draw(self):
                return
        plain(self)

    return refresh


def _draw(live: Any) -> bool:
    """Returns False if it is part of another one, or cannot be drawn in this version of rich."""
    lock, render = patches.RICH_LOCK.of(live), patches.RICH_RENDER.of(live)
    text_of, html_of = patches.RICH_BUFFER.of(live.console), patches.RICH_SEGMENTS.get()
    if patches.RICH_NESTED.of(live, False) or None in (lock, render, text_of, html_of):
        return False
    with lock:
        render.set_renderable(live.renderable)
        segments = list(live.console.render(render.renderable))
        if live.ipy_widget is None:
            live.ipy_widget = _Place()
        live.ipy_widget.draw({"text/plain": text_of(segments), "text/html": html_of(segments)})
    return True


_CHANGES: dict[Row, Callable[[Any], Any]] = {
    patches.RICH_REFRESH: _refreshed,
    patches.SET_TRACE: debuggers.change,
    patches.COMM: comms.change,
    patches.TRACE_DISPATCH: prompts.traced,
    patches.POST_MORTEM: prompts.prompting,
    patches.INTERACT: prompts.prompting,
    patches.PDB_INIT: prompts.without_sigint,
    **launchers.CHANGES,
}
_MODULES = {row.module for row in _CHANGES}
