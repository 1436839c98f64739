"""`-S tabs`: a tab for each rank, with its state, output, displays and results, in one widget.

Each rank has a View of its own, which shows it as if it were the only one, in the widget instead of
the output area. A widget lives as long as its kernel, so at the end HTML takes its place, and text
with prefixes where no HTML is shown.
"""

from __future__ import annotations

import importlib
import math
import time
from uuid import uuid4

from ddip import patches
from ddip import ranks as rank_lists
from ddip.shown import saved
from ddip.shown.region import FRAME_S, Region
from ddip.shown.show import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any, Protocol

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.shown.elapsed import Elapsed
    from ddip.shown.sink import Output

    class Doing(Protocol):
        """What is known of the ranks in a cell."""

        def now(self, asks: bool) -> tuple[Mapping[int, str], Collection[int]] | None:
            """(rank -> what it does in the cell, in a word or two, DONE if it has run its part;
            the ranks that others wait for). None: nobody knows. asks: all ranks are asked where
            they are, and the second is known."""

        def ended(self) -> tuple[str, Mapping[int, tuple[str, str]], int | None]:
            """(state of the cell, "" if nobody knows; rank -> name of the errno and text of its
            failure; the rank that is said to be its cause)."""


_PART_CHARS = 32 << 10  # printed text in one part of a tab; each line that is added sends all of it
_LOOK_S = 1.0  # between looks at the states of the ranks
_SILENCE_S = 3.0  # after this long without output, all ranks are asked in which collective they are
RUNS, FAILED, DONE = "…", "✗", "✓"
AWAITED = "⚠"  # others wait for this rank
_STOPPED = "■ interrupted"
# Many tabs take several rows, and are as wide as their text, but no less than with a mark: they do
# not move when a rank has ended. What they show begins where other output of a cell does. When the
# kernel has gone nothing more can be sent: what is to be said then is there from the beginning.
_STYLE = """<style>.{name} > .widget-tab > .lm-TabBar .lm-TabBar-content,
.{name} > .widget-tab > .p-TabBar .p-TabBar-content {{ flex-wrap: wrap; }}
.{name} > .widget-tab > .lm-TabBar .lm-TabBar-content::before,
.{name} > .widget-tab > .p-TabBar .p-TabBar-content::before {{
    content: "rank"; padding: 0 .6em 0 6px; align-self: center; }}
.{name} > .widget-tab > .lm-TabBar .lm-TabBar-tab,
.{name} > .widget-tab > .p-TabBar .p-TabBar-tab {{
    flex: 0 0 auto; min-width: {width}ch; justify-content: center; }}
.{name}, .{name} > .widget-tab, .{name} > .widget-tab > .widget-tab-contents > .widget-vbox,
.{name} > .widget-tab > .widget-tab-contents > .widget-vbox > .widget-output {{ margin: 0; }}
.{name} > .widget-html {{ display: none; }}
.{name} > .widget-tab > .widget-tab-contents {{ padding: 4px 0; }}
.{name}.jupyter-widgets-disconnected::before, .{name} .jupyter-widgets-disconnected::before {{
    display: none; }}
.{name}.jupyter-widgets-disconnected::after {{ content: "{gone}"; display: block;
    padding-left: 8px; }}
{coloured}</style>"""
_GONE = "Its kernel is gone; in the next one %dip --replay {} -S tabs shows the output"
_MARK_CH = 5.5  # the width of a mark, and of what is around the text of a tab
_COLOUR = (
    ".{name} > .widget-tab > .{kind}-TabBar .{kind}-TabBar-tab:nth-child({number}) {{ {css} }}\n"
)
_RED = "color:var(--jp-error-color1,#c62828);font-weight:bold"
_AMBER = "color:var(--jp-warn-color0,#e65100);font-weight:bold"


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
    """A View of several ranks as tabs, in the cell of this number. The rest is as in View."""

    def __init__(
        self,
        sink: Output,
        number: int,
        seen: Iterable[int],
        files: Callable[[int, str], str],
        progress: Elapsed,
        doing: Doing,
    ) -> None:
        from ipywidgets import HTML, Layout, Tab, VBox

        self.sink = sink
        self._number = number
        self.seen = set(seen)
        self._order = sorted(seen)
        self._doing = doing
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
        self._does = dict.fromkeys(self._order, RUNS)  # rank -> what its tab says
        self._awaited: set[int] = set()  # ranks that others wait for, if that is certain
        self._failed: dict[int, dict[str, Any]] = {}  # rank -> its `error` message
        self._interrupted: set[int] = set()  # those of them that were only interrupted
        self._opened = 0  # the index of the tab that this has opened last
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
        moves = False
        for message in messages:
            rank: Any = message.get("rank")
            if message["type"] == "notice":
                self._region.add("stderr", f"ddip: {message['text']}\n")
            elif rank in self._views:
                own.setdefault(rank, []).append(message)
                if message["type"] == "error":
                    self._fail(rank, message)
                else:
                    moves = True
            elif message["type"] == "error":
                next(iter(self._views.values())).errors[rank] = message
            if message["type"] == "dropped" and rank is None:
                for view in self._views.values():
                    view.take([message])
        for rank, some in own.items():
            self._views[rank].take(some)
        self._changed = self._changed or bool(own)
        if moves:
            self._moved = time.monotonic()
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
        self._open(rank)
        self._draw()
        return shown

    def end(self) -> None:
        """See View."""
        state, errors, cause = self._doing.ended()
        for rank, (errno, text) in errors.items():
            if rank in self._running:
                name = "died" if errno == "EHOSTDOWN" else "failed"
                self._fail(rank, {"ename": name, "evalue": text, "traceback": [text]})
            ename = self._failed[rank]["ename"] if self._is_red(rank) else "Preempted"
            if state == "interrupted" and errno == "EINTR" and ename != "Preempted":
                self._interrupt(rank)
        for rank, view in self._views.items():
            view.end()
            if rank in self._failed:
                self._panes[rank].error(self._failed[rank])
        self._settle(state)
        self._running.clear()
        self._title()
        self._open_last(cause)
        self._draw()
        self._region.draw(self._progress.last_line(bool(self._failed)), last=True)
        self._show(ended=True)
        self.sink.flush()

    def _settle(self, state):
        """Says of the ranks that have not failed how they have ended."""
        known = None
        if state not in ("ok", "queued", "running"):
            known = self._doing.now(asks=False)
        for rank in self._running if state not in ("queued", "running") else ():
            done = state == "ok" or (known is not None and known[0].get(rank) == DONE)
            if self._does[rank] != DONE:
                self._does[rank] = DONE if done else ""

    def _open_last(self, cause):
        """Opens the tab that tells most: of a failure its cause; of an interrupt a rank that others
        waited for, unless the user has chosen another."""
        failed = [rank for rank in self._failed if self._is_red(rank)]
        if failed:
            self._open(cause if cause in failed else failed[0])
        elif self._interrupted and self._awaited and self._tab.selected_index == self._opened:
            self._open(min(self._awaited & self._interrupted or self._awaited))

    def _open(self, rank):
        self._opened = self._tab.selected_index = self._order.index(rank)

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
        if message["ename"] == "KeyboardInterrupt":
            self._interrupt(rank)
        self._title()

    def _interrupt(self, rank):
        self._interrupted.add(rank)
        self._does[rank] = _STOPPED

    def _look(self):
        """Has the tabs say what each rank does."""
        self._looked = self._drawn
        asks = self._drawn - self._moved >= _SILENCE_S
        known = self._doing.now(asks)
        if known is not None:
            self._does.update((rank, known[0].get(rank, RUNS)) for rank in self._running)
            if not self._interrupted:
                self._awaited = self.seen & set(known[1])
        self._title()

    def _title(self):
        titles = [f"{rank} {self._does[rank]}".rstrip() for rank in self._order]
        if list(self._tab.titles) != titles:
            self._tab.titles = titles
        coloured = "".join(
            _COLOUR.format(name=self._name, kind=kind, number=number, css=css)
            for number, rank in enumerate(self._order, 1)
            if (css := self._css(rank))
            for kind in ("lm", "p")
        )
        gone = _GONE.format(self._number)
        style = _STYLE.format(name=self._name, coloured=coloured, width=self._width(), gone=gone)
        if self._style.value != style:
            self._style.value = style

    def _width(self):
        """The least width of a tab, in characters."""
        return len(str(self._order[-1])) + _MARK_CH

    def _css(self, rank):
        """How the title of a tab is drawn."""
        if rank in self._running and rank in self._awaited:
            return _AMBER
        return _RED if self._is_red(rank) else ""

    def _is_red(self, rank):
        failed = rank in self._failed and rank not in self._interrupted
        return failed and "freed" not in self._failed[rank]

    # ---- what is saved

    def _show(self, ended):
        """Displays the widget; when the cell has ended, what takes its place. It stays if there is
        output that HTML does not show, such as another widget."""
        panes = [(rank, pane.outputs()) for rank, pane in self._panes.items()]
        ranks = rank_lists.name(self._order)
        text = f"Cell {self._number} of {ranks} had not ended when this was saved: "
        data = {"text/plain": f"{text}%dip --replay {self._number} -S tabs shows their output"}
        if ended:
            shown = [
                (title, self._css(rank), outputs)
                for (rank, outputs), title in zip(panes, self._tab.titles, strict=True)
            ]
            chosen = self._tab.selected_index or 0
            html = saved.as_html(self._name, shown, chosen, self._width())
            data = {"text/plain": saved.as_text(panes), "text/html": html}
        if not (ended and all(saved.is_shown(each) for _, outputs in panes for each in outputs)):
            data[saved.VIEW] = {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self._box.model_id,
            }
        self.sink.display(data, None, {"display_id": self._name}, update=ended)
