"""What each rank does in a cell, and how its part has ended: for its tab."""

from __future__ import annotations

import json

from ddip.cells import numbers
from ddip.shown import tabs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from ddip.cells.cell import Cell


class Doing:
    """See tabs.Doing. ranks: those that are asked about."""

    def __init__(self, cell: Cell, ranks: Collection[int]) -> None:
        self._cell = cell
        self._ranks = ranks
        self._done: set[int] = set()  # ranks whose part has ended without an error

    def now(self, asks: bool) -> tuple[dict[int, str], list[int]] | None:
        """See tabs.Doing."""
        cell, stall = self._cell, None
        try:
            rows = cell.group.ranks()
            if cell.status().get("state") == "queued":
                return {}, []
            if asks:
                stall = json.loads(cell.group.read("stall.json"))
        except OSError:  # the group is gone
            return None
        awaited = cell.judged(stall).get("ranks", []) if stall else []
        places = {place["rank"]: place for place in stall["ranks"]} if stall else {}
        found = {}
        for rank in self._ranks:
            row = rows[rank] if rank < len(rows) else {"state": "gone"}
            if row["state"] == "busy" and row.get("cell") == str(cell.number):
                found[rank] = _place(cell, places.get(rank), rank in awaited)
            elif row["state"] not in ("busy", "idle"):
                found[rank] = row["state"]
            elif self._is_done(rank):
                found[rank] = tabs.DONE
        return found, awaited

    def ended(self) -> tuple[str, dict[int, tuple[str, str]], int | None]:
        """See tabs.Doing."""
        cell, errors, first = self._cell, [], None
        try:
            state = cell.status().get("state", "")
            if state not in ("queued", "running", "ok"):
                errors = json.loads(cell.read("error.json"))
                first = json.loads(cell.read("report.json")).get("rank")
        except OSError:
            return "", {}, None
        own = (row for row in errors if row["rank"] is not None)
        return state, {row["rank"]: (row["errno"], row["text"]) for row in own}, first

    def _is_done(self, rank):
        """A rank that runs something else or nothing: has it run its part of the cell?"""
        if rank not in self._done:
            try:
                status = self._cell.read(f"rank{rank}/status")
            except OSError:
                return False
            if "state ok" in status.splitlines():
                self._done.add(rank)
        return rank in self._done


def _place(cell: Cell, place: dict[str, Any] | None, is_awaited: bool) -> str:
    """Where a rank is that runs a cell, in a word or two. place: of `stall`; None: not known."""
    if place is None or place["cell"] != cell.number:
        return tabs.RUNS
    where = f"in {place['in']}" if place["in"] else ""
    if not is_awaited:
        return where or tabs.RUNS
    where = where or numbers.placed(cell, place["at"] or "")
    return f"{tabs.AWAITED} {where}".rstrip()
