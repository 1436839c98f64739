"""Lists of ranks as people write them: `0,2-3`, the grammar of the mount's `cell.0,2-3`.

Python slices such as `::2` or `[0:4:2]` are accepted too, as in the targets of ipyparallel.
"""

from __future__ import annotations

import re

from ddip.errors import DipError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


TABS = "tabs"  # for `-S`, alone: all ranks, each in a tab
WORD = re.compile(r"[0-9,:[\]-]*[0-9:][0-9,:[\]-]*|all")  # a word that may be part of a list
_SLICE = re.compile(r"([0-9]*):([0-9]*)(?::([0-9]*))?")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def parse(words: Iterable[str | int], size: int) -> list[int]:
    """The ranks of a list, sorted. Its words are joined by commas: 0 2-3 is 0,2-3. `all`: all.

    size: the number of ranks. Raises DipError, which says what would be right.
    """
    text = ",".join(str(word).strip(",[]") for word in words)
    if text == "all":
        return list(range(size))
    found: set[int] = set()
    for item in text.split(","):
        slice_ = _SLICE.fullmatch(item.strip())
        if slice_ and slice_[3] != "0":
            parts = (int(part) if part else None for part in slice_.groups())
            found.update(range(size)[slice(*parts)])
            continue
        range_ = _RANGE.fullmatch(item.strip())
        first, last = range_.groups() if range_ else (None, None)
        if first is None or int(last or first) < int(first):
            raise DipError(f"ranks: want e.g. 0,2-3 or 0 2-3 or all, not '{text}'")
        if int(last or first) >= size:
            raise DipError(f"rank {last or first}: the group has ranks 0..{size - 1}")
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def spell(ranks: Iterable[int]) -> str:
    """The text for a list of ranks, such as `0-3,5`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def name(ranks: Collection[int]) -> str:
    """`rank 1`, or `ranks 0,2-3`."""
    return f"rank{'s' * (len(ranks) > 1)} {spell(ranks)}"


def freed(ranks: Collection[int], place: str, raised: str = "") -> str:
    """Where ranks were that were freed after the failure of another, or whose collective has raised
    an exception for it. place: of their messages."""
    verb = "was" if len(ranks) == 1 else "were"
    where = f"in {place}" if "()" in place else f"at {place}"
    end = f"which raised {raised}" if raised else f"and {verb} freed"
    return f"{name(ranks)} {verb} {where}, {end}"
