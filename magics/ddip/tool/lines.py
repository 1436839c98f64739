"""The lines of several ranks, each with its rank in front: no line has text of two of them."""

from __future__ import annotations

import math
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    _At: TypeAlias = tuple[int, int]  # descriptor, rank

_HELD_S = 1.0  # an incomplete line is held back for this long


class Lines:
    """Writes whole lines as they come.

    An incomplete line is held back until the rest of it has come. It is shown without that if the
    rest takes long, and the next text completes it or begins another line.
    """

    def __init__(self, write: Callable[[int, str], object]) -> None:
        """write(fd, text) writes to a descriptor."""
        self._write = write
        self._open: _At | None = None  # of the incomplete line that was written last
        self._held: dict[_At, tuple[float, str]] = {}  # since when; the incomplete line

    def take(self, fd: int, rank: int, text: str) -> None:
        """Takes the next text of one of a rank's streams."""
        at = fd, rank
        if at == self._open:
            rest, newline, text = text.partition("\n")
            self._write(fd, rest + newline)
            if not newline:
                return
            self._open = None
        since, begin = self._held.pop(at, (time.monotonic(), ""))
        *lines, last = (begin + text).split("\n")
        if lines:
            self._end_line()
            self._write(fd, "".join(f"{rank}: {line}\n" for line in lines))
            since = time.monotonic()
        if last:
            self._held[at] = since, last

    def patience(self) -> int | None:
        """The milliseconds after which a line has been held for too long; None: there is none."""
        if not self._held:
            return None
        oldest = min(since for since, _ in self._held.values())
        return max(0, math.ceil((oldest + _HELD_S - time.monotonic()) * 1000))

    def show_late(self) -> None:
        """Shows the lines that have been held for too long."""
        late = time.monotonic() - _HELD_S
        for at in [at for at, (since, _) in self._held.items() if since <= late]:
            self._show(at)

    def show(self, rank: int | None = None) -> None:
        """Shows all that is held of one rank, or of all."""
        for at in [at for at in self._held if rank is None or rank == at[1]]:
            self._show(at)

    def _show(self, at: _At) -> None:
        fd, rank = at
        self._end_line()
        self._write(fd, f"{rank}: {self._held.pop(at)[1]}")
        self._open = at

    def _end_line(self) -> None:
        if self._open:
            self._write(self._open[0], "\n")
            self._open = None
