"""The connection of the kernel's debugger to pydevd in a rank (the engine's dap.py)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import struct
import tempfile
import threading

from ddip.cells import cell as cells
from ddip.errors import DipError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, TypeVar

    from ddip.groups import Group

    T = TypeVar("T")


_CALL = "__import__('ddip_engine.cells.dap').cells.dap.connect({0!r})"
_CELLS = 64  # that are remembered
_ANSWER_S = 30  # how long pydevd may take
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
# What a new process in the rank must be told again, beside all breakpoints.
_KEPT = ("initialize", "attach", "setExceptionBreakpoints", "setFunctionBreakpoints")
_ALL_THREADS = ("continue", "pause")  # one thread of a rank can stop; front ends may name another
# What pydevd does, so that a front end offers it before there is a rank.
_CAPABILITIES: dict[str, Any] = {
    f"supports{name}": True
    for name in (
        "ConfigurationDoneRequest", "ConditionalBreakpoints", "HitConditionalBreakpoints",
        "EvaluateForHovers", "SetVariable", "SetExpression", "CompletionsRequest",
        "ExceptionOptions", "ExceptionInfoRequest", "LogPoints", "ModulesRequest",
        "DelayedStackTraceLoading", "ClipboardContext", "FunctionBreakpoints",
        "ValueFormattingOptions", "GotoTargetsRequest", "StepInTargetsRequest",
    )
}  # fmt: skip
_CAPABILITIES["exceptionBreakpointFilters"] = [
    {"filter": "raised", "label": "Raised Exceptions", "default": False},
    {"filter": "uncaught", "label": "Uncaught Exceptions", "default": True},
    {"filter": "userUnhandled", "label": "User Uncaught Exceptions", "default": False},
]


class Link:
    """The connection to pydevd in a rank, in place of ipykernel's DebugpyClient.

    tell(event): passes an event on to the front end. All but connect() and call() runs in the
    thread of the control channel.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], object]) -> None:
        self._tell = tell
        # (command, path of the source) -> the request
        self._kept: dict[tuple[str, str | None], dict[str, Any]] = {}
        self._cells: dict[str, str] = {}  # see remember()
        # number of a request -> Future of its response
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._loop: Any = None  # of the control channel's thread
        self._writer: asyncio.StreamWriter | None = None  # None: not connected
        self.rank = 0
        # its process that is or was connected: the path of the group, and the pid
        self._pid: tuple[str, str | None] | None = None
        self._connects = threading.Lock()

    # ---- what ipykernel's Debugger asks of it

    def connect_tcp_socket(self) -> None:
        """The front end has begun to debug."""
        self._loop = asyncio.get_running_loop()

    def disconnect_tcp_socket(self) -> None:
        """It has ended that."""
        self._kept.clear()
        self.close()

    def get_host_port(self) -> tuple[str, str]:
        """There is no port: only words for arguments that pydevd does not read."""
        return "unix", "0"

    async def send_dap_request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the response."""
        command = request["command"]
        if command in _KEPT or command == "setBreakpoints":
            path = request.get("arguments", {}).get("source", {}).get("path")
            self._kept[command, path] = request
        if self._writer is None:
            response = answer(request, **_unconnected(request))
        else:
            response = await self.ask(request)
        if command == "attach":
            self._tell({"type": "event", "seq": 0, "event": "initialized"})
        return response

    # ---- the connection

    def close(self) -> None:
        """Ends the connection: pydevd forgets all breakpoints and lets the rank go on."""
        writer, self._writer, self._pid = self._writer, None, None
        if writer is not None:
            writer.close()
        self._lose()

    def _lose(self):
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(f"rank {self.rank} is not connected"))
        self._waiting.clear()

    def connect(self, group: Group) -> None:
        """Connects to the rank, unless that is done; from the thread that runs cells. Raises
        DipError if that is not possible."""
        rows = group.ranks()
        if self.rank >= group.size:
            raise DipError(f"there is no rank {self.rank} to debug: %dip --debug RANK")
        if self.rank >= len(rows):
            return  # the group is not started: the cell says so
        pid = group.path, rows[self.rank].get("pid")
        with self._connects:
            if pid == self._pid:
                return
            folder = tempfile.mkdtemp(prefix="ddip-debug.")  # of mode 700
            try:
                end = _connected(group, self.rank, os.path.join(folder, "socket"))
            finally:
                shutil.rmtree(folder)
            self.call(self._begin(end, pid))

    def do(self, act: Callable[[], object]) -> None:
        """Calls a function in the thread of the control channel."""

        async def acts():
            act()

        self.call(acts())

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the thread of the control channel, and waits for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_ANSWER_S)

    async def _begin(self, end, pid):
        self.close()
        reader, self._writer = await asyncio.open_unix_connection(sock=end)
        self._pid = pid
        self._task = asyncio.ensure_future(self._read(reader, self._writer))
        for request in list(self._kept.values()):
            await self.ask(request)
        await self.name(self._cells)
        await self.ask({"type": "request", "command": "configurationDone"})
        if self._writer is None:
            raise DipError(f"no breakpoint stops on rank {self.rank}: another notebook debugs it")

    async def name(self, cells: dict[str, str]) -> None:
        """Tells by which path the front end knows cells that have run or are about to."""
        arguments = {"ddipCells": cells}
        await self.ask({"command": "setDebuggerProperty", "arguments": arguments})

    def share(
        self, loop: Any, kept: dict[tuple[str, str | None], dict[str, Any]], cells: dict[str, str]
    ) -> None:
        """What the front end has set for another rank holds for this one, too."""
        self._loop, self._kept, self._cells = loop, kept, cells

    def remember(self, source: str, path: str) -> None:
        """A cell with this text runs, which the front end knows by this path. A rank that is
        connected later is told of it: breakpoints stop in its functions, too."""
        self._cells.pop(source, None)
        while len(self._cells) >= _CELLS:
            del self._cells[next(iter(self._cells))]
        self._cells[source] = path

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the response of the rank, which may have gone."""
        writer = self._writer
        if writer is None:
            return answer(request, success=False, message=f"rank {self.rank} has gone", body={})
        number, future = next(self._numbers), self._loop.create_future()
        self._waiting[number] = future
        message = {**request, "type": "request", "seq": number}
        arguments = dict(request.get("arguments") or {})
        if request["command"] in _ALL_THREADS:
            arguments["threadId"] = "*"
        elif request["command"] == "attach":  # the rank's other threads answer the mount
            arguments["stopAllThreadsOnSuspend"] = False
        data = json.dumps({**message, "arguments": arguments}).encode()
        try:
            writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
            response = await asyncio.wait_for(future, _ANSWER_S)
        except (OSError, asyncio.TimeoutError) as e:
            text = str(e) or "pydevd does not answer"
            return answer(request, success=False, message=text, body={})
        return {**response, "request_seq": request.get("seq", number)}

    async def _read(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.rpartition(b":")[2])
                self._take(json.loads(await reader.readexactly(size)))
        if writer is self._writer:  # the rank has ended
            self.close()

    def _take(self, message):
        if message["type"] == "event":
            self._tell(message)
            return
        future = self._waiting.pop(message.get("request_seq"), None)
        if future is not None and not future.done():
            future.set_result(message)


def _connected(group, rank, path):
    """The notebook's end of a connection to pydevd in a rank, which a cell there makes."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(1)
        server.settimeout(_ANSWER_S)
        cell = cells.submit(group, _CALL.format(path), str(rank))
        try:
            while not cell.has_ended(_ANSWER_S * 1000):
                if cell.status().get("state") != "queued":  # behind the cell of another notebook
                    raise DipError(f"rank {rank} does not answer")
        except BaseException:
            cell.interrupt()
            raise
        if cell.status()["state"] != "ok":
            why = json.loads(cell.read("report.json")).get("error", "")
            raise DipError(f"no breakpoint stops on rank {rank}: {why}")
        end = server.accept()[0]
    given = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(given)[1] != os.getuid():
        end.close()
        raise DipError(f"rank {rank} runs as another user, and is not debugged")
    end.setblocking(False)
    return end


def answer(request: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A response to a request."""
    seq, command = request.get("seq", 0), request["command"]
    made = {"type": "response", "seq": 0, "request_seq": seq, "success": True, "command": command}
    return {**made, **more}


def _points(arguments):
    """What pydevd answers: a front end finds the source of each in it."""
    source = {"source": arguments["source"]} if "source" in arguments else {}
    asked = enumerate(arguments.get("breakpoints") or ())
    return [{**point, "id": n, "verified": True, **source} for n, point in asked]


def _unconnected(request):
    """What is answered while there is no rank yet."""
    command, arguments = request["command"], request.get("arguments") or {}
    if command == "initialize":
        return {"body": _CAPABILITIES}
    if command in ("setBreakpoints", "setFunctionBreakpoints"):
        points = _points(arguments)
        return {"body": {"breakpoints": points}}
    if command == "threads":
        return {"body": {"threads": []}}
    if command in (*_KEPT, "disconnect"):
        return {"body": {}}
    return {"success": False, "message": "no cell has run on the rank yet", "body": {}}
