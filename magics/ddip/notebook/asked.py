"""What VS Code asks about variables, in the kernel "DDP (ddipfs)": a rank's are what it shows.

Its panel of variables and its data viewer send code that the user does not see: it defines a
function, calls it, prints its result as JSON, and removes it. What is known of the variables
without the rank is answered at once; other code runs on the rank, as a cell that is not shown.
"""

from __future__ import annotations

import json
import re

from ddip.cells import cell as cells
from ddip.cells.failures import failure
from ddip.errors import DipError
from ddip.shown.sink import Sink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.groups import Group


ASKS = re.compile(r"\b_VSCODE_get[A-Z]\w*\(")  # code that calls one of the editor's functions
_MARK = "# asked by an editor"  # the first line of such a cell
_TYPES = re.compile(r'^_VSCODE_getVariable\("types", False, ', re.M)
_INFO = re.compile(r'^_VSCODE_getVariable\("info", False, ([^\W\d]\w*)\)', re.M)
# Its results may come from a thread, which the request does not wait for.
_JOIN = (
    "_VSCODE_ended = [each.join(10) for each in __import__('threading').enumerate()"
    " if each.name.endswith('(bg_main)')]\ndel _VSCODE_ended"
)


def tell(shell: InteractiveShell, group: Group | None, rank: int, code: str) -> None:
    """Answers such code for the variables of a rank. group: None if it has just gone.

    Raises DipError if the rank runs something else, RemoteError if the code fails there.
    """
    table = {} if group is None else group.table()
    info = _INFO.search(code)
    if _TYPES.search(code):
        print(json.dumps({name: facts["type"] for name, facts in table.items()}))
        return
    is_idle = group is not None and group.status().get("state") == "idle"
    if info is not None and (facts := table.get(info[1])) is not None:
        if facts["shape"] != "-" or not is_idle:
            print(json.dumps(_described(facts)))
            return
    if group is None or not is_idle:
        raise DipError(f"rank {rank} is not ready to tell its variables")
    _ask(shell, group, rank, code)


def _described(facts):
    """Type, shape and length of a variable, as the editor has them."""
    sizes = [int(size) for size in facts["shape"].split(",") if size.isdigit()]
    shape = str(tuple(sizes)) if sizes else ""
    return {"type": facts["type"], "shape": shape, "count": sizes[0] if sizes else 0}


def _ask(shell: InteractiveShell, group: Group, rank: int, code: str) -> None:
    """Runs code on a rank and passes on what it prints and displays."""
    sink = Sink(shell)
    errors: dict[int, dict[str, Any]] = {}

    def take(messages: list[dict[str, Any]]) -> None:
        for message in messages:
            kind = message["type"]
            if kind == "stream" and message["name"] == "stdout":  # a warning is no answer
                sink.write("stdout", message["text"])
            elif kind in ("display_data", "update_display_data"):
                data, metadata = message["data"], message.get("metadata")
                update = kind != "display_data"
                sink.display(data, metadata, message.get("transient"), update)
            elif kind == "error":
                errors[message["rank"]] = message

    source = f"{_MARK}\n{code}\n{_JOIN}\n"
    with cells.Interrupts() as interrupts, cells.submitted(group, source, str(rank)) as cell:
        end = cells.follow(cell, take, interrupts=interrupts)
    sink.flush()
    if end["state"] != "ok":
        raise failure(cell, errors, end)


def last_cell(group: Group) -> int:
    """The number of the last cell that an editor has not asked for; 0: there is none."""
    number = int(group.status().get("cell", "0"))
    while number:
        try:
            if not cells.Cell(group, number).read("source").startswith(_MARK):
                break
        except OSError:  # it is no longer in the history
            break
        number -= 1
    return number
