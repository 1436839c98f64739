"""The results of cells in the notebook: `ddip.Out[n]` where `Out[rank:n]` was shown.

The objects are neither sent to the notebook nor kept on the ranks; the notebook has what was shown
of them. If that is a Python literal (a number, a string, a list of them …), it becomes the value.
"""

from __future__ import annotations

import ast

from ddip import patches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ddip.cells.cell import Cell


_LITERAL_CHARS = 100_000  # a longer text is not turned into a value
_ELIDED = "..."  # stands for what was not shown


_ONLY_SHOWN = "this is the text that a rank has shown of its value"
_WAY = "set a variable there, and %dipull brings the object"


class Shown:
    """A result that is not a literal; it displays as it did in the cell."""

    def __init__(self, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        self.data = data
        self.metadata = metadata

    def __repr__(self) -> str:
        return self.data.get("text/plain", "")

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.data, self.metadata

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what libraries try
            raise AttributeError(name)
        raise AttributeError(f"{_ONLY_SHOWN}, which has no {name}: {_WAY}")

    def _refuse(self, *args):
        raise TypeError(f"{_ONLY_SHOWN}: {_WAY}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __getitem__ = __float__ = __neg__ = __matmul__ = __call__ = _refuse


Out: dict[int, Any] = {}  # number of a cell -> what values() gives for it


def value(message: dict[str, Any]) -> Any:
    """The value that an execute_result message shows; a Shown if it is not a literal."""
    data = message["data"]
    found = literal(data.get("text/plain", "")) if data.keys() <= {"text/plain"} else None
    return found[0] if found else Shown(data, message.get("metadata") or {})


def literal(text: str) -> list[Any]:
    """[the value] of a Python literal; [] for other text."""
    if len(text) <= _LITERAL_CHARS and _ELIDED not in text:
        try:
            return [patches.quietly(ast.literal_eval, text)]
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    return []


def of_rank(cell: Cell, rank: int) -> Any:
    """The value of a cell on a rank, shown or not; None if it has none there."""
    try:
        text = cell.read(f"rank{rank}/result").removesuffix("\n")
    except FileNotFoundError:
        return None
    if not text:
        return None
    found = literal(text)
    return found[0] if found else Shown({"text/plain": text}, {})


def values(shown: Sequence[tuple[int, dict[str, Any]]]) -> Any:
    """One value for [(rank, message)]: that of the only rank, {rank: value}, or None if empty."""
    found = {rank: value(message) for rank, message in sorted(shown, key=lambda item: item[0])}
    if len(found) > 1:
        return found
    return next(iter(found.values()), None)


def remember(number: int, shown: Sequence[tuple[int, dict[str, Any]]]) -> None:
    """Stores the results in `ddip.Out[number]`. The notebook's own `Out` has its own numbers."""
    if shown:
        Out[number] = values(shown)
