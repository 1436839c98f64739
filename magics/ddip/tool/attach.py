"""ddip attach: prints what a rank prints, and passes lines to its input() and debugger."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from ddip.mounts import files, p9_file
from ddip.tool.call import OK, number_of, put_out
from ddip.tool.echo import LOOK_MS, Echo, is_foreground
from ddip.tool.output import print_end
from ddip.tool.stdin import FULL_S, write_some

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from ddip.mounts.files import OpenFile
    from ddip.tool.call import Tool

_PIECE = p9_file.AHEAD
_LAST_LINES = 5  # of the rank's earlier output


def attach(tool: Tool, words: Sequence[str]) -> int:
    """ddip attach. Ctrl-C interrupts what the rank runs; Ctrl-D, or the rank's exit, ends it."""
    if len(words) != 1:
        raise tool.misuse()
    rank = f"rank{number_of(tool, words[0])}"
    tool.show(
        f"tail -n {_LAST_LINES} {tool.path(rank)}/stdout; cat {tool.path(rank)}/follow &"
        f" cat > {tool.path(rank)}/stdin"
    )

    def interrupt(*_: object) -> None:
        with tool.telling("interrupt"):
            tool.tell(f"{rank}/ctl", "interrupt")

    signal.signal(signal.SIGINT, interrupt)
    # opened before the last lines are printed, so that nothing is missed in between
    with files.open_(tool.path(f"{rank}/follow")) as follow, _Secrecy(tool, rank) as secrecy:
        print_end(tool.path(f"{rank}/stdout"), _LAST_LINES)
        _talk(tool, follow, f"{rank}/stdin", secrecy)
    return OK


class _Secrecy:
    """Turns the terminal's echo off while the rank waits for a password."""

    def __init__(self, tool: Tool, rank: str) -> None:
        self._status = tool.path(f"{rank}/status")
        self._echo = Echo()
        self._wanted = False
        self.events = files.open_(tool.path("events"))  # a new one says when to look at the status

    def __enter__(self) -> Self:
        self._echo.guard()
        self._look()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._echo.__exit__(*exc_info)
        self.events.close()

    def take_events(self) -> None:
        """Call it when there are new events."""
        with contextlib.suppress(OSError):  # the group is gone, as the output will tell
            self.events.read(_PIECE)
        self._look()

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            self._wanted = "\ninput password\n" in files.read_text(self._status)

    def answered(self) -> None:
        """A line was passed on: the rank asks again if it wants another one."""
        self._wanted = False

    def set(self) -> int | None:
        """Sets the echo. Returns the milliseconds after which to do so again; None: no need."""
        if is_foreground():
            self._echo.set(not self._wanted)
        return LOOK_MS if self._wanted else None


def _talk(tool: Tool, follow: OpenFile, name: str, secrecy: _Secrecy) -> None:
    """Copies both ways until either side ends. name: the rank's input."""
    stdin = tool.path(name)
    left = b""  # of the last piece: the rank's input is full
    while True:
        if left:
            left = _pass_on(tool, name, left)
        events = secrecy.events.arm()
        poller = select.poll()
        for fd in (follow.arm(), events) if left else (follow.arm(), events, 0):
            poller.register(fd, select.POLLIN)
        patience = secrecy.set()
        for fd, _ in poller.poll(int(FULL_S * 1000) if left else patience):
            if fd == events:
                secrecy.take_events()
                continue
            data = os.read(0, _PIECE) if fd == 0 else follow.read(_PIECE)
            if not data and fd != 0 and files.exists(stdin):
                time.sleep(files.LOOK_S)
                continue
            if not data:
                return
            if fd == 0:
                left = _pass_on(tool, name, data)
                secrecy.answered()
            else:
                put_out(data)


def _pass_on(tool: Tool, name: str, data: bytes) -> bytes:
    """Writes to the rank's input as much as it takes. Returns the rest. Raises DipError."""
    with tool.telling(name), files.open_(tool.path(name), os.O_WRONLY) as file:
        while data and (count := write_some(file, data)):
            data = data[count:]
    return data
