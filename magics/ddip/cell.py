"""A cell on its way through the mount: submitting, following its stream, interrupting it.

What is shown of the stream is show.py's business.
"""

import contextlib
import errno
import json
import os
import re
import select
import signal
import threading
import time

from ddip.errors import DipError

SOURCE_MAX = 16 << 20
_PIECE = 1 << 20
_ABANDON = 3  # interrupts after which nothing more is waited for

# The rank of a line, without parsing it: it is the last key of every message.
_RANK = re.compile(rb'"rank": ?(\d+)\}$')


class Cell:
    """One submitted cell."""

    def __init__(self, group, number):
        self.group = group
        self.number = number
        self.path = os.path.join(group.path, "cells", str(number))

    def read(self, name):
        """The text of a file of the cell."""
        return self.group.read(f"cells/{self.number}/{name}")

    def interrupt(self):
        """Interrupts this cell only; one that is queued is dropped, one that ended stays as is."""
        fd = os.open(os.path.join(self.path, "ctl"), os.O_WRONLY)
        try:
            os.write(fd, b"interrupt\n")
        finally:
            os.close(fd)


def submit(group, source, ranks=None):
    """Queues a source on the ranks of a list ("0,2-3", None: all). Returns the Cell."""
    data = source.encode("utf-8", "surrogatepass")
    if len(data) > SOURCE_MAX:
        raise DipError(f"a cell has at most {SOURCE_MAX} bytes: import a module instead")
    if not data.strip():
        data = b"pass\n"
    since = time.time()
    path = os.path.join(group.path, f"cell.{ranks}" if ranks else "cell")
    try:
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            # reading on the descriptor that wrote submits, and gives the number
            number = int(os.read(fd, 32))
        finally:
            os.close(fd)
    except OSError as e:
        raise group.why(e, "the cell could not be submitted", since) from e
    return Cell(group, number)


class _Interrupts:
    """Takes SIGINT while a cell is followed: each one interrupts the cell, none tears a message.

    act: what the first and second do; None: the third's effect at once. In another thread than
    the main one Python has no signals, and nothing is done.
    """

    def __init__(self, act):
        self.count = 0
        self._act = act
        self._before = None
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self):
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *exc_info):
        if self._main:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, signum, frame):
        self.tell()
        if self._act is None or self.count >= _ABANDON:
            raise KeyboardInterrupt

    def tell(self):
        """One more interrupt."""
        self.count += 1
        if self._act is not None:
            self._act()


@contextlib.contextmanager
def default_interrupts():
    """Within follow(): Ctrl-C raises KeyboardInterrupt as it does elsewhere."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, before)


def follow(cell, take, patience=None, seen=None, attached=False):
    """Calls take(messages) for each batch of the cell's stream, until its end.

    patience() gives the milliseconds after which take([]) is called when nothing comes; None:
    never. seen: ranks whose text is wanted; of others only what is no text is parsed. attached:
    the cell is somebody else's, Ctrl-C leaves it alone. Returns the final status message, with
    the number of interrupts as "interrupts". Raises KeyboardInterrupt if told three times to let
    go, DipError if the mount goes away.
    """

    def interrupt():
        try:
            cell.interrupt()
        except FileNotFoundError:
            pass  # it has ended, and the history has dropped it

    with _Interrupts(None if attached else interrupt) as interrupts:
        try:
            end = _pump(cell, take, patience, seen, interrupts)
        except OSError as e:
            gone = e.errno in (errno.ENOTCONN, errno.ENODEV, errno.ECONNABORTED)
            text = "its group or its mount has gone" if gone else e.strerror
            raise DipError(f"cell {cell.number}: {text}") from e
    end["interrupts"] = interrupts.count
    return end


def _pump(cell, take, patience, seen, interrupts):
    rest = b""
    with open(os.path.join(cell.path, "stream"), "rb", buffering=0) as stream:
        poller = select.poll()
        poller.register(stream, select.POLLIN)
        while True:
            if not poller.poll(patience() if patience else None):
                take([])
                continue
            data = stream.read(_PIECE)
            if not data:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
            *lines, rest = (rest + data).split(b"\n")
            messages = [json.loads(line) for line in lines if _is_wanted(line, seen)]
            ended = bool(messages) and messages[-1]["type"] == "status"
            end = messages.pop() if ended else None
            if messages:
                take(messages)
            if ended:
                return end


def _is_wanted(line, seen):
    if seen is None or not line.startswith(b'{"type":"stream"'):
        return bool(line)
    found = _RANK.search(line)
    return found is None or int(found[1]) in seen
