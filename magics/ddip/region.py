"""The live region of a cell's output: progress bars and what else may be redrawn, always last.

It is one display that is redrawn in place. What is printed meanwhile goes above it: the display is
emptied and a new one made below, more and more rarely, for each leaves an output behind. Until then
the printed lines wait as the first ones of the region.
"""

import time

FRAME_S = 0.1  # between two drawings
_HELD_LINES = 200  # that wait at most


class Slot:
    """A piece of text in the output area that is redrawn in place."""

    def __init__(self, sink):
        self._sink = sink
        self._id = None
        self.shown = ""

    def show(self, text):
        """Puts text in the place of the last one."""
        if text == self.shown:
            return
        update = self._id is not None
        if not update:
            from uuid import uuid4

            self._id = f"ddip-{uuid4().hex}"
        self.shown = text
        self._sink.display({"text/plain": text}, transient={"display_id": self._id}, update=update)


class Region:
    """The region, and the lines on their way above it."""

    def __init__(self, sink):
        self._sink = sink
        self._slot = None  # None: the next drawing makes one
        self._slots = 0  # how many there were
        self._since = 0.0  # when the last one was made
        self._held = []  # (stream name, text) that wait
        self._held_lines = 0

    def add(self, name, text):
        """Text that is printed above the region, its lines ended."""
        if self._slot is not None and self._slot.shown:
            self._held.append((name, text))
            self._held_lines += text.count("\n")
            if self._held_lines > _HELD_LINES:
                self.give_way()
            return
        self._slot = None  # it is not last any more
        self._sink.write(name, text)

    def give_way(self):
        """Something is going to be shown that must be above: what waits is printed."""
        if self._slot is not None and self._slot.shown:
            self._slot.show("")
        held, self._held, self._held_lines = self._held, [], 0
        for name, text in held:
            self._sink.write(name, text)
        self._slot = None

    @property
    def waits(self):
        """True if there is something that the next drawing may print."""
        return bool(self._held)

    def forget(self):
        """The output area was cleared."""
        self._held, self._held_lines, self._slot = [], 0, None

    def draw(self, text, last=False):
        """Shows this text; last: it stays so."""
        if self._held and (last or self._may_move()):
            self.give_way()
        if self._slot is None:
            if not text or not (last or self._may_move()):
                return
            self._slot = Slot(self._sink)
            self._slots += 1
            self._since = time.monotonic()
        self._slot.show(("".join(text for _, text in self._held) + text).removesuffix("\n"))

    def _may_move(self):
        """True if another slot can be made: the time to the next one grows."""
        return time.monotonic() - self._since >= FRAME_S * self._slots
