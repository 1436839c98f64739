"""The numbers that this notebook's prompts give to cells, for their tracebacks.

Ranks name the code of a cell after its number in the group, which counts the cells of all who use
it. Front ends link `Cell In[5]` to the cell with that number in the notebook.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.cells.cell import Cell

_CELLS_MAX = 10_000
_COLOUR = r"(?:\x1b\[[0-9;]*m)*"
_PLACE = re.compile(rf"(Cell{_COLOUR} {_COLOUR})In\[(\d+)\]")

# (path of a group, number of a cell there) -> its number here
_here: dict[tuple[str, int], int] = {}


def remember(shell: InteractiveShell | None, cell: Cell) -> None:
    """This cell is what the shell runs now, if it runs a cell that has a number."""
    result: Any = getattr(getattr(shell, "displayhook", None), "exec_result", None)
    number = getattr(result, "execution_count", None)
    if number is None or not result.info.store_history:
        return
    _here[cell.group.path, cell.number] = number
    if len(_here) > _CELLS_MAX:
        del _here[next(iter(_here))]


def translated(
    shell: InteractiveShell | None, cell: Cell, messages: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The messages, with the notebook's numbers in tracebacks. A cell that others have submitted is
    said to be the group's."""
    if shell is None:
        return messages
    return [
        {**m, "traceback": [_text(cell.group.path, text) for text in m["traceback"]]}
        if m["type"] == "error"
        else m
        for m in messages
    ]


def _text(path, text):
    def place(found):
        number = _here.get((path, int(found[2])))
        return f"{found[1]}In[{number}]" if number else f"{found[1]}{found[2]} of the group"

    return _PLACE.sub(place, text)
