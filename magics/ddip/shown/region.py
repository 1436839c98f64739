"""The live region of a cell's output: progress bars and other text that may be redrawn.

It is one display that is redrawn in place and is always last. Lines printed meanwhile go above it:
the display is emptied and a new one made below. As each one leaves an output behind, this happens
less and less often; until it does, the printed lines are held as the first lines of the region.
"""

from __future__ import annotations

import time

from ddip.shown import bars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ddip.shown.sink import Output


FRAME_S = 0.1  # between two redraws
_HELD_LINES = 200  # lines to hold, at most


class Slot:
    """A piece of text in the output area that is redrawn in place."""

    def __init__(self, sink: Output) -> None:
        self._sink = sink
        self._id: str | None = None
        self._data = bars.bundle("")

    @property
    def shown(self) -> str:
        """The text."""
        return self._data["text/plain"]

    def show(self, text: str, failed: bool = False) -> None:
        """Replaces the text. failed: see bars.bundle()."""
        data = bars.bundle(text, failed)
        if data == self._data:
            return
        update = self._id is not None
        if not update:
            from uuid import uuid4

            self._id = f"ddip-{uuid4().hex}"
        self._data = data
        self._sink.display(data, transient={"display_id": self._id}, update=update)


class Region:
    """The region, and the lines that are held to be printed above it."""

    def __init__(self, sink: Output) -> None:
        self._sink = sink
        self._slot: Slot | None = None  # None: the next draw() makes one
        self._slots = 0  # number of slots made so far
        self._since = 0.0  # when the last one was made
        self._held: list[tuple[str, str]] = []  # (stream name, text) of the lines that are held
        self._held_lines = 0

    def add(self, name: str, text: str) -> None:
        """Prints text, whole lines, above the region, at once or later."""
        if self._slot is not None and self._slot.shown:
            self._held.append((name, text))
            self._held_lines += text.count("\n")
            if self._held_lines > _HELD_LINES:
                self.give_way()
            return
        self._slot = None  # it is no longer last
        self._print(name, text)

    def give_way(self) -> None:
        """Prints the held lines, so that whatever is shown next appears above the region."""
        if self._slot is not None and self._slot.shown:
            self._slot.show("")
        held, self._held, self._held_lines = self._held, [], 0
        for name, text in held:
            self._print(name, text)
        self._slot = None

    def _print(self, name, text):
        """Prints text; bars in it are displayed."""
        for is_bar, lines in bars.runs(text) if self._sink.redraws else [(False, text)]:
            if is_bar:
                self._sink.display(bars.bundle(lines.removesuffix("\n")))
            else:
                self._sink.write(name, lines)

    @property
    def waits(self) -> bool:
        """True if lines are held that the next draw() may print."""
        return bool(self._held)

    def forget(self) -> None:
        """Forgets everything, as the output area was cleared."""
        self._held, self._held_lines, self._slot = [], 0, None

    def draw(self, text: str, last: bool = False, failed: bool = False) -> None:
        """Shows this text in the region; last: for good. failed: see bars.bundle()."""
        if self._held and (last or self._may_move()):
            self.give_way()
        if self._slot is None:
            if not text or not (last or self._may_move()):
                return
            self._slot = Slot(self._sink)
            self._slots += 1
            self._since = time.monotonic()
        text = "".join(text for _, text in self._held) + text
        self._slot.show(text.removesuffix("\n"), failed)

    def _may_move(self):
        """True if another slot may be made; the interval between slots grows."""
        return time.monotonic() - self._since >= FRAME_S * self._slots
