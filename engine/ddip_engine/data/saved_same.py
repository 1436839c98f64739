"""Which names of a saved group have the same value on all its ranks, so that they can be loaded by
another number of ranks."""

from __future__ import annotations

from ddip_engine.data import clone_load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_CHUNK = 1 << 20
_MISSING = object()


def differing(files: Iterable[memoryview]) -> tuple[dict[str, str], dict[str, str]]:
    """{name: reason} of the names of rank 0 that are not the same on all ranks, and of those which
    it lacks; the same of its random generators. files: the bytes of each rank."""
    first, *others = map(_Names, files)
    text = f"it is sharded over the ranks: load it in a group of {1 + len(others)} ranks"
    names = {name: text for each in (first, *others) for name in each.sharded}
    generators: dict[str, str] = {}
    for rank, other in enumerate(others, 1):
        for name in first.texts:
            if name not in names and not first.equals(other, name):
                differs = f"it differs on ranks 0 and {rank}"
                names[name] = differs if name in other.texts else f"rank {rank} lacks it"
        for name in other.texts:
            if name not in first.texts:
                names.setdefault(name, "rank 0 lacks it")
        for kind, states in first.random.items():
            if other.random.get(kind, _MISSING) != states:
                generators.setdefault(kind, f"it differs on ranks 0 and {rank}")
    for name, owners in first.owners.items():  # in the order in which they were pickled
        for owner in owners:
            if owner in names:
                names.setdefault(name, f"it shares an object with {owner}")
    return names, generators


class _Names:
    """The names of a rank."""

    def __init__(self, data: memoryview) -> None:
        head, pickles, self.buffers = clone_load.split(data)
        self.random, self.sharded = head["random"], head["sharded"]
        # name -> its pickle, as text that does not depend on the others
        self.texts: dict[str, str] = {}
        self.owners: dict[str, dict[str, None]] = {}  # name -> the names that have objects of it
        # name -> the first of its buffers, the one after the last
        self.spans: dict[str, tuple[int, int]] = {}
        # for each object of the memo: its name, its text if that is all of it
        self.made: list[tuple[str, str | None]] = []
        ends = [*[first for *_, first in head["names"]][1:], len(self.buffers)]
        at = 0
        for (name, size, _, first), end in zip(head["names"], ends, strict=True):
            self.owners[name], self.spans[name] = {}, (first, end)
            self.texts[name] = "\n".join(self._lines(name, pickles[at : at + size]))
            at += size

    def _lines(self, name: str, pickled: memoryview) -> list[str]:
        """The operations, where references to objects do not depend on what is before this name."""
        begin = len(self.made)
        last: str | None = None
        lines: list[str] = []
        for op, arg in clone_load.ops(pickled):
            if op in clone_load.MEMOIZES:
                self.made.append((name, last))
                continue
            if op in ("FRAME", "PROTO"):
                continue
            line = f"{op} {arg!r}"
            if op in clone_load.FROM_MEMO:
                owner, last = self.made[arg]
                line = last or f"GET {arg - begin}"
                if last is None and arg < begin:
                    self.owners[name][owner] = None
                    line = f"GET {arg - self._first(owner)} of {owner}"
            elif op == "STACK_GLOBAL":
                line = last = f"GLOBAL {lines[-2:]}"
                del lines[-2:]
            else:
                last = line if type(arg) in (str, bytes) else None
            lines.append(line)
        return lines

    def _first(self, owner: str) -> int:
        return next(i for i, (name, _) in enumerate(self.made) if name == owner)

    def equals(self, other: _Names, name: str) -> bool:
        if self.texts[name] != other.texts.get(name):
            return False
        mine, its = (each.buffers[slice(*each.spans[name])] for each in (self, other))
        return len(mine) == len(its) and all(map(_equal, mine, its))


def _equal(one: memoryview, other: memoryview) -> bool:
    if len(one) != len(other):
        return False
    for at in range(0, len(one), _CHUNK):
        if bytes(one[at : at + _CHUNK]) != bytes(other[at : at + _CHUNK]):
            return False
    return True
