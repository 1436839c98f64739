"""ddip history: the cells so far, from their reports; or a program made of them."""

from __future__ import annotations

import ast
import json
import re

from ddip.errors import DipError
from ddip.mounts import files
from ddip.tool.call import OK, USAGE, Failure, Options, put_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypedDict

    from typing_extensions import NotRequired

    from ddip.tool.call import Tool

    class _Report(TypedDict):
        """What is used of a cell's report.json."""

        cell: int
        state: str
        seconds: NotRequired[float]
        rank: NotRequired[int]
        error: NotRequired[str]
        program: NotRequired[str]


_SOURCE = 60  # characters of a cell's source that are shown
_DIRECTIVE = re.compile(r"#\s*ddip( run)?:")
_FRAME = re.compile(r"#\s*ddip frame:")
_HEAD = """\
import os

rank = int(os.environ.get("RANK", 0))
local_rank = int(os.environ.get("LOCAL_RANK", 0))
world_size = int(os.environ.get("WORLD_SIZE", 1))
"""


def history(tool: Tool, words: Sequence[str]) -> int:
    """Lists the cells, the last COUNT of them; --script: a program that does what they did."""
    options = Options(tool, words, {"s": "script"}, {"n": "number"})
    if options.rest:
        raise tool.misuse()
    count = options.last("number")
    if count is not None and not count.isdecimal():
        raise Failure(USAGE, f"--number takes a number, not '{count}'")
    found = list(_cells(tool, int(count) if count else None))
    if options.has("script"):
        size = tool.group.size
        parts = [_part(report, source, _some_ranks(tool, report, size)) for report, source in found]
        text = "\n\n".join([_HEAD, *parts])
    else:
        text = "".join(_line(*cell) for cell in found)
    put_out(text.encode("utf-8", "replace"))
    return OK


def _cells(tool: Tool, count: int | None) -> Iterator[tuple[_Report, str]]:
    """(report, source) of each cell, of the last ones if there is a count, the oldest first."""
    names = files.listdir(tool.path("cells"))
    numbers = sorted(int(name) for name in names if name.isdecimal())
    for number in numbers if count is None else numbers[len(numbers) - min(count, len(numbers)) :]:
        try:
            report: _Report = json.loads(tool.read(f"cells/{number}/report.json"))
            yield report, tool.read(f"cells/{number}/source")
        except FileNotFoundError:
            pass  # it has just left the history
        except OSError as e:
            raise DipError(f"cell {number}: {e.strerror}", e.errno) from e


def _line(report: _Report, source: str) -> str:
    first = next((line for line in source.splitlines() if line.strip()), "")
    first = first if len(first) <= _SOURCE else first[: _SOURCE - 1] + "…"
    seconds = f"{report['seconds']:.3f} s" if "seconds" in report else "-"
    line = f"{report['cell']:5} {report['state']:11} {seconds:>12}  {first:{_SOURCE}}"
    if "error" in report:
        rank = f"rank {report['rank']}: " if "rank" in report else ""
        line += f"  {rank}{report['error']}"
    elif "program" in report:
        line += f"  by {report['program']}"
    return line.rstrip() + "\n"


def _some_ranks(tool: Tool, report: _Report, size: int) -> list[int] | None:
    """The ranks that ran the cell; None: all that there are."""
    ranks: list[int] = json.loads(tool.read(f"cells/{report['cell']}/status.json"))["ranks"]
    return None if ranks == list(range(size)) else ranks


def _part(report: _Report, source: str, ranks: list[int] | None) -> str:
    """What a program has of a cell: its source, or a comment that says why not."""
    head = f"# cell {report['cell']}"
    if report["state"] != "ok":
        why = report.get("error", report["state"])
        return f"{head}, left out: {why}\n"
    if _DIRECTIVE.match(source):
        return f"{head}, left out: a program of its own: {source.partition(chr(10))[0]}\n"
    commented = "".join(f"#   {line}\n" for line in source.splitlines())
    if _FRAME.match(source):
        return f"{head}, left out: it ran in a frame of a cell that had failed\n{commented}"
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return f"{head}, left out: it is no plain Python, or awaits\n{commented}"
    source = source.rstrip("\n") + "\n"
    if ranks is None:
        return f"{head}\n{source}"
    code = f"exec(compile({source!r}, '<cell {report['cell']}>', 'exec'))"
    return f"{head}, on some ranks\nif rank in {ranks}:\n    {code}\n"
