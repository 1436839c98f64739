"""`-S tabs`: a tab for each rank, with its state, output, displays and results, in one widget.

Each rank has a View of its own, which shows it as if it were the only one, in the widget instead of
the output area. A widget lives as long as its kernel, so at the end HTML takes its place, and text
with prefixes where no HTML is shown.
"""

from __future__ import annotations

import html
import importlib
import math
import re
import time
from uuid import uuid4

from ddip import patches
from ddip import ranks as rank_lists
from ddip.shown import bars
from ddip.shown.region import FRAME_S, Region
from ddip.shown.show import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.shown.elapsed import Elapsed
    from ddip.shown.sink import Output


_PART_CHARS = 32 << 10  # printed text in one part of a tab; each line that is added sends all of it
_LOOK_S = 1.0  # between looks at the states of the ranks
_SILENCE_S = 3.0  # after this long without output, all ranks are asked in which collective they are
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_VIEW = "application/vnd.jupyter.widget-view+json"
_IMAGES = ("image/png", "image/jpeg")
_MARKUP = ("text/html", "image/svg+xml")
RUNS, FAILED, DONE = "…", "✗", "✓"
# Many tabs take several rows, and are as wide as their text, but no less than with a mark: they do
# not move when a rank has ended.
_STYLE = """<style>.{name} > .widget-tab > .lm-TabBar .lm-TabBar-content,
.{name} > .widget-tab > .p-TabBar .p-TabBar-content {{ flex-wrap: wrap; }}
.{name} > .widget-tab > .lm-TabBar .lm-TabBar-tab,
.{name} > .widget-tab > .p-TabBar .p-TabBar-tab {{
    flex: 0 0 auto; min-width: {width}ch; justify-content: center; }}
{failed}</style>"""
_MARK_CH = 5.5  # the width of a mark, and of what is around the text of a tab
_RED = ".{name} > .widget-tab > .{kind}-TabBar .{kind}-TabBar-tab:nth-child({number}) {{ {red} }}\n"
_RED_TEXT = "color:#c62828;font-weight:bold"
# What is saved: where this style is taken away, ranks are below each other.
_SAVED = """<style>.ddip-tabs {{ display: flex; flex-wrap: wrap; gap: 2px; }}
.ddip-tabs > details[open] {{ flex: 1 0 100%; min-width: 0; }}
.ddip-tabs > details > summary {{ border: 1px solid rgba(128,128,128,.4); padding: 0 .5em; }}
</style><div class="ddip-tabs">{}</div>"""
_RANK = """<details{is_open}><summary style="{style}">rank {title}</summary>{body}</details>"""


def available(shell: InteractiveShell | None) -> bool:
    """True if the notebook can show widgets, with tabs that have titles: ipywidgets 8."""
    if getattr(shell, "kernel", None) is None:
        return False
    try:
        widgets = patches.quietly(importlib.import_module, "ipywidgets")
    except Exception:  # whatever it raises: the cell is shown without
        return False
    return hasattr(getattr(widgets, "Tab", None), "titles")


class _Part:
    """A part of a tab: printed text, or one display that may be replaced."""

    def __init__(self, layout):
        from ipywidgets import Output

        self.widget = Output(layout=layout)
        self.outputs = []
        self.is_drawn = True
        self._chars = 0

    def print(self, name, text):
        """Adds printed text."""
        if self.outputs and self.outputs[-1].get("name") == name:
            self.outputs[-1]["text"] += text
        else:
            self.outputs.append({"output_type": "stream", "name": name, "text": text})
        self._chars += len(text)
        self.is_drawn = False

    @property
    def is_full(self):
        """True if what is printed next goes to another part."""
        return self._chars > _PART_CHARS

    def set(self, outputs):
        """Replaces all that it shows."""
        self.outputs, self.is_drawn = outputs, False

    def draw(self):
        """Sends what has changed."""
        if not self.is_drawn:
            self.is_drawn = True
            self.widget.outputs = tuple(dict(output) for output in self.outputs)


class _Pane:
    """The inside of a tab; a Sink for the View of its rank. outside: the notebook's own Sink."""

    redraws = coloured = True

    def __init__(self, outside, layout):
        from ipywidgets import VBox

        self.box = VBox(layout=layout)
        self._outside = outside
        self._layout = layout
        self._parts = []
        self._places = {}  # display id -> its part
        self._printed = None  # the part that printed text is added to
        self._clears = False  # what comes next replaces all

    def write(self, name, text):
        """See Sink."""
        self._begin()
        if self._printed is None or self._printed.is_full:
            self._printed = self._add()
        self._printed.print(name, text)

    def flush(self):
        """See Sink: draw() does it."""

    def display(self, data, metadata=None, transient=None, update=False):
        """See Sink."""
        place = (transient or {}).get("display_id")
        shown = {"output_type": "display_data", "data": data, "metadata": metadata or {}}
        outputs = [] if data.get("text/plain") == "" and len(data) == 1 else [shown]
        if update and place not in self._places:  # of another cell, or another rank
            self._outside.display(data, metadata, transient, update=True)
            return
        if not update:
            self._begin()
            self._places[place] = self._add()
            self._printed = None
        self._places[place].set(outputs)

    def error(self, message):
        """Shows an exception as the notebook would."""
        self._printed = None
        keys = ("ename", "evalue", "traceback")
        self._add().set([{"output_type": "error", **{key: message[key] for key in keys}}])

    def clear(self, wait):
        """See Sink."""
        self._clears = True
        if not wait:
            self._begin()

    def draw(self):
        """Sends what has changed to the front end."""
        for part in self._parts:
            part.draw()
        widgets = tuple(part.widget for part in self._parts)
        if widgets != self.box.children:
            self.box.children = widgets

    def outputs(self):
        """All that it shows, as outputs of a notebook."""
        return [output for part in self._parts for output in part.outputs]

    def _add(self):
        self._parts.append(_Part(self._layout))
        return self._parts[-1]

    def _begin(self):
        if self._clears:
            self._clears, self._parts, self._places, self._printed = False, [], {}, None


class Tabs:
    """A View of several ranks as tabs, in the cell of this number.

    states(asks): rank -> what it does in this cell, in a word or two, for those that run it; None:
    nobody knows; asks: all ranks in which collective they are. failures(): rank -> what is known of
    a failure that it could not report, as after its death. state(): that of the cell, "" if nobody
    knows. The rest is as in View.
    """

    def __init__(
        self,
        sink: Output,
        number: int,
        seen: Iterable[int],
        files: Callable[[int, str], str],
        progress: Elapsed,
        states: Callable[[bool], Mapping[int, str] | None],
        failures: Callable[[], Mapping[int, str]],
        state: Callable[[], str],
    ) -> None:
        from ipywidgets import HTML, Layout, Tab, VBox

        self.sink = sink
        self._number = number
        self.seen = set(seen)
        self._order = sorted(seen)
        self._states, self._failures, self._state = states, failures, state
        self._progress = progress
        self._region = Region(sink)
        layout = Layout()
        self._panes = {rank: _Pane(sink, layout) for rank in self._order}
        self._views = {rank: View(pane, {rank}, files) for rank, pane in self._panes.items()}
        self._name = f"ddip-{uuid4().hex}"
        self._tab = Tab([pane.box for pane in self._panes.values()])
        self._style = HTML()
        self._box = VBox([self._style, self._tab])
        self._box.add_class(self._name)
        self._running = set(self._order)
        self._begun: set[int] = set()  # ranks that are known to have begun
        self._does = dict.fromkeys(self._order, RUNS)  # rank -> what its tab says
        self._failed: dict[int, dict[str, Any]] = {}  # rank -> its `error` message
        self._drawn = self._looked = 0.0
        self._moved = time.monotonic()
        self._changed = False
        self._title()
        self._show(ended=False)

    @property
    def errors(self) -> dict[int, dict[str, Any]]:
        """The exceptions: rank -> message."""
        return {k: m for view in self._views.values() for k, m in view.errors.items()}

    @property
    def told(self) -> Collection[int]:
        """See View."""
        return self._failed.keys()

    @property
    def results(self) -> list[tuple[int, dict[str, Any]]]:
        """See View."""
        return [result for view in self._views.values() for result in view.results]

    def take(self, messages: list[dict[str, Any]]) -> None:
        """See View."""
        own: dict[int, list[dict[str, Any]]] = {}
        for message in messages:
            rank: Any = message.get("rank")
            if message["type"] == "notice":
                self._region.add("stderr", f"ddip: {message['text']}\n")
            elif rank in self._views:
                own.setdefault(rank, []).append(message)
                self._begun.add(rank)
                if message["type"] == "error":
                    self._fail(rank, message)
            elif message["type"] == "error":
                next(iter(self._views.values())).errors[rank] = message
            if message["type"] == "dropped" and rank is None:
                for view in self._views.values():
                    view.take([message])
        for rank, some in own.items():
            self._views[rank].take(some)
        if own:
            self._changed, self._moved = True, time.monotonic()
            self._progress.moved()
        if time.monotonic() - self._drawn >= FRAME_S:
            self._draw()

    def closed(self, rank: int, widget: str) -> None:
        """See View."""
        if rank in self._views:
            self._views[rank].closed(rank, widget)

    def patience(self) -> int:
        """See View."""
        frame = self._drawn + FRAME_S - time.monotonic()
        waits = [view.patience() for view in self._views.values()]
        live = min((wait for wait in waits if wait is not None), default=None)
        wait = self._progress.patience() * 1000
        if self._running:
            wait = min(wait, (self._looked + _LOOK_S - time.monotonic()) * 1000)
        if self._changed or live is not None:
            wait = min(wait, max(frame * 1000, live or 0))
        return max(0, math.ceil(wait))

    def reveal(self, rank: int, text: str) -> None:
        """See View."""

    def asks(self, rank: int, prompt: str) -> bool:
        """See View. The tab of the rank that asks comes to the front."""
        shown = self._views[rank].asks(rank, prompt)
        self._tab.selected_index = self._order.index(rank)
        self._draw()
        return shown

    def end(self) -> None:
        """See View."""
        for rank, text in self._failures().items():
            if rank in self._running:
                self._fail(rank, {"ename": "died", "evalue": text, "traceback": [text]})
        for rank, view in self._views.items():
            view.end()
            if rank in self._failed:
                self._panes[rank].error(self._failed[rank])
        state = self._state()
        for rank in self._running if state not in ("queued", "running") else ():
            if self._does[rank] != DONE:
                self._does[rank] = DONE if state in ("ok", "error") else ""
        self._running.clear()
        self._title()
        if self._failed:
            first = next((k for k, m in self._failed.items() if "freed" not in m), None)
            if first is not None:
                self._tab.selected_index = self._order.index(first)
        self._draw()
        self._region.draw(self._progress.last_line(bool(self._failed)), last=True)
        self._show(ended=True)
        self.sink.flush()

    # ---- drawing

    def _draw(self):
        self._drawn = time.monotonic()
        for view in self._views.values():
            view.take([])
        for pane in self._panes.values():
            pane.draw()
        if self._running and self._drawn - self._looked >= _LOOK_S:
            self._look()
        self._region.draw(self._progress.line() if self._running else "")
        self._changed = False

    def _fail(self, rank, message):
        if "freed" in message:
            text = rank_lists.freed([rank], message["freed"])
            message = {**message, "traceback": [text], "ename": "", "evalue": ""}
        self._failed[rank] = message
        self._does[rank] = f"{FAILED} {message['ename']}" if message["ename"] else "freed"
        self._running.discard(rank)
        self._title()

    def _look(self):
        """Has the tabs say what each rank does."""
        self._looked = self._drawn
        states = self._states(self._drawn - self._moved >= _SILENCE_S)
        if states is not None:
            self._begun |= states.keys()
            for rank in self._running & self._begun:
                self._does[rank] = states.get(rank, DONE)
        self._title()

    def _title(self):
        titles = [f"{rank} {self._does[rank]}".rstrip() for rank in self._order]
        if list(self._tab.titles) != titles:
            self._tab.titles = titles
        failed = "".join(
            _RED.format(name=self._name, kind=kind, number=number, red=_RED_TEXT)
            for number, rank in enumerate(self._order, 1)
            if self._is_red(rank)
            for kind in ("lm", "p")
        )
        width = len(str(self._order[-1])) + _MARK_CH
        style = _STYLE.format(name=self._name, failed=failed, width=width)
        if self._style.value != style:
            self._style.value = style

    def _is_red(self, rank):
        return rank in self._failed and "freed" not in self._failed[rank]

    # ---- what is saved

    def _show(self, ended):
        """Displays the widget; when the cell has ended, what takes its place. It stays if there is
        output that HTML does not show, such as another widget."""
        outputs = [output for pane in self._panes.values() for output in pane.outputs()]
        again = f"%dip --replay {self._number} -S tabs shows their output again"
        data = {"text/plain": f"{rank_lists.name(self._order)}: {again}"}
        if ended:
            data = {"text/plain": self._text(), "text/html": self._html()}
        if not (ended and all(map(_is_shown_by_html, outputs))):
            data[_VIEW] = {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self._box.model_id,
            }
        self.sink.display(data, None, {"display_id": self._name}, update=ended)

    def _text(self):
        lines = []
        for rank, pane in self._panes.items():
            for output in pane.outputs():
                text = _ANSI.sub("", _plain(output)).removesuffix("\n")
                lines += [f"[{rank}] {line}" for line in text.split("\n")] if text else []
        return "\n".join(lines)

    def _html(self):
        chosen = self._order[self._tab.selected_index or 0]
        return _SAVED.format(
            "".join(
                _RANK.format(
                    is_open=" open" if rank == chosen else "",
                    style=_RED_TEXT if self._is_red(rank) else "",
                    title=html.escape(title),
                    body="".join(map(_as_html, self._panes[rank].outputs())),
                )
                for rank, title in zip(self._order, self._tab.titles, strict=True)
            )
        )


def _plain(output):
    """An output as text with colours."""
    if output["output_type"] == "stream":
        return output["text"]
    if output["output_type"] == "error":
        return "\n".join(output["traceback"])
    return output["data"].get("text/plain", "")


def _is_shown_by_html(output):
    kinds = output.get("data", {}).keys()
    return _VIEW not in kinds and (kinds <= {"text/plain"} or kinds & {*_IMAGES, *_MARKUP})


def _as_html(output):
    data = output.get("data", {})
    for kind in _IMAGES:
        if kind in data:
            size = output["metadata"].get(kind, {})
            sides = "".join(f' {key}="{size[key]}"' for key in ("width", "height") if key in size)
            return f'<img src="data:{kind};base64,{data[kind].strip()}"{sides}>'
    return next((data[kind] for kind in _MARKUP if kind in data), None) or bars.pre(_plain(output))
