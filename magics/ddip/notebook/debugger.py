"""The debugger of the kernel "DDP (ddipfs)": a front end's breakpoints stop a rank.

It is ipykernel's, whose other end is not debugpy's adapter but pydevd in the rank (the engine's
dap.py), over a Unix socket that only this user can reach. The rank is connected before the first
cell that runs there, and again when it has been replaced; until then the front end's requests are
kept, and answered here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from concurrent import futures

from ipykernel.compiler import get_file_name, get_tmp_directory
from ipykernel.debugger import Debugger

from ddip import patches
from ddip.errors import DipError
from ddip.mounts import files
from ddip.notebook.every_rank import Links
from ddip.notebook.link import answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ddip.groups import Group


_SHORT = ("int", "float", "bool", "complex", "str", "NoneType")  # types whose value is shown
_SHOWN = 200  # variables whose value is shown
_TEXT = 200  # characters of a value
_START = "<string>"  # where a rank's own code begins, as python -c names it


class RanksDebugger(Debugger):
    """ipykernel's, for a rank; the variables outside a breakpoint are that rank's, too."""

    group: Callable[[], Group | None] = staticmethod(lambda: None)  # the group that cells run on

    debugpy_client: Any  # a Links

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._handle = self.debugpy_client.event_callback
        self.debugpy_client = Links(self._take_event)
        self.debugpy_initialized = True  # ipykernel would have the notebook's process listen
        patches.DEBUG_THREAD.replace(_debug_thread)
        self.started_debug_handlers["threads"] = self._threads
        self._told: str | None = None  # why there are no breakpoints, as it was said last

    def start(self) -> bool:
        """Begins to debug: sources of cells go into a directory that only this user may enter."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(get_tmp_directory(), 0o700)
        status = os.lstat(get_tmp_directory())
        own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        return own and super().start()

    def _take_event(self, event):
        """An event of the rank. That a thread goes on may be known before: its cell has ended."""
        thread = event.get("body", {}).get("threadId")
        if event["event"] != "continued" or thread in self.stopped_threads:
            self._handle(event)

    @property
    def rank(self) -> int:
        """The rank that the front end shows."""
        return self.debugpy_client.rank

    def choose(self, rank: int | None) -> None:
        """Breakpoints stop on this rank from the next cell on; None: on all ranks."""
        link = self.debugpy_client
        shown = rank or 0
        if link.rank != shown and self.is_started:
            link.do(link.close)
        link.rank, link.every = shown, rank is None

    @contextlib.contextmanager
    def around(self, group: Group, source: str, code: str) -> Iterator[None]:
        """Around a cell of the ranks: its breakpoints hold. code: as the front end has sent it."""
        link, path = self.debugpy_client, get_file_name(code)
        link.remember(source, path)
        if not self.is_started:
            yield
            return
        try:
            link.connect(group)
            link.call(link.begun({source: path}))
        except (DipError, OSError, futures.TimeoutError) as e:
            if str(e) != self._told:
                print(e, file=sys.stderr)
            self._told = str(e)
        try:
            yield
        finally:
            link.do(self._ended)

    def _ended(self):
        """The cell has ended, perhaps while it was stopped."""
        for thread in list(self.stopped_threads):
            body = {"threadId": thread, "allThreadsContinued": True}
            event = {"type": "event", "seq": 0, "event": "continued", "body": body}
            self.event_callback(event)
        self.stopped_threads = set()
        self.debugpy_client.ended()

    async def stackTrace(self, message: dict[str, Any]) -> dict[str, Any]:
        """The frames from the cell on: what called it is not the user's."""
        if not self.stopped_threads:
            return answer(message, body={"stackFrames": [], "totalFrames": 0})
        found = await super().stackTrace(message)
        frames = (found.get("body") or {}).get("stackFrames", [])
        while len(frames) > 1 and frames[-1].get("source", {}).get("path") == _START:
            frames.pop()
        return self._of_rank(found, frames)

    async def _threads(self, message):
        """Names the rank, where a front end shows threads."""
        found = await self.debugpy_client.send_dap_request(message)
        return self._of_rank(found, (found.get("body") or {}).get("threads", []))

    def _of_rank(self, found, named):
        """If all ranks are debugged, the names in an answer say of which one they are."""
        link = self.debugpy_client
        for each in named if link.every else ():
            each["name"] = f"rank {link.told}: {each['name']}"
        return found

    async def variables(self, message: dict[str, Any]) -> dict[str, Any]:
        """What is in a scope or a variable of a rank that is stopped."""
        if not self.stopped_threads:
            text = f"rank {self.debugpy_client.rank} is not stopped"
            return answer(message, success=False, message=text, body={"variables": []})
        found = await self.debugpy_client.send_dap_request(message)
        body = found.setdefault("body", {})  # the rank may have gone
        listed = body.get("variables", [])
        body["variables"] = [each for each in listed if self.accept_variable(each["name"])]
        return found

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
            return answer(message, body=body())
        except (DipError, OSError) as e:  # the group is gone, or the variable
            return answer(message, success=False, message=str(e), body={"variables": []})

    def _found(self):
        group, found = self.group(), []
        for name, facts in group.table().items() if group is not None else ():
            value = _described(facts)
            if facts["type"] in _SHORT and len(found) < _SHOWN:
                with contextlib.suppress(OSError):  # it has gone meanwhile
                    value = self._text(group, name)[:_TEXT]
            found.append(
                {"name": name, "type": facts["type"], "value": value, "variablesReference": 0}
            )
        return found

    def _one(self, asked):
        group = self.group()
        text = self._text(group, asked["variableName"]) if group is not None else ""
        return {"data": {"text/plain": text}, "metadata": {}}

    def _text(self, group, name):
        place = os.path.join(group.path, f"rank{self.rank}", "vars", name)
        return files.read_text(place).rstrip("\n")


def _debug_thread(real):
    """debugpy.debug_this_thread(), which VS Code runs here before it debugs a cell.

    In a process without a client it connects to debugpy's port, where anybody may listen.
    """

    def debug_this_thread():
        if sys.modules["debugpy"].is_client_connected():
            real()

    return debug_this_thread


def _described(facts):
    known = [facts[key] for key in ("dtype", "device") if facts[key] != "-"]
    if facts["shape"] != "-":
        known.insert(0, f"[{facts['shape'].replace(',', ', ')}]")
    return " ".join(known)
