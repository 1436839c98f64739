"""Output that clear_output() clears before anybody can see it: it is not shown.

A kernel drops messages if many come at once. A loop of clear_output() and print() sends thousands.
"""

from __future__ import annotations

import math
import time

from ddip.shown.region import FRAME_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from typing import Any


OUTPUT = ("stream", "display_data", "clear_output")  # what a later clear_output() undoes


def without_cleared(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without the output that a later clear_output() of the same rank clears.

    It counts only if output follows: with wait=True it has no effect before.
    """
    if all(message["type"] != "clear_output" for message in messages):
        return messages
    kept, followed, cleared = [], set(), set()  # ranks whose output follows; whose is cleared
    for message in reversed(messages):
        rank, kind = message.get("rank"), message["type"]
        if rank in cleared and kind in OUTPUT:
            continue
        kept.append(message)
        if kind == "clear_output" and rank in followed:
            cleared.add(rank)
        elif kind in OUTPUT and kind != "clear_output":
            followed.add(rank)
    return kept[::-1]


class Frames:
    """Joins the messages of a frame into one batch, while a rank in `seen` clears its output."""

    def __init__(
        self, take: Callable[[list[dict[str, Any]]], object], seen: Container[int]
    ) -> None:
        self._take = take
        self._seen = seen
        self._held: list[dict[str, Any]] = []
        self._clears = False  # there is a clear_output() in what is held
        self._last = 0.0  # when output was last cleared

    def take(self, messages: list[dict[str, Any]]) -> None:
        """Accepts a batch of messages: passes it on now, or later with others."""
        self._held += messages
        self._clears = self._clears or any(map(self._is_clear, messages))
        asks = any(message["type"] == "input_request" for message in messages)
        if self._clears and not asks and time.monotonic() - self._last < FRAME_S:
            if not messages:
                self._take([])  # the view may have to draw something else
        else:
            self._pass_on()

    def _is_clear(self, message):
        return message["type"] == "clear_output" and message.get("rank") in self._seen

    def patience(self) -> int | None:
        """Milliseconds until take([]) passes on what is held; None: nothing is."""
        if not self._held:
            return None
        return max(0, math.ceil((self._last + FRAME_S - time.monotonic()) * 1000))

    def end(self) -> None:
        """Passes on what is held."""
        if self._held:
            self._pass_on()

    def _pass_on(self):
        if self._clears:
            self._last = time.monotonic()
        held, self._held, self._clears = self._held, [], False
        self._take(held)
