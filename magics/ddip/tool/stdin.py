"""The tool's standard input, for ranks that ask for input while a cell runs.

It is read only when a rank asks, and each request gets one piece of it. A rank whose program takes
descriptor 0 for itself, by poll(2) or in a child, gets all of it. Only one rank gets it. If it is a
terminal, the other ranks are left to `ddip attach`; otherwise they see its end at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import threading
import time

from ddip.mounts import files
from ddip.tool.call import say
from ddip.tool.echo import LOOK_MS, Echo, is_foreground

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from ddip.mounts.files import OpenFile
    from ddip.tool.call import Tool

_PIECE = 1 << 20
FULL_S = 0.05  # between attempts to write into a full input


def write_some(file: OpenFile, data: Buffer) -> int:
    """Returns how much was written into a rank's input, 0 if that is full. Raises OSError."""
    try:
        return file.write(data)
    except OSError as e:
        if e.errno not in (errno.EAGAIN, errno.ENOSPC):
            raise
        return 0


def _is_at_end() -> bool:
    """True if standard input is known to have nothing, without reading it."""
    try:
        about = os.fstat(0)
    except OSError:  # it is closed
        return True
    if stat.S_ISREG(about.st_mode):
        return os.lseek(0, 0, os.SEEK_CUR) >= about.st_size
    return stat.S_ISCHR(about.st_mode) and about.st_rdev == os.stat(os.devnull).st_rdev


class Stdin:
    """Passes standard input to the ranks of one cell, while the context lasts."""

    def __init__(self, tool: Tool, rank: int, ended: bool = False, by_line: bool = True) -> None:
        """rank: the one that gets it. ended: there is nothing to get. by_line: each request gets a
        line, so that nothing is left over for the next cell; otherwise it gets what has come."""
        self._tool = tool
        self._rank = rank
        self._ended = ended or _is_at_end()
        self._by_line = by_line
        self._held = bytearray()  # read, not yet passed on
        self._terminal = not self._ended and os.isatty(0)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._wanted = False  # the rank waits for input
        self._always = False  # it does without saying so
        self._secret = False  # what it waits for must not be seen
        self._running = False  # the thread will notice _wanted
        self._echo = Echo() if self._terminal else None

    def __enter__(self) -> Self:
        self._stop, self._stopper = os.pipe()
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._stopper)  # wakes the thread, which polls the other end
        if self._thread is not None:
            self._thread.join()
        os.close(self._stop)
        if self._echo is not None:
            self._echo.__exit__(*exc_info)

    def ranks(self) -> list[int] | None:
        """The ranks whose input is not at its end from the beginning; None: all."""
        return None if self._terminal else [] if self._ended else [self._rank]

    def ask(self, rank: int, secret: bool = False, always: bool = False) -> None:
        """Serves a rank that waits for input; secret: a terminal does not show what is typed.
        always: from now on it gets all that comes, because it does not ask for each piece."""
        mine = rank == self._rank
        if self._terminal and not always and not (mine and is_foreground()):
            say(f"rank {rank} waits for input: {'fg, or ' * mine}ddip attach {rank}")
        if mine and not self._ended:
            if secret and self._echo is not None:
                self._echo.guard()
            with self._lock:
                self._wanted, self._secret = True, secret
                self._always = self._always or always
                if not self._running:
                    self._running = True
                    self._start()
        elif not self._terminal:
            self.end(rank)

    def _start(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        """Passes on one piece per request, and the end for each request after the last piece."""
        while self._is_wanted() and (piece := self._next_piece()) is not None:
            self._wanted = self._secret = False  # the rank asks again after it has got this
            self._set_echo()
            if piece:
                self._write(piece)
            else:
                self.end(self._rank)
                self._always = self._always and not self._ended

    def _next_piece(self) -> bytes | None:
        """The piece for one request; b"" at the end, None if the cell has ended."""
        while not self._held or (self._by_line and b"\n" not in self._held):
            if not self._wait():
                return None
            try:
                data = os.read(0, _PIECE)
            except OSError:  # closed, or the terminal is gone
                data = b""
            if not data:
                self._ended = not self._terminal
                break
            self._held += data
        size = self._held.find(b"\n") + 1 if self._by_line else 0
        piece = bytes(self._held[: size or None])
        del self._held[: size or None]
        return piece

    def _is_wanted(self) -> bool:
        with self._lock:
            self._running = self._wanted or self._always
            return self._running

    def _wait(self) -> bool:
        """Waits until there is something to read. Returns False if the cell has ended."""
        while True:
            poller = select.poll()
            poller.register(self._stop, 0)
            if self._may_read():
                self._set_echo()
                poller.register(0, select.POLLIN)
            ready = dict(poller.poll(LOOK_MS if self._terminal else None))
            if self._stop in ready:
                return False
            if 0 in ready and self._may_read():
                return True

    def _set_echo(self) -> None:
        if self._echo is not None:
            self._echo.set(not self._secret)

    def _may_read(self) -> bool:
        """False for a background job at a terminal: what is typed there is not for it."""
        return not self._terminal or is_foreground()

    def _write(self, data: bytes) -> None:
        """Writes data to the rank's input; drops what the rank no longer accepts."""
        view = memoryview(data)
        path = self._tool.path(f"rank{self._rank}/stdin")
        with contextlib.suppress(OSError), files.open_(path, os.O_WRONLY) as file:
            while view:
                view = view[self._write_some(file, view) :]

    def _write_some(self, file: OpenFile, view: memoryview) -> int:
        """Returns how much was written; waits a moment if the input is full. Raises OSError."""
        count = write_some(file, view)
        if not count and self._is_over():
            raise BrokenPipeError
        return count

    def _is_over(self) -> bool:
        """Waits a moment. Returns True if the cell has ended in the meantime."""
        time.sleep(FULL_S)
        return bool(select.select([self._stop], [], [], 0)[0])

    def end(self, rank: int) -> None:
        """Ends the rank's input."""
        try:
            self._tool.tell(f"rank{rank}/ctl", "eof")
        except OSError as e:
            say(f"rank {rank} waits for input, which has ended: {e.strerror}")
