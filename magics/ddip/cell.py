"""A cell on its way through the mount: submitting, following its stream, interrupting it.

The magics and the shell tool both use it, so it imports the standard library alone. What is shown
of the stream is their business.
"""

import contextlib
import errno
import json
import os
import re
import signal
import threading
import time

from ddip import files, wakeup
from ddip.errors import DipError

SOURCE_MAX = 16 << 20
_ANSWER_MAX = 64  # the first read of what submits a cell: its number
_ABANDON = 3  # interrupts after which nothing more is waited for

# The rank of a line, without parsing it: it is the last key of every message.
_RANK = re.compile(rb'"rank": ?(\d+)\}$')


class Cell:
    """One submitted cell."""

    def __init__(self, group, number, stream=None):
        """stream: an open file that gives its stream, if there is one already."""
        self.group = group
        self.number = number
        self._stream = stream
        self.path = os.path.join(group.path, "cells", str(number))

    def read(self, name):
        """The text of a file of the cell."""
        return self.group.read(f"cells/{self.number}/{name}")

    def status(self):
        """`status` as a dictionary: state, ranks …"""
        return dict(line.partition(" ")[::2] for line in self.read("status").splitlines())

    def has_ended(self, wait_ms=None):
        """True as soon as it has; waits so long for it (None: for ever)."""
        end = None if wait_ms is None else time.monotonic() + wait_ms / 1000
        with files.open_(os.path.join(self.path, "wait")) as wait:
            while True:
                left_ms = None if end is None else max(0, (end - time.monotonic()) * 1000)
                if not wait.poll(left_ms):
                    return False
                if wait.read(1):
                    return True
                if left_ms == 0:
                    return False
                time.sleep(files.LOOK_S)

    def open_stream(self):
        """An open file that gives its stream from the beginning."""
        stream, self._stream = self._stream, None
        return stream or files.open_(os.path.join(self.path, "stream"))

    def interrupt(self):
        """Interrupts this cell only; one that is queued is dropped, one that ended stays as is."""
        files.write(os.path.join(self.path, "ctl"), b"interrupt\n")


def submit(group, source, ranks=None):
    """Queues a source (text or bytes) on the ranks of a list ("0,2-3", None: all).

    Returns the Cell. Raises DipError.
    """
    data = _data_of(source)
    with _refusals_told(group), _open(group, "cell", ranks, os.O_NONBLOCK) as file:
        return Cell(group, int(_submit(file, data)))


@contextlib.contextmanager
def submitted(group, source, ranks=None):
    """The same for a cell that follow() is called for in the context: it needs no other file."""
    data = _data_of(source)
    with contextlib.ExitStack() as opened:
        with _refusals_told(group):
            file = opened.enter_context(_open(group, "stream", ranks))
            line = _submit(file, data)
        yield Cell(group, json.loads(line)["cell"], file)


def _data_of(source):
    data = source if isinstance(source, bytes) else source.encode("utf-8", "surrogatepass")
    if len(data) > SOURCE_MAX:
        raise DipError(f"a cell has at most {SOURCE_MAX} bytes: import a module instead")
    return data if data.strip() else b"pass\n"


@contextlib.contextmanager
def _refusals_told(group):
    """An OSError within is the DipError that says why the cell was refused."""
    since = time.time()
    try:
        yield
    except OSError as e:
        raise group.error_from(e, "the cell could not be submitted", since) from e


def _open(group, name, ranks, flags=0):
    path = os.path.join(group.path, f"{name}.{ranks}" if ranks else name)
    return files.open_(path, os.O_RDWR | flags)


def _submit(file, data):
    """Reading on the descriptor that wrote submits. Returns what was read: the cell's number."""
    files.write_all(file, data)
    return file.read(_ANSWER_MAX)


class Interrupts:
    """Takes SIGINT from before a cell is submitted until it has ended.

    Each one interrupts the cell, none tears a message; the third lets go of it as well. What
    comes while there is no cell yet waits for follow(). In another thread than the main one
    Python has no signals, and a process that a shell put into the background ignores this one:
    nothing is done.
    """

    def __init__(self):
        self.count = 0
        self._cell = None
        self._attached = False  # the cell is somebody else's
        self._before = None
        self._takes = _is_main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN

    def __enter__(self):
        if self._takes:
            self._before = signal.signal(signal.SIGINT, self._on_signal)
            wakeup.enter()
        return self

    def __exit__(self, *exc_info):
        if self._takes:
            wakeup.leave()
            signal.signal(signal.SIGINT, self._before)

    def follows(self, cell, attached):
        """From now on they are for this cell; attached: Ctrl-C leaves it alone and lets go."""
        self._attached, self._cell = attached, cell
        if self.count:
            self._act()

    def _on_signal(self, signum, frame):
        wakeup.ran()
        self.count += 1
        if self._cell is not None:
            self._act()

    def _act(self):
        if not self._attached:
            try:
                self._cell.interrupt()
            except FileNotFoundError:
                pass  # it has ended, and the history has dropped it
        if self._attached or self.count >= _ABANDON:
            raise KeyboardInterrupt


@contextlib.contextmanager
def default_interrupts():
    """Within follow(): Ctrl-C raises KeyboardInterrupt as it does elsewhere."""
    takes = _is_main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if takes else None
    try:
        yield
    finally:
        if takes:
            signal.signal(signal.SIGINT, before)


def _is_main_thread():
    return threading.current_thread() is threading.main_thread()


def follow(cell, take, patience=None, seen=None, attached=False, interrupts=None):
    """Calls take(messages) for each batch of the cell's stream, until its end.

    patience() gives the milliseconds after which take([]) is called when nothing comes; None:
    never. seen: set of ranks whose text is wanted, which may grow; of others only what is no text
    is parsed. attached: the cell is somebody else's, Ctrl-C leaves it alone. interrupts: the
    Interrupts that the cell was submitted within.

    Returns the final status message, with the number of interrupts as "interrupts". Raises
    KeyboardInterrupt if told three times to let go, DipError if the mount goes away.
    """
    with contextlib.nullcontext(interrupts) if interrupts else Interrupts() as taken:
        try:
            taken.follows(cell, attached)
            end = _pump(cell, take, patience, seen)
        except OSError as e:
            raise _broken_off(cell, e) from e
    end["interrupts"] = taken.count
    return end


def _broken_off(cell, error):
    """The DipError for a cell that cannot be followed."""
    text = error.strerror
    if error.errno in (errno.ENOTCONN, errno.ENODEV, errno.ECONNABORTED):
        text = "its group or its mount has gone"
    elif error.errno == errno.EDEADLK:
        with contextlib.suppress(OSError):
            cell.interrupt()  # it is queued behind the cell that calls: it is dropped
        text = "deadlock: the rank that runs this would wait for its own running cell"
    return DipError(f"cell {cell.number}: {text}", error.errno)


def _pump(cell, take, patience, seen):
    # To a rank that would wait for itself the daemon says so, but only in a read that would block.
    if os.environ.get("TORCHELASTIC_RUN_ID", "").startswith("ddip"):
        patience = None
    rest, looks_last, count = b"", False, files.FIRST_READ
    with cell.open_stream() as stream:
        while True:
            # a poll is two more requests: without a time to look at, the read waits
            wait_ms = patience() if patience else None
            if wait_ms is not None and not stream.poll(wait_ms):
                take([])
                continue
            data = stream.read(count)
            count = files.next_read(count, len(data))
            if not data:
                looks_last = _look_again(cell, looks_last)
                continue
            *lines, rest = (rest + data).split(b"\n")
            messages = [json.loads(line) for line in lines if _is_wanted(line, seen)]
            ended = bool(messages) and messages[-1]["type"] == "status"
            end = messages.pop() if ended else None
            if messages:
                take(messages)
            if ended:
                return end


def _look_again(cell, looked_last):
    """Waits a moment after a read that gave nothing: over sshfs a stream gives what is there.

    Returns True if the cell has ended, so that the next read gives its end, or nothing ever will.
    """
    if looked_last:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    if cell.status()["state"] not in ("queued", "running"):
        return True
    time.sleep(files.LOOK_S)
    return False


def _is_wanted(line, seen):
    if seen is None or not line.startswith(b'{"type":"stream"'):
        return bool(line)
    found = _RANK.search(line)
    return found is None or int(found[1]) in seen
