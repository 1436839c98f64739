"""What all ranks of a group do, as lines of text: for `ddip top`, and for `%dip --top`."""

from __future__ import annotations

import collections
import json
import os
import time

from ddip.mounts import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ddip.groups import Group


_COLUMNS = (  # (head, format)
    ("RANK", ">4"), ("STATE", "<11"), ("CELL", ">5"), ("PID", ">7"), ("HOST", "<12.12"),
    ("GPU", ">3"), ("MEMORY", ">9"), ("STEPS/S", ">7"), (" WAITS IN", ""),
)  # fmt: skip
_SPEED_S = 5  # steps per second are measured over this long
_FRESH_S = 1.0  # maximum age of what changes without `status`, such as memory and GPUs
_UNITS = ((30, "GiB"), (20, "MiB"), (10, "KiB"))

TITLE, ALARM, HEAD, PLAIN, CHOSEN, DIM = range(6)


def size_text(count: int) -> str:
    """A number of bytes for people to read."""
    for bits, unit in _UNITS:
        if count >= 1 << bits:
            return f"{count / (1 << bits):.1f} {unit}"
    return f"{count} B"


class Overview:
    """The contents of a group's files as lines of text, and how they change between looks."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.ranks: list[dict[str, str]] = []
        self._status: dict[str, str] = {}
        self._gpus: list[str] = []
        self._verdict = ""
        self._places: dict[int, dict[str, Any]] = {}  # rank -> what `stall` says about it
        # rank -> (time, cell, steps)
        self._steps: dict[int, collections.deque[tuple[float, int | None, int]]]
        self._steps = collections.defaultdict(collections.deque)
        self._changed = self._read = 0.0  # when `status` changed; when all was read

    def look(self) -> bool:
        """Reads what may have changed. False: nothing has. Raises OSError if the group is gone."""
        now = time.monotonic()
        changed = files.attributes(os.path.join(self.group.path, "status"))[2]
        if changed != self._changed or now - self._read >= _FRESH_S:
            self._changed, self._read = changed, now
            self._status = self.group.status()
            self.ranks = self.group.ranks()
            self._gpus = self.group.read("gpus").splitlines()
        elif self._status.get("state") == "idle":
            return False
        self._look_at_places(now)
        return True

    def _look_at_places(self, now):
        stall = json.loads(self.group.read("stall.json"))
        self._verdict = stall["verdicts"][0]["text"] if stall["verdicts"] else ""
        self._places = {row["rank"]: row for row in stall["ranks"]}
        for rank in range(len(self.ranks)):
            self._count(rank, now)

    def _count(self, rank, now):
        """Records how far a rank is in its cell: how often its optimizers have stepped."""
        steps, place = self._steps[rank], self._places.get(rank, {})
        at = (now, place.get("cell"), place.get("steps", 0))
        if steps and (steps[-1][1] != at[1] or steps[-1][2] > at[2]):
            steps.clear()
        steps.append(at)
        while now - steps[0][0] > _SPEED_S and len(steps) > 2:
            steps.popleft()

    def _speed(self, rank):
        """Steps of optimizers per second; "-" if there is none."""
        steps = self._steps[rank]
        if len(steps) < 2 or steps[-1][2] == 0:
            return "-"
        return f"{(steps[-1][2] - steps[0][2]) / (steps[-1][0] - steps[0][0]):.1f}"

    def lines(self, chosen: int | None, narrow: bool = False) -> Iterator[tuple[int, str]]:
        """Yields (style, text) for each line. chosen: the rank whose line has another style.
        narrow: without the columns that are empty for all ranks."""
        status = self._status
        title = f"{os.path.basename(self.group.path)}: {status.get('state', '-')}"
        title += f", cell {status.get('cell', '-')}, queued {status.get('queued', '-')}"
        title += f", last {status.get('last', '-')}, generation {status.get('generation', '-')}"
        yield TITLE, title
        if self._verdict:
            yield ALARM, self._verdict
        table = [[head for head, _ in _COLUMNS]]
        table += (self._row(rank, row) for rank, row in enumerate(self.ranks))
        shown = [
            (i, form)
            for i, (_, form) in enumerate(_COLUMNS)
            if not narrow or any(cells[i].strip() != "-" for cells in table[1:])
        ]
        for rank, cells in enumerate(table, -1):
            style = HEAD if rank < 0 else CHOSEN if rank == chosen else PLAIN
            yield style, " ".join(f"{cells[i]:{form}}" for i, form in shown).rstrip()
        has_gpus = any(row.get("gpu", "-") != "-" for row in self.ranks)
        for line in self._gpus:
            if has_gpus or not line.startswith("#"):  # why no GPU is known
                yield DIM, line

    def _row(self, rank, row):
        """The cells of a rank's line."""
        place = self._places.get(rank, {})
        memory = size_text(int(row["rss_bytes"])) if row.get("rss_bytes", "").isdigit() else "-"
        where = place.get("in") or "-"
        if where != "-":
            where += f" {place.get('number', '')} for {place.get('for', '?')} s"
        if at := place.get("at"):
            where += f"  {at}"
        names = "state", "cell", "pid", "host", "gpu"
        own = [row.get(name, "-") for name in names]
        return [str(rank), *own, memory, self._speed(rank), f" {where}"]
