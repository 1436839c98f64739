"""ddip status."""

from ddip.mounts import files
from tool import OK, put_out


def status(tool, words):
    """The state of the group and of each rank."""
    if words:
        raise tool.misuse()
    tool.show(f"cat {tool.path('status')} {tool.path('ranks')}")
    for name in ("status", "ranks"):
        put_out(files.read(tool.path(name)))
    return OK
