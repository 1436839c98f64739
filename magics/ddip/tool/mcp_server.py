"""ddip mcp: serves a group over the Model Context Protocol on standard input and output.

For editors whose agents have no shell. Each tool is a few operations on the files of the mount;
what it returns is bounded by the reports of cells.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sys

from ddip.cells import cell as cells
from ddip.errors import DipError
from ddip.mounts import files
from ddip.tool import control
from ddip.tool.call import OK, REFUSED, Failure, Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

    from ddip.mounts.files import OpenFile
    from ddip.tool.call import Tool

    P = ParamSpec("P")
    T = TypeVar("T")

    class _Server(Protocol):
        """What is used of FastMCP, or MCPServer."""

        def add_tool(self, fn: Callable[..., object], *, structured_output: bool) -> None: ...

        def run(self, transport: str) -> None: ...


_MISSING = (
    "the Python package mcp is missing in {}: pip install 'ddipfs[mcp]', or pip install mcp for"
    " this Python"
)
_ABOUT = """\
A group of PyTorch ranks (processes of one DDP group) that keep their variables between calls.
`run` runs Python on all of them and returns a report of at most 2 KB; `read` reads the files that a
report names, and others: README first, then stall (who waits for whom), status, error,
rankK/stack. A call that takes longer than its timeout goes on: `wait` waits for it, `interrupt`
ends it and keeps the variables."""
_READ, _READ_MAX = 4096, 64 << 10  # bytes that a file is cut to, and the most that may be asked for
_WAIT_S, _WAIT_MAX_S = 60, 3600
_GROWING = "stdout", "stderr", "events.last", "log.last"
_IMAGES, _IMAGE_MAX = 4, 1 << 20  # that one report is sent with, and bytes of each


def serve(tool: Tool, words: Sequence[str]) -> int:
    """Serves until standard input ends."""
    if Options(tool, words, {}, {}).rest:
        raise tool.misuse()
    server, image, refusal = _package()
    tools = _Tools(tool, image, refusal)
    made = server("ddipfs", instructions=_ABOUT, log_level="ERROR")
    for function in (
        tools.run, tools.wait, tools.read, tools.interrupt, tools.recover, tools.variables
    ):  # fmt: skip
        made.add_tool(function, structured_output=False)
    made.run("stdio")
    return OK


def _package() -> tuple[Callable[..., _Server], Callable[..., object], type[Exception]]:
    """The classes of the server, of images, and of a tool's failure, in version 1 or 2 of the
    package."""
    try:
        try:
            from mcp.server.fastmcp import FastMCP, Image
            from mcp.server.fastmcp.exceptions import ToolError
        except ImportError:
            from mcp.server.mcpserver import Image
            from mcp.server.mcpserver import MCPServer as FastMCP
            from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise Failure(REFUSED, _MISSING.format(sys.executable)) from None
    return FastMCP, Image, ToolError


def _in_thread(
    method: Callable[Concatenate[_Tools, P], T],
) -> Callable[Concatenate[_Tools, P], Coroutine[Any, Any, T]]:
    """Runs a method in a thread: other calls, such as an interrupt, are answered meanwhile."""

    @functools.wraps(method)
    async def run(self: _Tools, *args: P.args, **kwargs: P.kwargs) -> T:
        import anyio

        call = functools.partial(_told, self, method, *args, **kwargs)
        answer: T = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        return answer

    return run


def _told(
    self: _Tools,
    method: Callable[Concatenate[_Tools, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Calls a method of a _Tools; what fails is told to the client."""
    try:
        return method(self, *args, **kwargs)
    except (DipError, Failure, OSError) as e:
        raise self.refusal(str(e)) from None


class _Tools:
    """What the server offers. The docstrings are what an agent reads."""

    def __init__(self, tool: Tool, image: Callable[..., object], refusal: type[Exception]) -> None:
        self._tool, self._image, self.refusal = tool, image, refusal

    async def run(self, code: str, ranks: str = "", timeout_s: float = _WAIT_S) -> list[object]:
        """Run Python on all ranks (or on some: "0,2-3"), as in a notebook: names stay, the value of
        the last expression is the result. Returns the report of the cell: how it ended, why, at
        which lines, its last output, where the rest is. Code that takes longer than timeout_s
        goes on: its state is "running"; use wait or interrupt."""
        import anyio

        cell = await self._submit(code, ranks)
        try:
            return await self.wait(cell.number, timeout_s)
        except anyio.get_cancelled_exc_class():
            cell.interrupt()  # the client wants it no longer
            raise

    @_in_thread
    def wait(self, cell: int, timeout_s: float = _WAIT_S) -> list[object]:
        """Wait for the end of a cell, at most timeout_s. Returns its report."""
        return self._report(self._cell(cell), timeout_s)

    @_in_thread
    def read(self, path: str, max_bytes: int = _READ) -> str:
        """Read a file of the group, or list a directory: README, status, ranks, stall, error,
        events.last, log.last, cells/N/traceback, rank0/stack, rank0/locals/NAME,
        vars/NAME.mean … At most max_bytes, of output the end. Never waits for data."""
        return self._read(path, min(max(max_bytes, 1), _READ_MAX))

    @_in_thread
    def interrupt(self, cell: int = 0) -> str:
        """Interrupt a cell (0: whatever runs) on all of its ranks, as Ctrl-C does. Variables stay.
        Returns its report when it has ended, or after a few seconds if it has not."""
        found, _ = control.interrupt_cells(self._tool, cell)
        return found[-1].read("report") if found else self._read("status", _READ)

    @_in_thread
    def recover(self, restart: bool = False) -> str:
        """Rebuild the process group after a failure; variables stay. restart: new processes
        instead, when nothing else helps; all variables are lost. Returns the state."""
        self._tool.group.ctl("restart" if restart else "recover")
        return self._read("status", _READ)

    @_in_thread
    def variables(self, name: str = "", rank: int = 0, running: bool = False) -> str:
        """The table of variables, or the value of one on a rank, with a view as suffix, such as
        loss, w.json, model.dir. running: instead of globals, what the functions see that run now,
        such as main(), also while they hang."""
        folder = f"rank{rank}/" + ("locals" if running else "vars")
        if name:
            return self._read(f"{folder}/{name}", _READ)
        return self._read(folder if running else "names", _READ)

    @_in_thread
    def _submit(self, code: str, ranks: str) -> cells.Cell:
        return cells.submit(self._tool.group, code, ranks or None)

    def _cell(self, number: int) -> cells.Cell:
        cell = cells.Cell(self._tool.group, number)
        if not files.isdir(cell.path):
            raise self.refusal(f"there is no cell {number} in the history of this group")
        return cell

    def _report(self, cell: cells.Cell, timeout_s: float) -> list[object]:
        ended = cell.has_ended(min(max(timeout_s, 0), _WAIT_MAX_S) * 1000)
        return [cell.read("report"), *(self._images(cell) if ended else ())]

    def _images(self, cell: cells.Cell) -> Iterator[object]:
        """The first figures that the cell has displayed."""
        for path in json.loads(cell.read("report.json")).get("figures", [])[:_IMAGES]:
            data = files.read(os.path.join(self._tool.group.path, path))
            if len(data) <= _IMAGE_MAX:
                yield self._image(data=data, format="png")

    def _read(self, path: str, count: int) -> str:
        group = self._tool.group
        if path.startswith("/") or ".." in path.split("/"):
            raise self.refusal("path: relative to the group, without ..")
        whole = os.path.join(group.path, path) if path != "README" else self._readme()
        try:
            if files.isdir(whole):
                return _cut("\n".join(sorted(files.listdir(whole))), count)
            with files.open_(whole, os.O_RDONLY | os.O_NONBLOCK) as file:
                data = _read(file, count, os.path.basename(path) in _GROWING)
        except OSError as e:
            raise self.refusal(self._why(e, path)) from None
        return _cut(data.decode("utf-8", "replace"), count)

    def _readme(self) -> str:
        return os.path.join(self._tool.mount, "README")

    def _why(self, error: OSError, path: str) -> str:
        if error.errno == errno.EAGAIN:
            return f"{path}: nothing to read now; events.last and log.last are no live files"
        last = json.loads(self._tool.group.read("error.json"))[-1:]
        if last and last[0]["errno"] == errno.errorcode.get(error.errno or 0):
            return f"{path}: {last[0]['text']}"
        return f"{path}: {error.strerror}"


def _read(file: OpenFile, count: int, of_end: bool) -> bytes:
    """The first bytes of a file, or the last ones."""
    size = file.size()
    if of_end and size > count:
        file.seek(size - count)
    data = b""
    while len(data) <= count and (piece := file.read(count + 1 - len(data))):
        data += piece
    return data


def _cut(text: str, count: int) -> str:
    return text if len(text) <= count else text[:count] + "\n… cut"
