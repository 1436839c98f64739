"""A cell on the mount: submitting it, following its stream, interrupting it.

Both the magics and the shell tool use this module, so it needs only the standard library. They
decide what to show of the stream.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import signal
import threading
import time

from ddip.cells import wakeup
from ddip.errors import DipError
from ddip.mounts import files, p9

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any

    from typing_extensions import Self

    from ddip.groups import Group
    from ddip.mounts.files import OpenFile


SOURCE_MAX = 16 << 20
_LINES_MAX = 1 << 14
_ANSWER_MAX = 64  # size of the first read, which submits the cell and returns its number
_ABANDON = 3  # after this many interrupts, follow() no longer waits
ONE_S = 0.5  # signals that end a process and come within this time of another are one request

_decode = json.JSONDecoder().raw_decode  # without what json.loads() does for other encodings
# Finds the rank of a line without parsing it: "rank" is the last key of every message.
_RANK = re.compile(rb'"rank": ?(\d+)\}$')


def named(task: dict[str, Any]) -> str:
    """What a task of `queue` is, and whose: the words of ddipfs."""
    name = task["id"] if task["name"] is None else f"{task['kind']} of {task['name']}"
    text = f"cell {name}" if name.isdecimal() else name
    if task["pid"] is None:
        return text
    if task["program"] is None:
        return f"{text} of pid {task['pid']}"
    return f"{text} of {task['program']} (pid {task['pid']})"


class Cell:
    """One submitted cell."""

    def __init__(self, group: Group, number: int, stream: OpenFile | None = None) -> None:
        """stream: an open file to read its stream from, if there is one already."""
        self.group = group
        self.number = number
        # tasks that it was queued behind when it was interrupted, and that go on
        self.front: list[dict[str, Any]] = []
        self._stream = stream

    @property
    def path(self) -> str:
        """Its directory."""
        return os.path.join(self.group.path, "cells", str(self.number))

    def read(self, name: str) -> str:
        """The text of a file of the cell."""
        return self.group.read(f"cells/{self.number}/{name}")

    def status(self) -> dict[str, str]:
        """`status` as a dictionary: state, ranks …"""
        return dict(line.partition(" ")[::2] for line in self.read("status").splitlines())

    def verdict(self) -> str:
        """Which rank waits for which in this cell, as `stall` has it; "" if that is not certain
        now, whatever was so before."""
        try:
            stall = json.loads(self.group.read("stall.json"))
        except OSError:
            return ""
        return self.judged(stall).get("text", "")

    def judged(self, stall: dict[str, Any]) -> dict[str, Any]:
        """The most telling verdict of a `stall.json` on this cell; {}: nothing is certain."""
        own = {rank["rank"] for rank in stall["ranks"] if rank["cell"] == self.number}
        found = (v for v in stall["verdicts"] if own & {*(v["waiting"] or v["ranks"])})
        return next(found, {})

    def in_front(self) -> list[dict[str, Any]]:
        """The tasks of `queue.json` that run where it is queued; [] if it is not queued, or its
        ranks are not ready."""
        try:
            tasks = {task["id"]: task for task in json.loads(self.group.read("queue.json"))}
        except OSError:
            return []
        own = tasks.get(str(self.number))
        if own is None or own["state"] != "queued":
            return []
        return [
            task
            for task in tasks.values()
            if task["state"] == "running" and set(task["ranks"]) & set(own["ranks"])
        ]

    def waits_for(self) -> str:
        """What in_front() returns, in words: "cell 12 of python3 train.py (pid 4711)"; or ""."""
        return " and ".join(map(named, self.in_front()))

    def has_ended(self, wait_ms: float | None = None) -> bool:
        """True if it has ended; waits up to wait_ms milliseconds for that (None: forever)."""
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

    def open_stream(self) -> OpenFile:
        """An open file to read its stream from, at the beginning."""
        stream, self._stream = self._stream, None
        return stream or files.open_(os.path.join(self.path, "stream"))

    def interrupt(self) -> None:
        """Interrupts only this cell: drops it if it is queued; no effect if it has ended."""
        files.write(os.path.join(self.path, "ctl"), b"interrupt\n")


def submit(group: Group, source: str | bytes, ranks: str | None = None) -> Cell:
    """Queues a cell's source (text or bytes) on a list of ranks ("0,2-3"; None: all).

    Returns the Cell. Raises DipError.
    """
    data = _data_of(source)
    with _RefusalsTold(group), _open(group, "cell", ranks, os.O_NONBLOCK) as file:
        return Cell(group, int(_submit(file, data)))


class submitted:
    """Like submit(), as a context in which follow() reads the stream from the same open file."""

    def __init__(self, group: Group, source: str | bytes, ranks: str | None = None) -> None:
        self._group, self._data, self._ranks = group, _data_of(source), ranks
        self._file: Any = None

    def __enter__(self) -> Cell:
        with _RefusalsTold(self._group):
            self._file = _open(self._group, "stream", self._ranks)
            try:
                line = _submit(self._file, self._data)
                return Cell(self._group, _parsed(line)["cell"], self._file)
            except BaseException:
                with contextlib.suppress(OSError):
                    self._file.close()
                raise

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        self._file.__exit__(kind, *exc_info)


@contextlib.contextmanager
def steered(group: Group, source: str | bytes) -> Iterator[Cell]:
    """Like submitted(), for a source that runs within the running cell; it is withdrawn with its
    writer."""
    data = _data_of(source)
    with contextlib.ExitStack() as opened:
        with _RefusalsTold(group):
            file = opened.enter_context(_open(group, "steer", None))
            line = _submit(file, data)
        yield Cell(group, int(line.split()[0]))


@contextlib.contextmanager
def watched(
    group: Group, source: str | bytes, keeps: bool = False
) -> Iterator[tuple[Cell, Iterator[str]]]:
    """Watches the running cell. Yields (the watch's Cell, its news: an iterator of lines, which
    ends when it has stopped the ranks, or has ended). It ends with this context, unless it
    keeps."""
    data = _data_of(source)
    with contextlib.ExitStack() as opened:
        with _RefusalsTold(group):
            flags = os.O_NONBLOCK if keeps else 0
            file: Any = opened.enter_context(_open(group, "watch", None, flags))
            line = _submit(file, data)
        if keeps:
            file = opened.enter_context(files.open_(os.path.join(group.path, "watch")))
            file.read(_LINES_MAX)  # the same line
        yield Cell(group, int(line.split()[0])), _lines(file)


def _lines(file):
    rest = b""
    while data := file.read(_LINES_MAX):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")


def _data_of(source):
    data = source if isinstance(source, bytes) else source.encode("utf-8", "surrogatepass")
    if len(data) > SOURCE_MAX:
        raise DipError(f"a cell has at most {SOURCE_MAX} bytes: import a module instead")
    return data if data.strip() else b"pass\n"


class _RefusalsTold:
    """Turns an OSError within into a DipError that says why the cell was refused."""

    def __init__(self, group):
        self._group, self._since = group, time.time()

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        if isinstance(error, OSError):
            text = "the cell could not be submitted"
            raise self._group.error_from(error, text, self._since) from error


def _open(group, name, ranks, flags=0):
    path = os.path.join(group.path, f"{name}.{ranks}" if ranks else name)
    with group.existing():
        return files.open_(path, os.O_RDWR | flags)


def _submit(file, data):
    """Writes the source and submits it by a read. Returns what was read: the cell's number."""
    files.write_all(file, data)
    return file.read(_ANSWER_MAX)


class Interrupts:
    """Handles SIGINT from before a cell is submitted until it has ended.

    Each SIGINT interrupts the cell and never cuts a message short; the third also stops waiting
    for the cell. Before there is a cell, the first two are deferred until follow(). If the daemon
    does not answer, the third ends that wait as well, and what follows until the end of this waits
    only a moment for each reply. That is so on a socket: what a mount of the kernel's does not
    answer cannot be left.

    Does nothing outside the main thread, where Python delivers no signals, or for a SIGINT that is
    ignored, as in a process that a shell put into the background, or that has a handler of C, which
    Python could not put back.

    also: signals that do the same, unless they have a handler or are ignored, as nohup ignores
    SIGHUP. ended_by is the first of them that came, or None. Who ends a process may send it two:
    timeout(1) signals the process and its group, a shell and a terminal that closes send SIGHUP.
    Those are one interrupt.

    leaves(): returns True if the interrupt that has come means that this process ends: then the
    cell goes on, and the wait for it ends with KeyboardInterrupt. has_left says so.

    stop(cell): interrupts it.
    """

    def __init__(
        self,
        also: Iterable[int] = (),
        leaves: Callable[[], bool] | None = None,
        stop: Callable[[Cell], object] = Cell.interrupt,
    ) -> None:
        self.count = 0
        self.ended_by: int | None = None
        self._acted = -ONE_S  # when one of `also` was acted upon
        self.has_left = False
        self._leaves = leaves
        self._stop = stop
        self._cell: Any = None  # the Cell, once there is one
        self._attached = False  # the cell is only watched
        self._acts = False  # a handler has not yet returned from the mount
        self._before: dict[int, Any] = {}  # signal -> its handler outside
        self._taken: list[int] = []
        if _is_main_thread():
            self._taken = [each for each in also if signal.getsignal(each) == signal.SIG_DFL]
            if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
                self._taken.append(signal.SIGINT)

    def __enter__(self) -> Self:
        if self._taken:
            self._before = {each: signal.signal(each, self._on_signal) for each in self._taken}
            wakeup.enter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._taken:
            wakeup.leave()
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        if self._taken and self.count >= _ABANDON:
            p9.hurry(False)

    def follows(self, cell: Cell, attached: bool) -> None:
        """Directs interrupts to this cell; attached: Ctrl-C only stops following it."""
        self._attached, self._cell = attached, cell
        if self.count:
            self._act()

    def _on_signal(self, signum, frame):
        wakeup.ran()
        ends = signum != signal.SIGINT
        if ends and time.monotonic() < self._acted + ONE_S:
            return
        self.count += 1
        if ends:
            self.ended_by = self.ended_by or signum
            self._acted = math.inf
        try:
            if self.count >= _ABANDON and (self._acts or self._cell is None):
                p9.hurry(True)  # the mount may not answer at all
                raise KeyboardInterrupt
            if self._cell is not None:
                self._act()
        finally:
            if ends:
                self._acted = time.monotonic()

    def _act(self):
        if not self._attached:
            before, self._acts = self._acts, True
            try:
                self.pass_on()
            finally:
                self._acts = before
        if self._attached or self.count >= _ABANDON:
            raise KeyboardInterrupt

    def pass_on(self) -> None:
        """Interrupts the cell. Raises KeyboardInterrupt if this process ends instead."""
        self.has_left = self.has_left or (self._leaves is not None and self._leaves())
        if self.has_left:
            raise KeyboardInterrupt
        with contextlib.suppress(FileNotFoundError):  # it has ended and left the history
            self._stop(self._cell)


@contextlib.contextmanager
def default_interrupts() -> Iterator[None]:
    """For use within follow(): Ctrl-C raises KeyboardInterrupt, as usual."""
    takes = _is_main_thread() and signal.getsignal(signal.SIGINT) is not None
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if takes else None
    try:
        yield
    finally:
        if takes:
            signal.signal(signal.SIGINT, before)


def _is_main_thread():
    return threading.current_thread() is threading.main_thread()


def follow(
    cell: Cell,
    take: Callable[[list[dict[str, Any]]], object],
    patience: Callable[[], float | None] | None = None,
    seen: Collection[int] | None = None,
    attached: bool = False,
    interrupts: Interrupts | None = None,
) -> dict[str, Any]:
    """Calls take(messages) for each batch of the cell's stream, until its end.

    patience() returns the milliseconds without messages after which to call take([]); None:
    never. seen: the set of ranks whose text is wanted, which may grow (None: all); text of other
    ranks is not parsed. attached: the cell is only watched, and Ctrl-C does not interrupt it.
    interrupts: the Interrupts that the cell was submitted within.

    Returns the final status message, with the number of interrupts as "interrupts". Raises
    KeyboardInterrupt at the third Ctrl-C (attached: the first), DipError if the mount goes away.
    What take() raises interrupts the cell, unless it is only watched; an OSError of its own is a
    DipError that says so.
    """
    end: dict[str, Any] = {}
    with contextlib.nullcontext(interrupts) if interrupts else Interrupts() as taken:
        with losses_told(cell):
            taken.follows(cell, attached)
        with contextlib.closing(_batches(cell, patience, seen)) as batches:
            for messages, end in batches:
                try:
                    if messages is not None:
                        take(messages)
                except Exception as e:
                    _untaken(cell, e, attached or bool(end))
                    raise
    end["interrupts"] = taken.count
    return end


def _untaken(cell, error, stays):
    """Interrupts a cell whose output could not be taken. stays: it has ended, or is only watched.
    An OSError becomes a DipError."""
    try:
        with losses_told(cell):
            cell.status() if stays else cell.interrupt()
    except DipError as lost:
        raise lost from error
    if isinstance(error, OSError):
        what = "cannot be shown" if stays else "was interrupted, as it cannot be shown"
        text = f"cell {cell.number} {what} here: {type(error).__name__}: {error}"
        raise DipError(text, error.errno) from error


class losses_told:
    """Turns an OSError within into a DipError that says why the cell cannot be looked at."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise _broken_off(self._cell, error) from error


def _broken_off(cell, error):
    """The DipError for a cell that cannot be followed."""
    text = error.strerror
    if error.errno == errno.ENOENT and cell.group.status():
        text = f"it is no longer in the history of {cell.group.path}"
    elif error.errno in (errno.ENOENT, errno.ENOTCONN, errno.ENODEV, errno.ECONNABORTED):
        text = "its group or its mount has gone"
    elif error.errno == errno.EDEADLK:
        with contextlib.suppress(OSError):
            cell.interrupt()  # drops it: it is queued behind the calling cell
        text = "deadlock: the rank that runs this would wait for its own running cell"
    return DipError(f"cell {cell.number}: {text}", error.errno)


def _batches(cell, patience, seen):
    """The batches of a cell's stream, each as (messages, its end or {}); messages: None if there
    are none but the end, [] if none came for as long as patience() says."""
    with losses_told(cell):
        yield from _read_batches(cell, patience, seen)


def _read_batches(cell, patience, seen):
    # The daemon reports a rank that would wait for itself, but only in a read that would block.
    if os.environ.get("TORCHELASTIC_RUN_ID", "").startswith("ddip"):
        patience = None
    rest, looks_last, count = b"", False, files.FIRST_READ
    with cell.open_stream() as stream:
        while True:
            # a poll costs two more requests, so without a timeout the read itself waits
            wait_ms = patience() if patience else None
            if wait_ms is not None and not stream.poll(wait_ms):
                yield [], {}
                continue
            data = stream.read(count)
            count = files.next_read(count, len(data))
            if not data:
                looks_last = _look_again(cell, looks_last)
                if patience:
                    yield [], {}
                continue
            *lines, rest = (rest + data).split(b"\n")
            messages = [_parsed(line) for line in lines if _is_wanted(line, seen)]
            ended = bool(messages) and messages[-1]["type"] == "status"
            end = messages.pop() if ended else {}
            if messages or ended:
                yield messages or None, end
            if ended:
                return


def _look_again(cell, looked_last):
    """Waits a moment after an empty read: over sshfs a stream ends after the data so far.

    Returns True if the cell has ended: if the next read is empty too, the rest will never come.
    """
    if looked_last:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    if cell.status()["state"] not in ("queued", "running"):
        return True
    time.sleep(files.LOOK_S)
    return False


def _parsed(line):
    """A line of the stream."""
    return _decode(line.decode("utf-8", "surrogatepass"))[0]


def _is_wanted(line, seen):
    if seen is None or not line.startswith(b'{"type":"stream"'):
        return bool(line)
    found = _RANK.search(line)
    return found is None or int(found[1]) in seen
