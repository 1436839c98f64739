"""Makes the exception for a failed cell from its report, its `error` file and its messages."""

from __future__ import annotations

import json
import os

from ddip import ranks as rank_lists
from ddip.cells.catch_up import hint
from ddip.cells.cell import named
from ddip.errors import DipError, RemoteError, RemoteInterrupt
from ddip.mounts import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from ddip.cells.cell import Cell
    from ddip.groups import Group


_LINE = 120  # characters, at most, of what a collective has raised because a rank had died
_HEADING = "\x1b[1m%s:\x1b[0m"


def failure(
    cell: Cell,
    errors: Mapping[int, dict[str, Any]],
    end: Mapping[str, Any],
    told: Collection[int] = (),
) -> DipError | RemoteInterrupt:
    """The exception for a failed cell. errors: rank -> its `error` message. end: from follow().
    told: ranks whose traceback is shown already, as in a tab."""
    if end["state"] == "cancelled":
        return DipError(f"cell {cell.number} did not run: {_reason(cell)}")
    parts = {rank: (m["ename"], m["evalue"], m["traceback"]) for rank, m in errors.items()}
    freed = {rank: (m["freed"], "") for rank, m in errors.items() if "freed" in m}
    for row in json.loads(cell.read("error.json")):
        rank, text = row["rank"], row["text"]
        if rank is not None and rank not in parts and text:
            ename, _, evalue = text.partition(": ")
            # otherwise the daemon's text about a rank that died
            known = ename.replace(".", "_").isidentifier()
            parts[rank] = (ename if known else "RankError", evalue if known else text, [text])
    report = json.loads(cell.read("report.json"))
    first = report.get("rank") if report.get("rank") in parts else min(parts, default=None)
    if first is None:
        text = f"cell {cell.number}: {_reason(cell) or end['state']}{_in_front(cell)}"
        if end["interrupts"] or end["state"] == "interrupted":
            return RemoteInterrupt(text, [text])
        return DipError(text)
    dead = parts.keys() - errors.keys()
    if first in dead:  # what the collectives of the others have raised follows from that
        for rank, m in errors.items():
            if "within" in m:
                freed[rank] = m["within"], _short(f"{m['ename']}: {m['evalue']}")
    lines = _lines(parts, first, freed, told)
    lacking = [rank for rank, (name, _, _) in sorted(parts.items()) if name == "NameError"]
    if (use := hint(cell.group, [*lacking, *sorted(dead)])) is not None:
        lines.append(use)
    ename, evalue, _ = parts[first]
    interrupted = end["state"] == "interrupted" and ename != "Preempted"
    if interrupted or (end["interrupts"] and ename == "KeyboardInterrupt"):
        return RemoteInterrupt(evalue, lines)
    return RemoteError(ename, evalue, sorted(parts), lines, first)


def _short(text):
    line = text.partition("\n")[0]
    return line if len(line) <= _LINE else line[:_LINE] + "…"


def _reason(cell):
    """Why the cell failed; "" if unknown."""
    return json.loads(cell.read("report.json")).get("error", "")


def _in_front(cell):
    """What goes on where an interrupted cell was queued, and how to end that; or ""."""
    if not cell.front:
        return ""
    names = " and ".join(map(named, cell.front))
    ends = [task["id"] for task in cell.front if task["id"].isdecimal()]
    how = f" ({command_to_end(cell.group, ends[0])} ends it)" if ends else ""
    return f"; {names} goes on{how}"


def command_to_end(group: Group, number: int | str) -> str:
    """What a shell runs to interrupt this cell: a socket has no files that a shell can write."""
    place, name = os.path.split(group.path)
    if files.learn(place):
        return f"ddip -m {place} -g {name} interrupt {number}"
    return f"echo interrupt > {group.path}/cells/{number}/ctl"


def _lines(parts, first, freed, told):
    """Tracebacks, each below a line with its ranks; equal ones once, the first failure's last. Of
    ranks that are told, what was raised, in a line. Then a line for the ranks that were freed, or
    whose collective failed for that, which tells where they were, but for those that are told."""
    found, places = {}, {}
    for rank, (ename, evalue, traceback) in sorted(parts.items()):
        if rank in freed and first not in freed:
            if rank not in told:
                places.setdefault(freed[rank], []).append(rank)
        else:
            text = None if rank in told else "\n".join(traceback)
            found.setdefault((ename, evalue, text), []).append(rank)
    lines = []
    for (ename, evalue, text), ranks in sorted(found.items(), key=lambda item: first in item[1]):
        heading = _HEADING % rank_lists.name(ranks)
        if text is None:
            lines.append(f"{heading} {ename}: {evalue}".removesuffix(": ").partition("\n")[0])
        else:
            lines += [text] if text.startswith(rank_lists.name(ranks)) else [heading, text]
    lines += [rank_lists.freed(ranks, *place) for place, ranks in places.items()]
    return lines
