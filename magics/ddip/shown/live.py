"""Displays that a thread keeps up to date: `%dip --top`, and the curves of `%%dip --plot NAME`.

A terminal, which would print each drawing below the last one, shows only one of them.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import io
import json
import math
import os
import threading
import time
from uuid import uuid4

from ddip.errors import DipError
from ddip.mounts import files
from ddip.shown import bars
from ddip.shown.overview import ALARM, Overview
from ddip.shown.sink import Sink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.groups import Group


_EVERY_S = 1.0  # between drawings, at least
_ASK_S = 0.1  # between looks at what is plotted, at least
_TIME_S = 10.0  # a time is shown anew after this long
_LONGEST_S = 1.0  # for which the end of a display waits for a drawing that is under way
_SHARE = 0.02  # of the time, at most, that the ranks are asked for what is plotted
_POINTS = 2000  # of a curve; then every second one is dropped
_WIDE, _HIGH = 6.4, 2.4  # of a plot, in inches
_NAMED = 8  # curves, at most: more names do not fit
_SECONDS, _INDEX = "seconds since the cell was submitted", "index in the list"
_TABLE = "white-space:pre;overflow-x:auto"  # rows are not broken


class Live:
    """One display. frame(): returns its bundle (None: as before), and the seconds until the next
    one (None: this was the last one)."""

    def __init__(
        self,
        shell: InteractiveShell | None,
        frame: Callable[[], tuple[dict[str, Any] | None, float | None]],
    ) -> None:
        self._sink = Sink(shell)
        self.redraws = self._sink.redraws
        self._frame = frame
        self._place = {"display_id": f"ddip-{uuid4().hex}"}
        self._ends = threading.Event()
        self._drawn: dict[str, Any] | None = None  # the last bundle
        self._shown: dict[str, Any] | None = None  # that is shown
        self._drawing = threading.Lock()

    def begin(self) -> None:
        """Shows it, here, and begins the thread."""
        wait_s = self.draw()
        threading.Thread(target=self._run, args=(wait_s,), daemon=True).start()

    def end(self) -> None:
        """Ends the thread. What is shown stays."""
        self._ends.set()

    def _run(self, wait_s):
        while wait_s is not None and not self._ends.wait(wait_s):
            wait_s = self.draw()

    def draw(self, longest_s: float = -1, last: bool = False) -> float | None:
        """Shows it as it is now. Returns the seconds until the next time, None if there is none.
        longest_s: how long to wait for a drawing that is under way, before nothing is done. last:
        it is the one that a terminal shows."""
        if not self._drawing.acquire(timeout=longest_s):
            return None
        try:
            bundle, wait_s = self._frame()
        except Exception as e:  # nobody else would see it
            bundle, wait_s = {"text/plain": f"{type(e).__name__}: {e}"}, None
        try:
            self._show(bundle, last)
        finally:
            self._drawing.release()
        return wait_s

    def _show(self, bundle, last):
        self._drawn = bundle or self._drawn
        if not self.redraws and not last:
            return
        if self._drawn is not None and self._drawn != self._shown:
            self._sink.display(self._drawn, None, self._place, update=self._shown is not None)
            self._shown = self._drawn


# ---- %dip --top


class _Top:
    """What all ranks do, as of the last look."""

    def __init__(self, group: Group) -> None:
        self._overview = Overview(group)
        self._looked = ""  # the time of the last look
        self._shown: list[tuple[int, str]] = []
        self._due = 0.0  # when to show the time if nothing else has changed
        self.ended = ""  # why there are no more looks

    def frame(self) -> tuple[dict[str, str] | None, float | None]:
        """See Live."""
        if not self.ended:
            try:
                self._overview.look()
                self._looked = time.strftime("%H:%M:%S")
            except (OSError, DipError):
                self.ended = "the group is gone"
        lines = list(self._overview.lines(None, narrow=True))
        now = time.monotonic()
        if not self.ended and lines == self._shown and now < self._due:
            return None, _EVERY_S
        self._shown, self._due = lines, now + _TIME_S
        (_, title), *rest = lines
        title += f", as of {self._looked}"
        title += f": no more looks, as {self.ended}" if self.ended else ""
        head = [title, *(text for style, text in rest if style == ALARM)]
        table = "\n".join(text for style, text in rest if style != ALARM)
        page = bars.pre("\n".join(head)) + bars.pre(table, _TABLE)
        text = "\n".join([*head, table])
        return {"text/plain": text, "text/html": page}, None if self.ended else _EVERY_S


_top: tuple[_Top, Live] | None = None  # of the last %dip --top


def top(shell: InteractiveShell | None, group: Group) -> None:
    """Shows what all ranks do until the group or the kernel is gone, or this is called again; in a
    terminal once."""
    global _top
    made = _Top(group)
    live = Live(shell, made.frame)
    if not live.redraws:
        live.draw(last=True)
        print("This terminal shows it once: `ddip top`, in another one, keeps it up to date")
        return
    if _top is not None:
        _end_top("there is a newer %dip --top")
    elif getattr(shell, "kernel", None) is not None:
        atexit.register(_end_top, "the kernel has ended")
    _top = made, live
    live.begin()


def _end_top(why):
    made, live = _top
    live.end()
    made.ended = made.ended or why
    live.draw(_LONGEST_S)


# ---- %%dip --plot


def plotting(
    shell: InteractiveShell | None, group: Group, names: Sequence[str] | None
) -> AbstractContextManager[None]:
    """Within it, draws these variables of all ranks, every second; in a terminal at its end."""
    return _plotting(shell, group, names) if names else contextlib.nullcontext()


@contextlib.contextmanager
def _plotting(shell: InteractiveShell | None, group: Group, names: Sequence[str]) -> Iterator[None]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DipError("--plot needs matplotlib: pip install matplotlib") from None
    plot = Plot(group, names, Figure)
    shown = Live(shell, plot.frame)
    shown.begin()
    try:
        yield
    finally:
        shown.end()
        plot.ends = True
        shown.draw(last=True)


class Plot:
    """Curves of variables: of a number, its values over time; of a list, its elements. ends: the
    next frame is the last one.

    The first frame is made before the cell runs. A global counts once it differs from then.
    """

    ends = False

    def __init__(self, group: Group, names: Sequence[str], figure: Callable[..., Any]) -> None:
        self._group = group
        self._figure = figure
        self._curves: dict[str, dict[int, list[tuple[float, float]]]] = {name: {} for name in names}
        self._axis = dict.fromkeys(names, "")  # name -> what its horizontal axis shows
        self._before: dict[tuple[str, int], str] | None = None  # (name, rank) -> its value then
        self._began = time.monotonic()
        self._due = 0.0  # when to draw next, if a variable has changed
        self._changed = True

    def frame(self) -> tuple[dict[str, str] | None, float]:
        """See Live."""
        if self._before is None:
            self._before = self._values()
            self._began = time.monotonic()
            return None, _ASK_S
        began = time.monotonic()
        for name in self._curves:
            self._changed |= self._read(name)
        now = time.monotonic()
        wait_s = max(_ASK_S, (now - began) / _SHARE)
        if not self._changed or (now < self._due and not self.ends):
            return None, wait_s
        drawn = self._draw()
        self._due, self._changed = time.monotonic() + _EVERY_S, False
        return drawn, wait_s

    def _values(self):
        found = {name: _gathered(self._group, name)[1] for name in self._curves}
        return {
            (name, rank): repr(value)
            for name, values in found.items()
            for rank, value in enumerate(values)
        }

    def _read(self, name):
        """Adds what a variable is now. False: it is not there, is no number, or is as it was."""
        place, values = _gathered(self._group, name)
        now, added = time.monotonic() - self._began, False
        for rank, value in enumerate(values):
            if place == "vars" and self._before.get((name, rank)) == repr(value):
                continue
            self._before.pop((name, rank), None)
            if isinstance(value, list) and all(isinstance(y, int | float) for y in value):
                curve = self._curve(name, rank, _INDEX)
                added |= len(curve) != len(value)
                curve[:] = enumerate(value)
            elif isinstance(value, int | float):
                curve = self._curve(name, rank, _SECONDS)
                curve.append((now, value))
                added = True
            else:
                continue
            if len(curve) > _POINTS:
                del curve[-2::-2]
        return added

    def _curve(self, name, rank, axis):
        """The points of a variable on a rank; none if it was of another kind before."""
        if self._axis[name] != axis:
            self._axis[name] = axis
            self._curves[name].clear()
        return self._curves[name].setdefault(rank, [])

    def _draw(self):
        kinds = sorted({self._axis[name] for name, curves in self._curves.items() if curves})
        rows = max(1, len(kinds))
        figure = self._figure(figsize=(_WIDE, _HIGH * rows), layout="constrained")
        for row, axis in enumerate(kinds, 1):
            self._draw_kind(figure.add_subplot(rows, 1, row), axis)
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=100)
        last = [
            f"{name} of rank {rank}: {curve[-1][1]:g}"
            for name, curves in self._curves.items()
            for rank, curve in sorted(curves.items())
            if curve
        ]
        if not last:
            return {"text/plain": f"{', '.join(self._curves)}: no number has changed yet"}
        data = base64.b64encode(png.getvalue()).decode("ascii")
        return {"image/png": data, "text/plain": "\n".join(last)}

    def _draw_kind(self, axes, axis):
        """Draws the curves with this horizontal axis."""
        for name, curves in self._curves.items():
            for rank, curve in sorted(curves.items()) if self._axis[name] == axis else ():
                if curve:
                    axes.plot(
                        *zip(*curve, strict=True), linewidth=0.9, label=f"{name} of rank {rank}"
                    )
        axes.set_xlabel(axis)
        if axes.lines:
            size = axes.get_xticklabels()[0].get_fontsize()
            named = axes.lines[:: math.ceil(len(axes.lines) / _NAMED)]
            place = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
            axes.legend(handles=named, **place, fontsize=size, frameon=False)


def _gathered(group, name):
    """(place, values): of a variable on each rank, of what runs first ("locals"), else of a global
    ("vars"); no values: it has none."""
    for place in ("locals", "vars"):
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(
                files.read_text(os.path.join(group.path, place, f"{name}.gather.json"))
            )
            return place, found if isinstance(found, list) else []
    return "", []
