"""The tool's standard input, for ranks that ask for input while a cell runs.

It is touched only when a rank asks. One rank gets it; on a terminal a line for each time that it
asks. What is no terminal is passed on to its end, and all others find the end at once, as workers
of torchrun do.
"""

import errno
import os
import select
import threading
import time

from tool import say

_PIECE = 64 << 10
_FULL_S = 0.05  # between two attempts to write into an input that is full


class Stdin:
    """Passes standard input to the ranks of one cell, while the context lasts."""

    def __init__(self, tool, rank, ended=False):
        self._tool = tool
        self._rank = rank  # the one that gets it
        self._ended = ended  # nothing more comes
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
        """Passes on a line of the terminal for each request, or all that comes until the end."""
        while self._is_wanted() and self._wait():
            try:
                data = os.read(0, _PIECE)
            except OSError:  # closed, or a terminal that is gone
                data = b""
            if self._terminal:
                self._wanted = False  # the rank asks again when it has got the line
            elif not data:
                self._ended = True
            if not data:
                self._end(self._rank)
            if not (data or self._terminal) or not self._write(data):
                return

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
        """Writes it into the rank's input. False: nobody takes it any more."""
        path = self._tool.path(f"rank{self._rank}/stdin")
        try:
            fd = os.open(path, os.O_WRONLY)
        except OSError:
            return False
        try:
            view = memoryview(data)
            while view:
                try:
                    view = view[os.write(fd, view) :]
                except OSError as e:
                    if e.errno not in (errno.EAGAIN, errno.ENOSPC) or self._is_over():
                        return False
        finally:
            os.close(fd)
        return True

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
