"""The line under a cell that shows nothing: how long it has been running, or what it waits for."""

import time

_SILENCE_S = 3.0  # without output the line is shown
_QUEUED_S = 1.0  # a cell that waits for others says so sooner


class Elapsed:
    """waits_for(): what a cell that has not begun waits for, as text; "" once it runs."""

    def __init__(self, waits_for):
        self._waits_for = waits_for
        self._waiting = ""
        self._begun = False  # there is nothing to ask any more
        self._asked = 0.0
        self._shown = False
        self._started = self._moved = time.monotonic()
        self._next = self._moved + _QUEUED_S  # when line() may be another one

    def moved(self):
        """Something was shown: it runs."""
        self._moved = time.monotonic()
        self._begun, self._waiting = True, ""
        self._next = self._moved + _SILENCE_S

    def patience(self):
        """Seconds until line() is another one."""
        return max(0.0, self._next - time.monotonic())

    def line(self):
        """The line now, with its end; "" if the cell shows something itself."""
        now = time.monotonic()
        if not self._begun and now >= max(self._moved, self._asked) + _QUEUED_S:
            self._ask(now)
        self._next = now + 1.0
        if self._waiting:
            return f"{self._waiting}, for {now - self._started:.0f} s\n"
        if now - self._moved < _SILENCE_S:
            self._next = self._moved + _SILENCE_S
            if not self._begun:
                self._next = min(self._next, max(self._moved, self._asked) + _QUEUED_S)
            return ""
        self._shown = True
        return f"running for {now - self._started:.0f} s\n"

    def _ask(self, now):
        waited, self._asked = bool(self._waiting), now
        self._waiting = self._waits_for()
        if not self._waiting:
            self._begun = True
            if waited:
                self._started = self._moved = now

    def last_line(self):
        """The time that it took, if the line was ever shown."""
        return f"ran for {time.monotonic() - self._started:.1f} s\n" if self._shown else ""
