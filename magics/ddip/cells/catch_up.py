"""Brings a rank that was replaced to where the others are: `%dip --catch-up RANK`."""

from __future__ import annotations

import re

from ddip.errors import DipError
from ddip.shown.overview import size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddip.groups import Group


_CLONED = re.compile(r" cloned rank=(\d+) from=(\d+) names=(\d+) failed=(\d+) bytes=(\d+)")


def catch_up(group: Group, rank: int) -> list[str]:
    """Copies to a rank what the first rank has that was not replaced. Returns what was copied, and
    what could not be, as lines. Raises DipError if nothing was."""
    rows = group.ranks()
    if rank >= len(rows):
        raise DipError(f"--catch-up {rank}: there are ranks 0-{len(rows) - 1}")
    whole = [k for k, row in enumerate(rows) if k != rank and not is_new(row)]
    if not whole:
        raise DipError(f"--catch-up {rank}: all other ranks are new, too")
    group.ctl(f"clone {whole[0]} {rank}")
    found = [m for m in _CLONED.finditer(group.read("events.last")) if int(m[1]) == rank]
    _, source, names, failed, size = map(int, found[-1].groups())
    lines = [f"rank {rank} has {names} names of rank {source}, {size_text(size)}"]
    if failed:
        told = [row for row in group.failures() if (row["rank"], row["what"]) == (rank, "clone")]
        lines += [row["text"] for row in told[-1:]]
    return lines


def is_new(row: Mapping[str, str]) -> bool:
    """Was this rank, a row of Group.ranks(), replaced, without another's variables since?"""
    return "new_since" in row


def hint(group: Group, ranks: Iterable[int]) -> str | None:
    """What to write if these ranks lack names because they are new; None: they are not."""
    try:
        rows = group.ranks()
    except OSError:  # the group is gone
        return None
    for rank in ranks:
        if rank < len(rows) and is_new(rows[rank]):
            since = rows[rank]["new_since"]
            use = f"%dip --catch-up {rank} copies what another rank has"
            return f"rank {rank} is new since cell {since}: {use}"
    return None
