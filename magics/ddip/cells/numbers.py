"""The numbers that this notebook's prompts give to cells, for tracebacks and places in them.

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
_LINE = re.compile(r"<cell (\d+)>:(\d+)")

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
    return [_translated(cell, m) if m["type"] == "error" else m for m in messages]


def _translated(cell, message):
    lines = [_text(cell.group.path, text) for text in message["traceback"]]
    places = {key: placed(cell, message[key]) for key in ("freed", "within") if key in message}
    return {**message, "traceback": lines, **places}


def placed(cell: Cell, text: str) -> str:
    """A text with `line 3` for a line of this cell, and `In[5], line 3` for one of another cell of
    this notebook, where the ranks say `<cell 6>:3`."""

    def place(found):
        number = _here.get((cell.group.path, int(found[1])))
        if int(found[1]) == cell.number:
            return f"line {found[2]}"
        return f"In[{number}], line {found[2]}" if number else found[0]

    return _LINE.sub(place, text)


def _text(path, text):
    def place(found):
        number = _here.get((path, int(found[2])))
        return f"{found[1]}In[{number}]" if number else f"{found[1]}{found[2]} of the group"

    return _PLACE.sub(place, text)
