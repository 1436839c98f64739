"""`%%dip -q`: the output is held back until the cell has ended; what is left is then shown."""

from __future__ import annotations

import math

from ddip.shown.region import Region
from ddip.shown.show import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

    from ddip.shown.elapsed import Elapsed
    from ddip.shown.sink import Output


class _Held:
    """A sink that holds output back until release(), except for what was redrawn or cleared."""

    redraws = True

    def __init__(self, sink):
        self._sink = sink
        self.coloured = sink.coloured
        self._items = []  # ("write", name, pieces) or ("display", data, metadata, transient)
        self._places = {}  # display id -> the index of its item
        self._shown = set()  # display ids that release() has shown

    def write(self, name, text):
        """See Sink."""
        if self._items and self._items[-1][:2] == ["write", name]:
            self._items[-1][2].append(text)
        else:
            self._items.append(["write", name, [text]])

    def flush(self):
        """See Sink."""

    def display(self, data, metadata=None, transient=None, update=False):
        """See Sink."""
        place = (transient or {}).get("display_id")
        item = ["display", data, metadata, transient, update or place in self._shown]
        if update and place in self._places:
            item[-1] = self._items[self._places[place]][-1]
            self._items[self._places[place]] = item
            return
        self._places[place] = len(self._items)
        self._items.append(item)

    def clear(self, wait):
        """See Sink."""
        self._items, self._places = [], {}

    def release(self):
        """Shows the output that it holds."""
        for kind, *item in self._items:
            if kind == "write":
                self._sink.write(item[0], "".join(item[1]))
                continue
            data, metadata, transient, update = item
            if data.get("text/plain") or len(data) > 1 or update:
                self._sink.display(data, metadata, transient, update=update)
                self._shown.add((transient or {}).get("display_id"))
        self._items, self._places = [], {}
        self._shown.discard(None)
        self._sink.flush()


class QuietView:
    """A View that shows everything at the end. progress: as in View; only this is shown before."""

    told: Collection[int] = ()  # ranks whose exceptions it shows

    def __init__(
        self,
        sink: Output,
        seen: Iterable[int],
        files: Callable[[int, str], str],
        progress: Elapsed | None = None,
    ) -> None:
        self._sink = sink
        self._held = _Held(sink)
        self._view = View(self._held, seen, files)
        self._region = Region(sink)
        self._progress = progress

    @property
    def errors(self) -> dict[int, dict[str, Any]]:
        """The exceptions: rank -> message."""
        return self._view.errors

    @property
    def results(self) -> list[tuple[int, dict[str, Any]]]:
        """See View."""
        return self._view.results

    @property
    def seen(self) -> set[int]:
        """The ranks that are shown."""
        return self._view.seen

    def take(self, messages: list[dict[str, Any]]) -> None:
        """Accepts a batch of messages."""
        self._view.take(messages)
        if self._progress is not None and self._sink.redraws:
            self._region.draw(self._progress.line())

    def closed(self, rank: int, widget: str) -> None:
        """See View."""
        self._view.closed(rank, widget)

    def patience(self) -> int | None:
        """See View."""
        if self._progress is None or not self._sink.redraws:
            return None
        return math.ceil(self._progress.patience() * 1000)

    def reveal(self, rank: int, text: str) -> None:
        """See View."""
        self._view.reveal(rank, text)

    def asks(self, rank: int, prompt: str) -> bool:
        """See View. Shows the output so far, which the user needs for the answer."""
        shown = self._view.asks(rank, prompt)
        self._held.release()
        return shown

    def end(self) -> None:
        """Shows the output that was held back."""
        text = "" if self._progress is None else self._progress.last_line(bool(self.errors))
        self._region.draw(text, last=True)
        self._view.end()
        self._held.release()


def make(
    sink: Output,
    seen: Iterable[int],
    files: Callable[[int, str], str],
    quiet: bool,
    progress: Elapsed | None = None,
) -> View | QuietView:
    """The view for these ranks."""
    return (QuietView if quiet else View)(sink, seen, files, progress)
