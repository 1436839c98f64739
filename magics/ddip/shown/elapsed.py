"""The line under a cell without output: how long it has been running, which rank waits for which,
or what a queued cell is waiting for; and a failure, until the other ranks have ended, too."""

from __future__ import annotations

import math
import time

from ddip import ranks as rank_lists

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_SILENCE_S = 3.0  # the line is shown after this long without output
_QUEUED_S = 1.0  # a queued cell shows its line sooner
_ENDS_S = 0.3  # a failure is shown if the cell has not ended after this long: its end shows it
_HINT_S = 10.0  # a hang that lasts longer says how to end it
_LOOK_S = 3.0  # between looks at who waits for whom, each of which asks all ranks


class Elapsed:
    """waits_for(): returns what a queued cell is waiting for, as text; "" once it runs. verdict():
    which rank of a running cell waits for which; "" if that is not certain. goes_on(): the ranks
    that still run it, and the seconds that a failure gives them (None: no limit); failed() needs
    it."""

    def __init__(
        self,
        waits_for: Callable[[], str],
        verdict: Callable[[], str],
        goes_on: Callable[[], tuple[list[int], float | None]] | None = None,
    ) -> None:
        self._waits_for = waits_for
        self._verdict = verdict
        self._goes_on = goes_on
        # rank -> its `error` message, in the order of arrival
        self._failures: dict[int, dict[str, Any]] = {}
        self._failed = 0.0  # when the first one came
        self._stuck, self._look = "", 0.0  # the last verdict; when to ask for the next one
        self._seen_s = 0.0  # seconds of running until the last verdict
        self._waiting = ""
        self._begun = False  # it runs: waits_for() need not be called again
        self._asked = 0.0
        self._shown = False
        self._started = self._moved = time.monotonic()
        self._next = self._moved + _QUEUED_S  # when line() may change

    def moved(self) -> None:
        """Records that output was shown, which means that the cell runs."""
        self._moved = time.monotonic()
        self._begun, self._waiting = True, ""
        self._stuck, self._look = "", 0.0
        if not self._failures:
            self._next = self._moved + _SILENCE_S

    def failed(self, message: dict[str, Any]) -> None:
        """Records the `error` message of a rank."""
        if not self._failures:
            self._failed = time.monotonic()
            self._next = self._failed + _ENDS_S
        self._failures.setdefault(message["rank"], message)

    def patience(self) -> float:
        """Seconds until line() may change."""
        return max(0.0, self._next - time.monotonic())

    def line(self) -> str:
        """The current line, with its newline; "" if none is due."""
        now = time.monotonic()
        if self._failures:
            return self._failure(now)
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
        if now >= self._look:
            self._stuck, self._look = self._verdict(), time.monotonic() + _LOOK_S
            self._seen_s = now - self._started
        seconds = now - self._started
        text = f"running for {seconds:.0f} s"
        if not self._stuck:
            return f"{text}\n"
        hint = "; an interrupt ends it, and variables stay" if seconds >= _HINT_S else ""
        return f"{self._stuck} ({text}{hint})\n"

    def _failure(self, now):
        """The traceback of the first failure, and what the other ranks do."""
        self._next = now + 1.0
        if now < self._failed + _ENDS_S:
            self._next = self._failed + _ENDS_S
            return ""
        own = {k: m for k, m in self._failures.items() if "freed" not in m}
        if not own:  # they were freed because a rank has died: the cell ends
            return ""
        failed = {k: m for k, m in own.items() if m["ename"] != "KeyboardInterrupt"}
        message = next(iter((failed or own).values()))
        text = f"{message['ename']}: {message['evalue']}".partition("\n")[0]
        line = f"{rank_lists.name(failed)} failed: {text}"
        if not failed:
            line = f"{rank_lists.name(own)} {'was' if len(own) == 1 else 'were'} interrupted"
        ranks, grace = self._goes_on()
        if ranks := [rank for rank in ranks if rank not in self._failures]:
            left = None if grace is None else math.ceil(self._failed + grace - now)
            verb = "is" if len(ranks) == 1 else "are"
            words = f"{verb} given {left} s more" if left and left > 0 else f"{verb} being freed"
            words = words if left is not None else "go on" if len(ranks) > 1 else "goes on"
            line += f"; {rank_lists.name(ranks)} {words}"
        self._shown = True
        return "\n".join([*message["traceback"], line]) + "\n"

    def _ask(self, now):
        waited, self._asked = bool(self._waiting), now
        self._waiting = self._waits_for()
        if not self._waiting:
            self._begun = True
            if waited:
                self._started = self._moved = now

    def last_line(self, failed: bool = False) -> str:
        """The line with the total time, and for a cell that has failed the last verdict, which the
        end of the cell hides; "" if no running time was ever shown."""
        if not self._shown:
            return ""
        text = f"ran for {time.monotonic() - self._started:.1f} s"
        if failed and self._stuck:
            text += f"; seen after {self._seen_s:.0f} s: {self._stuck}"
        return f"{text}\n"
