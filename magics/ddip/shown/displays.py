"""The displays of one of several ranks: its clear_output() must clear these and no others.

A display gets a place, a display id of its own. After clear_output() the next displays take the
places of those before. Printed lines cannot be cleared in a part of the output area. So what a rank
prints after its first clear_output() is displayed, too.
"""

from __future__ import annotations

from uuid import uuid4

from ddip.shown.limit import HEAD_BYTES, HEAD_LINES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ddip.shown.sink import Output


_VIEW = "application/vnd.jupyter.widget-view+json"
_LINES = 200  # printed lines in one place; each line that is added redraws all


class Displays:
    """sink: where they are shown. label: the line above each new one; "": none.

    give_way() is called before anything new is shown.
    """

    def __init__(
        self, sink: Output, label: str = "", give_way: Callable[[], object] = lambda: None
    ) -> None:
        self._sink = sink
        self._label = label
        self._give_way = give_way
        self._places: list[str] = []  # display ids
        self._used = 0  # the places that were used since clear(); the others are from before
        self._named: set[str] = set()  # the display ids that the rank has chosen itself
        self._named_before: set[str] = set()  # the same, from before clear(wait=True)
        # comm id of a widget -> the display id of the label above it
        self._labels: dict[str, str] = {}
        self._emptied: set[str] = set()  # display ids of the rank that were shown, and cleared
        self._has_begun = False  # something was shown since clear()
        self._was_cleared = False
        self._text = ""  # the printed lines in the last place that is used
        self._lines = self._bytes = 0  # that were printed since clear()
        self._is_drawn = True  # False: the place does not show all of self._text

    def show(self, data: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        """Shows a bundle of representations in the next place."""
        self._use_place()
        self._show(data, metadata, self._label)

    def show_named(
        self, name: str, data: dict[str, Any], metadata: dict[str, Any] | None, label: bool = True
    ) -> None:
        """Shows a bundle under a display id that the rank has chosen: where it was, if it was."""
        known = name in self._emptied or name in self._named_before
        self._emptied.discard(name)
        self._named_before.discard(name)
        self._named.add(name)
        if known:
            self._begin_output()
        else:
            self._begin_elsewhere()
            self._give_way()
            if label and self._label:
                above = f"ddip-{uuid4().hex}"
                self._named.add(above)
                self._sink.display({"text/plain": self._label}, {}, {"display_id": above})
        self._sink.display(data, metadata, {"display_id": name}, update=known)

    def closed(self, widget: str) -> None:
        """Removes the label of a widget that the rank has closed. widget: its comm id."""
        if (above := self._labels.pop(widget, None)) is not None:
            self._empty([above])

    def has_cleared(self, name: str) -> bool:
        """True if the rank has shown that display id, and cleared it."""
        return name in self._emptied

    def write(self, lines: str) -> bool:
        """Adds printed lines, for draw(). Returns False if they must be printed instead."""
        if not self._was_cleared or self._is_full():
            return False
        self._lines += lines.count("\n")
        self._bytes += len(lines)
        if self._is_full() or self._text.count("\n") + lines.count("\n") > _LINES:
            self._begin_elsewhere()
            return False
        if not self._text:
            self._use_place()
        self._text += lines
        self._is_drawn = False
        return True

    def _is_full(self):
        return self._lines > HEAD_LINES or self._bytes > HEAD_BYTES

    def draw(self) -> None:
        """Shows the printed lines that were added."""
        if not self._is_drawn:
            self._is_drawn = True
            self._show({"text/plain": self._text}, None, label="")

    def _end_text(self):
        """What is printed from now on is shown in another place."""
        self.draw()
        self._text = ""

    def clear(self, wait: bool) -> None:
        """Empties the places; wait: each one only when the next display replaces it."""
        self._end_text()
        self._empty_rest()
        self._named_before |= self._named
        self._named.clear()
        if not wait:
            self._empty(self._places)
            self._empty_named_before()
        self._used, self._has_begun, self._was_cleared = 0, False, True
        self._lines = self._bytes = 0

    def end(self) -> None:
        """Shows what is left, and empties the places that clear(wait=True) left to be replaced."""
        self.draw()
        self._empty_rest()

    def _begin_output(self):
        self._end_text()
        self._empty_named_before()
        self._has_begun = True

    def _begin_elsewhere(self):
        """Prepares for output without a place. Only new places are below it."""
        self._begin_output()
        self._empty_rest()
        del self._places[self._used :]

    def _use_place(self):
        self._begin_output()
        self._used += 1

    def _show(self, data, metadata, label):
        """Shows it in the last place that is used."""
        is_new = self._used > len(self._places)
        if is_new:
            self._give_way()
            if label and _VIEW in data:
                above = self._labels[data[_VIEW].get("model_id")] = f"ddip-{uuid4().hex}"
                self._sink.display({"text/plain": label}, {}, {"display_id": above})
            elif label:
                self._sink.write("stdout", label + "\n")
            self._places.append(f"ddip-{uuid4().hex}")
        place = {"display_id": self._places[self._used - 1]}
        self._sink.display(data, metadata, place, update=not is_new)

    def _empty_rest(self):
        """Empties the places from before clear(), if anything has come since."""
        if self._has_begun:
            self._empty(self._places[self._used :])

    def _empty_named_before(self):
        self._empty(self._named_before)
        self._emptied |= self._named_before
        self._named_before.clear()

    def _empty(self, names):
        for name in names:
            self._sink.display({"text/plain": ""}, {}, {"display_id": name}, update=True)
