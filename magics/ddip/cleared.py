"""Output that clear_output() clears before anybody can see it: it is not shown.

A kernel drops messages if many come at once. A loop of clear_output() and print() sends thousands.
"""

import math
import time

from ddip.region import FRAME_S

_OUTPUT = ("stream", "display_data", "clear_output")  # what a later clear_output() undoes


def without_cleared(messages):
    """The messages without the output that a later one of the same rank clears.

    clear_output() counts if output follows: before that it may have no effect yet.
    """
    if not _has("clear_output", messages):
        return messages
    kept, followed, cleared = [], set(), set()  # ranks whose output follows; whose is cleared
    for message in reversed(messages):
        rank, kind = message.get("rank"), message["type"]
        if rank in cleared and kind in _OUTPUT:
            continue
        kept.append(message)
        if kind == "clear_output" and rank in followed:
            cleared.add(rank)
        elif kind in _OUTPUT and kind != "clear_output":
            followed.add(rank)
    return kept[::-1]


def _has(kind, messages):
    return any(message["type"] == kind for message in messages)


class Frames:
    """Makes one batch of those that come within a frame, while they clear output.

    redraws: the front end clears output. A terminal does not: there, nothing is held.
    """

    def __init__(self, take, redraws):
        self._take = take
        self._redraws = redraws
        self._held = []
        self._last = 0.0  # when output was cleared last

    def take(self, messages):
        """Accepts a batch of messages: passes it on now, or later with others."""
        self._held += messages
        clears = self._redraws and _has("clear_output", self._held)
        if clears and not _has("input_request", messages):
            if time.monotonic() - self._last < FRAME_S:
                return
            self._last = time.monotonic()
        self.end()

    def patience(self):
        """Milliseconds until take([]) passes on what is held; None: nothing is."""
        if not self._held:
            return None
        return max(0, math.ceil((self._last + FRAME_S - time.monotonic()) * 1000))

    def end(self):
        """Passes on what is held."""
        held, self._held = self._held, []
        self._take(held)
