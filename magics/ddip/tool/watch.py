"""ddip watch: stops the running cell at the first step at which an expression is true."""

from __future__ import annotations

import shlex

from ddip.cells import cell as cells
from ddip.tool.call import OK, Options, complain, put_out, say, status_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddip.tool.call import Tool


def watch(tool: Tool, words: Sequence[str]) -> int:
    """Prints where it has stopped, and keeps it there until Ctrl-C; -k: leaves it there."""
    options = Options(tool, words, {"k": "keep"}, {})
    if len(options.rest) != 1:
        raise tool.misuse()
    source, keeps = options.rest[0], options.has("keep")
    tool.show(f"exec 3<>{tool.path('watch')}; echo {shlex.quote(source)} >&3; cat <&3")
    with cells.watched(tool.group, source + "\n", keeps) as (cell, news):
        cancel = f"ddip cancel {cell.number}"
        try:
            for line in news:
                put_out(f"{line}\n".encode())
        except KeyboardInterrupt:
            if keeps:
                say(f"it goes on watching: {cancel} ends that")
            raise
        if cell.has_ended(0) and "step" not in cell.status():
            complain(cell.read("error"))
            return status_of(cell.status()["state"])
        look = "look: ddip stack, ddip steer -a CODE, files rankK/locals"
        put_out(f"{look}; go on: {cancel if keeps else 'Ctrl-C'}\n".encode())
        if not keeps:
            try:
                cell.has_ended()
            except KeyboardInterrupt:
                put_out(b"\n")
    return OK
