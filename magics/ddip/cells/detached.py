"""A cell that runs in the background: what `%%dip --noblock` returns."""

from __future__ import annotations

import contextlib

from ddip import ranks as rank_lists
from ddip.cells import cell as cells
from ddip.cells.failures import failure
from ddip.errors import DipError
from ddip.shown import results

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.cells.cell import Cell


class DetachedCell:
    """A submitted cell. The mount keeps its output, and show() shows it, by replay() of run.py.

    Raises DipError once it has left the group's history, or the group is gone.
    """

    def __init__(
        self,
        shell: InteractiveShell | None,
        cell: Cell,
        seen: Collection[int],
        replay: Callable[..., object],
    ) -> None:
        self._shell = shell
        self._cell = cell
        self._seen = seen
        self._replay = replay
        self.number = cell.number

    def __repr__(self) -> str:
        try:
            state = self.state
        except DipError:
            state = "gone"
        return f"<cell {self.number} of {self._cell.group.path}: {state}>"

    @property
    def state(self) -> str:
        """queued, running, ok, failed …, as in cells/N/status."""
        with cells.losses_told(self._cell):
            return self._cell.status()["state"]

    def done(self) -> bool:
        """True if it has ended."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits up to timeout seconds (None: forever) for its end. Returns True if it has ended."""
        with cells.losses_told(self._cell):
            return self._cell.has_ended(None if timeout is None else timeout * 1000)

    def result(self, timeout: float | None = None) -> Any:
        """Its result: the value if one rank shows a result, {rank: value} if several do.

        Waits for its end. Raises the cell's failure, or TimeoutError after timeout seconds.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"cell {self.number} has not ended within {timeout:g} s")
        errors, shown = {}, []

        def take(messages):
            for message in messages:
                if message["type"] == "error":
                    errors[message["rank"]] = message
                elif message["type"] == "execute_result" and message["rank"] in self._seen:
                    shown.append((message["rank"], message))

        end = cells.follow(self._cell, take, seen=set(), attached=True)
        results.remember(self.number, shown)
        if end["state"] != "ok":
            raise failure(self._cell, errors, end)
        return results.values(shown)

    def show(self) -> None:
        """Shows its output as `%dip --replay` does; follows it while it runs."""
        self._replay(self._shell, self._cell.group, self.number, [rank_lists.spell(self._seen)])

    def interrupt(self) -> None:
        """Interrupts only this cell; drops it if it is queued; no effect if it has ended."""
        with contextlib.suppress(FileNotFoundError):  # it has left the history, too
            self._cell.interrupt()
