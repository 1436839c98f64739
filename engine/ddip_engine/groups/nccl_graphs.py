"""The rings and trees that NCCL has chosen for a communicator.

NCCL writes them as XML to the file that NCCL_GRAPH_DUMP_FILE names. It reads the variable for each
communicator (ncclTopoDumpGraphs in its src/graph/search.cc), of which one rank writes: rank 0, or
NCCL_GRAPH_DUMP_FILE_RANK.
"""

from __future__ import annotations

import collections
import contextlib
import os
from xml.etree import ElementTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_VARIABLE = "NCCL_GRAPH_DUMP_FILE"
_NAMES: dict[str | None, str] = {
    "0": "ring",
    "1": "tree",
    "2": "CollNet chain",
    "3": "NVLS",
    "4": "CollNet direct",
}
_DEV_BITS = 56  # of a device's number; the bits above are the number of its host


@contextlib.contextmanager
def dumped() -> Iterator[Callable[[], list[str]]]:
    """Makes communicators that are created inside write their graphs; yields a function that
    returns told()."""
    fd = os.memfd_create("nccl-graphs")
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = f"/proc/self/fd/{fd}"
    try:
        yield lambda: told(os.pread(fd, os.fstat(fd).st_size, 0))
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
        os.close(fd)


def told(dump: bytes) -> list[str]:
    """The lines of text for the bytes of a dump; none if another rank has written it. For each
    graph: its links and their bandwidth per channel, then its channels, grouped by path."""
    if not dump:
        return []
    try:
        return list(_lines(ElementTree.fromstring(dump)))
    except (ElementTree.ParseError, TypeError, ValueError) as e:
        return [f"graphs: not read: {e}"]


def _lines(graphs: ElementTree.Element) -> Iterator[str]:
    for graph in graphs.findall("graph"):
        courses = collections.Counter(_course(channel) for channel in graph.findall("channel"))
        if courses:
            yield _links(graph, sum(courses.values()))
            yield from (f"  {count} x {course}" for course, count in courses.items())


def _links(graph: ElementTree.Element, channels: int) -> str:
    kind = graph.get("id")
    text = f"{_NAMES.get(kind, f'graph {kind}')}: {channels} channel{'s' * (channels != 1)}"
    text += f", {graph.get('typeintra')} {graph.get('speedintra')} GB/s"
    if graph.find("channel/net") is not None:
        text += f", between hosts {graph.get('typeinter')} {graph.get('speedinter')} GB/s"
    return text


def _course(channel: ElementTree.Element) -> str:
    """The path of a channel, NET/0 GPU/0 GPU/1 NET/0, as in NCCL's own log."""
    return " ".join(f"{node.tag.upper()}/{_number(node)}" for node in channel)


def _number(node: ElementTree.Element) -> str:
    """The device number; HOST-GPU for a GPU on another host that NVLink reaches."""
    # older versions write decimals; told() tells of a node that has none
    host, dev = divmod(int(node.get("dev"), 0), 1 << _DEV_BITS)  # type: ignore[arg-type]
    return f"{host:x}-{dev}" if host and node.tag == "gpu" else str(dev)
