"""ddip tail, report and stack: what ranks print, what they do, and where they are."""

from __future__ import annotations

import io
import json
import re
import select

from ddip.mounts import files
from ddip.tool.call import NOTHING, OK, Failure, Options, number_of, put_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddip.mounts.files import OpenFile
    from ddip.tool.call import Tool

_PIECE = 64 << 10
_LINES = 10  # the default of tail
_CELLS = ("cell", "program")  # what has a report while it runs


def tail(tool: Tool, words: Sequence[str]) -> int:
    """Prints the last lines of a rank's output; -f: new ones as well."""
    options = Options(tool, words, {"f": "follow", "e": "stderr"}, {"n": "lines"})
    words, lines = options.rest, options.last("lines")
    lines = str(_LINES) if lines is None else lines
    if len(words) > 1 or not lines.isdecimal():
        raise tool.misuse()
    count, what = int(lines), "stderr" if options.has("stderr") else "stdout"
    rank = f"rank{number_of(tool, words[0] if words else '0')}"
    if not options.has("follow"):
        tool.show(f"tail -n {count} {tool.path(rank)}/{what}")
        print_end(tool.path(f"{rank}/{what}"), count)
    elif what == "stderr":
        tool.show(f"tail -f -n {count} {tool.path(rank)}/stderr")
        _follow_stderr(tool, rank, count)
    else:
        _follow(tool, rank if words else None, count)
    return OK


def print_end(path: str, count: int) -> int:
    """Prints the last lines of a file. Returns its size."""
    with files.open_(path) as file:
        size = at = file.size()
        end = b""
        while at > 0 and end.count(b"\n") <= count:
            begin = max(0, at - _PIECE)
            end, at = files.read_range(file, begin, at) + end, begin
    lines = io.BytesIO(end).readlines()  # splitlines() would also split progress bars, at each "\r"
    put_out(b"".join(lines[max(0, len(lines) - count) :]))
    return size


def _follow(tool: Tool, rank: str | None, count: int) -> None:
    """Prints a rank's last lines and then its new ones, or the new lines of all ranks."""
    name = f"{rank}/follow" if rank else "log"
    head = f"tail -n {count} {tool.path(rank)}/stdout; " if rank else ""
    tool.show(f"{head}cat {tool.path(name)}")
    # opened first, so that nothing is missed in between
    with files.open_(tool.path(name)) as live:
        if rank:
            print_end(tool.path(f"{rank}/stdout"), count)
        while data := _next(tool, live):
            put_out(data)


def _next(tool: Tool, live: OpenFile) -> bytes:
    """What a live file has next. Raises BrokenPipeError once nobody reads what is printed."""
    poller = select.poll()
    poller.register(live.arm(), select.POLLIN)
    poller.register(1, 0)
    if any(fd == 1 and event & (select.POLLERR | select.POLLHUP) for fd, event in poller.poll()):
        raise BrokenPipeError
    return files.read_live(live, _PIECE, tool.group.path)


def _follow_stderr(tool: Tool, rank: str, count: int) -> None:
    """Prints what was added to the file, whenever the rank has printed something."""
    path = tool.path(f"{rank}/stderr")
    with files.open_(tool.path(f"{rank}/follow")) as live:
        at = print_end(path, count)
        while _next(tool, live):
            with files.open_(path) as file:
                size = file.size()
                at = at if at <= size else 0  # its content was dropped
                put_out(files.read_range(file, at, size))
                at = size


def report(tool: Tool, words: Sequence[str]) -> int:
    """Prints the report of a cell: by default of the one that runs, else of the last."""
    if len(words) > 1 or not all(word.isdecimal() for word in words):
        raise tool.misuse()
    rows = json.loads(tool.group.read("queue.json"))
    running = [row["id"] for row in rows if row["state"] == "running" and row["kind"] in _CELLS]
    name = f"cells/{(words or running or ['last'])[0]}/report"
    tool.show(f"cat {tool.path(name)}")
    if not files.exists(tool.path(name)):
        raise Failure(NOTHING, f"no cell {words[0] if words else 'yet'} in {tool.group.path}")
    put_out(files.read(tool.path(name)))
    return OK


def stack(tool: Tool, words: Sequence[str]) -> int:
    """Prints the frames of user code in each rank, or in one; with --all, every thread's stack."""
    options = Options(tool, words, {"a": "all"}, {})
    file = "stack.all" if options.has("all") else "stack"
    if len(options.rest) > 1:
        raise tool.misuse()
    if options.rest:
        name = f"rank{number_of(tool, options.rest[0])}/{file}"
        tool.show(f"cat {tool.path(name)}")
        put_out(files.read(tool.path(name)))
        return OK
    # text without the threads' addresses -> (text, ranks)
    same: dict[str, tuple[str, list[str]]] = {}
    for rank in range(tool.group.size):
        tool.show(f"cat {tool.path(f'rank{rank}/{file}')}")
        text = tool.group.read(f"rank{rank}/{file}")
        same.setdefault(re.sub("0x[0-9a-f]+", "", text), (text, []))[1].append(str(rank))
    for text, ranks in same.values():
        noun = "ranks" if len(ranks) > 1 else "rank"
        put_out(f"{noun} {','.join(ranks)}:\n{text}".encode())
    return OK
