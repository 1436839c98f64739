"""The tool's standard input, for ranks that ask for input while a cell runs.

It is touched only when a rank asks, which then gets one piece of it. One rank gets it. The others
are for `ddip attach` where it is a terminal, else they find its end at once.
"""

import contextlib
import errno
import os
import select
import threading
import time

from ddip import files
from tool import say

_PIECE = 1 << 20
_FULL_S = 0.05  # between two attempts to write into an input that is full


class Stdin:
    """Passes standard input to the ranks of one cell, while the context lasts."""

    def __init__(self, tool, rank, ended=False, by_line=True):
        """rank: the one that gets it. ended: there is nothing to get. by_line: what a request gets
        is a line, so that nothing is left for the next cell; else what has come."""
        self._tool = tool
        self._rank = rank
        self._ended = ended
        self._by_line = by_line
        self._held = bytearray()  # read, not yet passed on
        self._terminal = not ended and os.isatty(0)
        self._thread = None
        self._lock = threading.Lock()
        self._wanted = False  # the rank waits for something
        self._running = False  # the thread will see that

    def __enter__(self):
        self._stop, self._stopper = os.pipe()
        return self

    def __exit__(self, *exc_info):
        os.close(self._stopper)  # the thread sees the other end of it
        if self._thread is not None:
            self._thread.join()
        os.close(self._stop)

    def ask(self, rank):
        """A rank waits for input."""
        if self._terminal and (rank != self._rank or not _is_foreground()):
            say(f"rank {rank} waits for input: ddip attach {rank}")
        elif self._ended or rank != self._rank:
            self._end(rank)
        else:
            with self._lock:
                self._wanted = True
                if not self._running:
                    self._running = True
                    self._start()

    def _start(self):
        if self._thread is not None:
            self._thread.join()
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def _pass_on(self):
        """Passes on one piece for each request, the end for each one behind it."""
        while self._is_wanted() and (piece := self._next_piece()) is not None:
            self._wanted = False  # the rank asks again when it has got this
            if piece:
                self._write(piece)
            else:
                self._end(self._rank)

    def _next_piece(self):
        """What one request gets; b"" at the end; None: the cell has ended."""
        while not self._held or (self._by_line and b"\n" not in self._held):
            if not self._wait():
                return None
            try:
                data = os.read(0, _PIECE)
            except OSError:  # closed, or a terminal that is gone
                data = b""
            if not data:
                self._ended = not self._terminal
                break
            self._held += data
        size = self._held.find(b"\n") + 1 if self._by_line else 0
        piece = bytes(self._held[: size or None])
        del self._held[: size or None]
        return piece

    def _is_wanted(self):
        with self._lock:
            self._running = self._wanted
            return self._wanted

    def _wait(self):
        """Waits until there is something to read. False: the cell has ended."""
        poller = select.poll()
        poller.register(self._stop, 0)
        poller.register(0, select.POLLIN)
        return self._stop not in dict(poller.poll())

    def _write(self, data):
        """Writes it into the rank's input; what the rank does not take any more is dropped."""
        view = memoryview(data)
        path = self._tool.path(f"rank{self._rank}/stdin")
        with contextlib.suppress(OSError), files.open_(path, os.O_WRONLY) as file:
            while view:
                view = view[self._write_some(file, view) :]

    def _write_some(self, file, view):
        """How much of it was written; where the input is full, after a moment. Raises OSError."""
        try:
            return file.write(view)
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.ENOSPC) or self._is_over():
                raise
            return 0

    def _is_over(self):
        """Waits a moment. True: the cell has ended meanwhile."""
        time.sleep(_FULL_S)
        return bool(select.select([self._stop], [], [], 0)[0])

    def _end(self, rank):
        """The rank's input ends."""
        try:
            self._tool.tell(f"rank{rank}/ctl", "eof")
        except OSError as e:
            say(f"rank {rank} waits for input, which has ended: {e.strerror}")


def _is_foreground():
    """False for a job in the background, which reading from the terminal would stop."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True
