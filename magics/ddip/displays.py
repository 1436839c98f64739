"""The displays of one of several ranks: its clear_output() must clear these and no others.

A display gets a place, a display id of its own. After clear_output() the next displays take the
places of those before. Printed lines cannot be cleared in a part of the output area. So what a rank
prints after its first clear_output() is displayed, too.
"""

from uuid import uuid4

_LINES = 200  # printed lines in one place; each line that is added redraws all


class Displays:
    """sink: where they are shown. begin(label): called before each new place; label: print one."""

    def __init__(self, sink, begin=lambda label: None):
        self._sink = sink
        self._begin = begin
        self._places = []  # display ids
        self._next = 0  # the index of the next display's place
        self._was_cleared = False
        self._text = ""  # the printed lines in the last place
        self._is_drawn = True  # False: the last place does not show all of self._text

    def show(self, data, metadata=None):
        """Shows a bundle of representations in the next place."""
        self.draw()
        self._text = ""
        self._next += 1
        self._show(data, metadata, label=True)

    def write(self, lines):
        """Adds printed lines, for draw(). Returns False if they must be printed instead."""
        count = self._text.count("\n") + lines.count("\n")
        if not self._was_cleared or count > _LINES:
            return False
        if not self._text:
            self._next += 1
        self._text += lines
        self._is_drawn = False
        return True

    def draw(self):
        """Shows the printed lines that were added."""
        if not self._is_drawn:
            self._is_drawn = True
            self._show({"text/plain": self._text}, None, label=False)

    def clear(self, wait):
        """Empties the places; wait: each one only when the next display replaces it."""
        if wait:
            self._empty_rest()
        else:
            self._empty(self._places)
        self._next, self._was_cleared, self._text, self._is_drawn = 0, True, "", True

    def end(self):
        """Shows what is left, and empties the places that clear(wait=True) left to be replaced."""
        self.draw()
        self._empty_rest()

    def _show(self, data, metadata, label):
        """Shows it in the place before the next."""
        is_new = self._next > len(self._places)
        if is_new:
            self._begin(label)
            self._places.append(f"ddip-{uuid4().hex}")
        place = {"display_id": self._places[self._next - 1]}
        self._sink.display(data, metadata, place, update=not is_new)

    def _empty_rest(self):
        """Empties the places of the round before, if anything has come since."""
        if self._next:
            self._empty(self._places[self._next :])

    def _empty(self, places):
        for place in places:
            self._sink.display({"text/plain": ""}, {}, {"display_id": place}, update=True)
