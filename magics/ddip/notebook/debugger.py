"""The debugger of the kernel "DDP (ddipfs)": a front end's breakpoints stop a rank.

It is ipykernel's, whose other end is not debugpy's adapter but pydevd in the rank (the engine's
dap.py), over a Unix socket that only this user can reach. The rank is connected before the first
cell that runs there, and again when it has been replaced; until then the front end's requests are
kept, and answered here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import stat
import struct
import sys
import tempfile
from concurrent import futures

from ipykernel.compiler import get_file_name, get_tmp_directory
from ipykernel.debugger import Debugger

from ddip.cells import cell as cells
from ddip.errors import DipError
from ddip.mounts import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any, TypeVar

    from ddip.groups import Group

    T = TypeVar("T")


_SHORT = ("int", "float", "bool", "complex", "str", "NoneType")  # types whose value is shown
_SHOWN = 200  # variables whose value is shown
_TEXT = 200  # characters of a value
_CALL = "__import__('ddip_engine.cells.dap').cells.dap.connect({0!r})"
_ANSWER_S = 30  # how long pydevd may take
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
# What a new process in the rank must be told again, beside all breakpoints.
_KEPT = ("initialize", "attach", "setExceptionBreakpoints", "setFunctionBreakpoints")
_START = "<string>"  # where a rank's own code begins, as python -c names it
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
        # number of a request -> Future of its response
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._loop: Any = None  # of the control channel's thread
        self._writer: asyncio.StreamWriter | None = None  # None: not connected
        self.rank = 0
        # its process that is or was connected: the path of the group, and the pid
        self._pid: tuple[str, str | None] | None = None

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
            answer = _answer(request, **_unconnected(request))
        else:
            answer = await self._ask(request)
        if command == "attach":
            self._tell({"type": "event", "seq": 0, "event": "initialized"})
        return answer

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
        if pid == self._pid:
            return
        folder = tempfile.mkdtemp(prefix="ddip-debug.")  # of mode 700
        try:
            end = _connected(group, self.rank, os.path.join(folder, "socket"))
        finally:
            shutil.rmtree(folder)
        self.call(self._begin(end))
        self._pid = pid

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the thread of the control channel, and waits for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_ANSWER_S)

    async def _begin(self, end):
        self.close()
        reader, self._writer = await asyncio.open_unix_connection(sock=end)
        self._task = asyncio.ensure_future(self._read(reader, self._writer))
        for request in list(self._kept.values()):
            await self._ask(request)
        await self._ask({"type": "request", "command": "configurationDone"})

    async def name(self, source: str, path: str) -> None:
        """Tells by which path the front end knows the cell that is about to run."""
        arguments = {"ddipCell": [source, path]}
        await self._ask({"command": "setDebuggerProperty", "arguments": arguments})

    async def _ask(self, request):
        writer = self._writer
        if writer is None:
            return _answer(request, success=False, message=f"rank {self.rank} has gone")
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
            return _answer(request, success=False, message=str(e) or "pydevd does not answer")
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
        if not cell.has_ended(_ANSWER_S * 1000):
            cell.interrupt()
            raise DipError(f"rank {rank} does not answer")
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


def _answer(request, **more):
    seq, command = request.get("seq", 0), request["command"]
    answer = {"type": "response", "seq": 0, "request_seq": seq, "success": True, "command": command}
    return {**answer, **more}


def _unconnected(request):
    """What is answered while there is no rank yet."""
    command, arguments = request["command"], request.get("arguments") or {}
    if command == "initialize":
        return {"body": _CAPABILITIES}
    if command == "setBreakpoints":
        lines = [{"line": b["line"], "verified": True} for b in arguments.get("breakpoints", ())]
        return {"body": {"breakpoints": lines}}
    if command == "threads":
        return {"body": {"threads": []}}
    if command in (*_KEPT, "disconnect"):
        return {"body": {}}
    return {"success": False, "message": "no cell has run on the rank yet", "body": {}}


class RanksDebugger(Debugger):
    """ipykernel's, for a rank; the variables outside a breakpoint are rank 0's."""

    group: Callable[[], Group | None] = staticmethod(lambda: None)  # the group that cells run on

    debugpy_client: Any  # a Link

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.debugpy_client = Link(self.debugpy_client.event_callback)
        self.debugpy_initialized = True  # ipykernel would have the notebook's process listen
        self._told: str | None = None  # why there are no breakpoints, as it was said last

    def start(self) -> bool:
        """Begins to debug: sources of cells go into a directory that only this user may enter."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(get_tmp_directory(), 0o700)
        status = os.lstat(get_tmp_directory())
        own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        return own and super().start()

    def choose(self, rank: int) -> None:
        """Breakpoints stop on this rank from the next cell on."""
        link = self.debugpy_client
        if link.rank != rank and self.is_started:
            link.call(_done(link.close))
        link.rank = rank

    @contextlib.contextmanager
    def around(self, group: Group, source: str, code: str) -> Iterator[None]:
        """Around a cell of the ranks: its breakpoints hold. code: as the front end has sent it."""
        link = self.debugpy_client
        if not self.is_started:
            yield
            return
        try:
            link.connect(group)
            link.call(link.name(source, get_file_name(code)))
        except (DipError, OSError, futures.TimeoutError) as e:
            if str(e) != self._told:
                print(e, file=sys.stderr)
            self._told = str(e)
        try:
            yield
        finally:
            link.call(_done(self._ended))

    def _ended(self):
        """The cell has ended, perhaps while it was stopped."""
        for thread in list(self.stopped_threads):
            body = {"threadId": thread, "allThreadsContinued": True}
            event = {"type": "event", "seq": 0, "event": "continued", "body": body}
            self.event_callback(event)
        self.stopped_threads = set()

    async def stackTrace(self, message: dict[str, Any]) -> dict[str, Any]:
        """The frames from the cell on: what called it is not the user's."""
        answer = await super().stackTrace(message)
        frames = (answer.get("body") or {}).get("stackFrames", [])
        while len(frames) > 1 and frames[-1].get("source", {}).get("path") == _START:
            frames.pop()
        return answer

    async def inspectVariables(self, message: dict[str, Any]) -> dict[str, Any]:
        """All variables, as the Debug Adapter Protocol lists them."""
        return await asyncio.to_thread(self._answer, message, lambda: {"variables": self._found()})

    async def richInspectVariables(self, message: dict[str, Any]) -> dict[str, Any]:
        """One of them, as a front end displays it."""
        asked = message["arguments"]
        if "frameId" in asked:  # at a breakpoint
            return await super().richInspectVariables(message)
        return await asyncio.to_thread(self._answer, message, lambda: self._one(asked))

    def _answer(self, message, body):
        try:
            return _answer(message, body=body())
        except (DipError, OSError) as e:  # the group is gone, or the variable
            return _answer(message, success=False, message=str(e), body={"variables": []})

    def _found(self):
        group, found = self.group(), []
        for name, facts in group.table().items() if group is not None else ():
            value = _described(facts)
            if facts["type"] in _SHORT and len(found) < _SHOWN:
                with contextlib.suppress(OSError):  # it has gone meanwhile
                    value = _text(group, name)[:_TEXT]
            found.append(
                {"name": name, "type": facts["type"], "value": value, "variablesReference": 0}
            )
        return found

    def _one(self, asked):
        group = self.group()
        text = _text(group, asked["variableName"]) if group is not None else ""
        return {"data": {"text/plain": text}, "metadata": {}}


async def _done(act):
    act()


def _text(group, name):
    return files.read_text(os.path.join(group.path, "rank0", "vars", name)).rstrip("\n")


def _described(facts):
    known = [facts[key] for key in ("dtype", "device") if facts[key] != "-"]
    if facts["shape"] != "-":
        known.insert(0, f"[{facts['shape'].replace(',', ', ')}]")
    return " ".join(known)
