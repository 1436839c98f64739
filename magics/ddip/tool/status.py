"""ddip status."""

from __future__ import annotations

from ddip.mounts import files
from ddip.tool.call import OK, put_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddip.tool.call import Tool


def status(tool: Tool, words: Sequence[str]) -> int:
    """The state of the group and of each rank."""
    if words:
        raise tool.misuse()
    tool.show(f"cat {tool.path('status')} {tool.path('ranks')}")
    for name in ("status", "ranks"):
        put_out(files.read(tool.path(name)))
    return OK
