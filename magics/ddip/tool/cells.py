"""Runs a cell, from its submission to its exit status, and prints its output; exec and wait."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import sys

from ddip.cells import cell as cells
from ddip.errors import DipError
from ddip.mounts import files
from ddip.ranks import parse
from ddip.shown.elapsed import Elapsed
from ddip.tool.call import (
    ENDING,
    NOTHING,
    OK,
    RAISED,
    REFUSED,
    Failure,
    Options,
    bytes_of,
    complain,
    failure_of,
    put_out,
    say,
    status_of,
    write_all,
)
from ddip.tool.lines import Lines
from ddip.tool.stdin import Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    from ddip.tool.call import Tool

    class Input(Protocol):
        """What passes input to the ranks that ask for it."""

        def ask(self, rank: int, secret: bool = False, always: bool = False) -> None: ...

        def end(self, rank: int) -> None: ...


_STATUS = 1 << 16  # bytes to read of a cell's status, enough for its state
_SIGNALLED = 128  # plus the signal: the exit status that a shell gives
_QUEUED_MS = 1000  # after this long without output, checks whether the cell runs at all
_ANY = 1 << 16  # group size to assume while it is not known
_UNKNOWN = "\ufffd"
_UNKNOWN_BYTES = _UNKNOWN.encode()
_MOVES = re.compile("\x1b(?!\\[[0-9;]*m)")  # an escape sequence, but no colour
FLAGS = {"a": "all", "q": "quiet", "d": "detach"}
VALUED = {"r": "ranks"}
_IN_FRAME = "# ddip frame: "  # and a number: how a cell begins that runs in a frame of a failure

_LIST = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
_ASKS = ("input_request", "input_watched")
_LATE_S = 1  # so long after the end of a cell the loss of its output may be noticed


def _check(tool: Tool, ranks: str) -> None:
    """Checks a list of ranks: as part of a file's name, a wrong one is just an invalid name."""
    try:
        found = _LIST.fullmatch(ranks) and parse([ranks], _ANY)
    except DipError:
        found = None
    if not found:
        raise tool.misuse(f"ranks: want e.g. 0,2-3, not '{ranks}'")
    try:
        parse([ranks], tool.group.size or _ANY)
    except DipError as e:
        raise Failure(NOTHING, str(e)) from None


class Choice:
    """Which ranks run a cell and what is shown of it, from the options of a verb."""

    def __init__(self, tool: Tool, options: Options, red: bool = True) -> None:
        """red: stderr is red on a terminal. Raises Failure if -r names no ranks of the group."""
        self.red = red and os.isatty(2)
        self.ranks = options.last("ranks")  # a list as in _LIST; None: all
        if self.ranks is not None:
            _check(tool, self.ranks)
        digits = re.match("[0-9]+", self.ranks or "")
        self.first = int(digits[0]) if digits else 0  # the rank that is shown and gets the input
        self.label = options.has("all")
        # the ranks that are shown, if others than the first or all
        self.only: set[int] | None = None
        self.quiet = options.has("quiet")
        self.detach = options.has("detach")
        self.steers = False  # it runs within the running cell

    def shown(self) -> set[int] | None:
        """The ranks whose output is shown; None: all."""
        if self.quiet:
            return set()
        if self.only is not None:
            return self.only
        return None if self.label else {self.first}

    def is_plain(self) -> bool:
        """True if the output of the first rank is shown, as it is."""
        return not self.label and self.shown() == {self.first}


class Printer:
    """Prints the output of the chosen ranks from a cell's stream, to stdout or stderr."""

    def __init__(self, cell: cells.Cell, choice: Choice, results: bool) -> None:
        self._exact = Exact(cell.path)
        self._seen = choice.shown()
        self._label = choice.label
        self._results = results  # also prints the values of last expressions
        self._red = choice.red
        self.has_running_line = (
            os.isatty(1)
            and os.isatty(2)
            and os.environ.get("TERM", "dumb") != "dumb"
            and not choice.quiet
        )
        self._lines = Lines(self._write)
        self.is_at_begin = True  # of a line, and nothing has moved the cursor elsewhere
        self._moves = False
        # the stream and the error of the first write that failed
        self.failed: tuple[str, OSError] | None = None
        self.dropped = 0  # bytes that the mount did not keep
        self.is_unread = False  # what it writes to is a pipe that nobody reads any more

    def take(self, message: dict[str, Any]) -> None:
        """Prints a message if it is to be shown."""
        kind, rank = message["type"], message.get("rank")
        if self._seen is not None and rank is not None and rank not in self._seen:
            return
        if kind == "dropped":
            self.dropped += message["bytes"]
        if kind == "notice":
            say(message["text"])
        if kind == "stream":
            text = self._exact.text(message["rank"], message["name"], message["text"])
            self._put(2 if message["name"] == "stderr" else 1, message["rank"], text)
        elif kind == "display_data" or (kind == "execute_result" and self._results):
            self._put(1, message["rank"], message["data"].get("text/plain", "") + "\n")

    def patience(self) -> int | None:
        """The milliseconds until go_on() has something to do; None: forever."""
        return self._lines.patience()

    def go_on(self) -> None:
        """Shows what has been held back for too long."""
        self._lines.show_late()

    def show_held(self, rank: int | None = None) -> None:
        """Shows all that is held back of one rank, or of all."""
        self._lines.show(rank)

    def _put(self, fd: int, rank: int, text: str) -> None:
        if self._label:
            self._lines.take(fd, rank, text)
        else:
            self._write(fd, text)

    def _write(self, fd: int, text: str) -> None:
        self._moves = self._moves or _MOVES.search(text) is not None
        self.is_at_begin = text[-1:] == "\n" and not self._moves
        if self._red and fd == 2:
            text = f"\x1b[31m{text}\x1b[0m"
        try:
            write_all(fd, bytes_of(text))
        except OSError as e:
            self.is_unread = self.is_unread or isinstance(e, BrokenPipeError)
            if fd == 1 or e.errno != errno.EBADF:  # a closed stderr is closed on purpose
                self.failed = self.failed or ("stderr" if fd == 2 else "stdout", e)


class Exact:
    """Restores bytes that are not UTF-8: a stream has U+FFFD for each, the rank's file has them."""

    def __init__(self, path: str) -> None:
        self._path = path
        # (rank, name of the stream) -> bytes of it so far
        self._at: dict[tuple[int, str], int] = {}

    def text(self, rank: int, name: str, text: str) -> str:
        """The next piece of a stream, with those bytes in the form of surrogateescape."""
        at = self._at.get((rank, name), 0)
        data = text.encode("utf-8", "surrogatepass")
        if _UNKNOWN in text:
            data = self._look(f"{self._path}/rank{rank}/{name}", at, text) or data
        self._at[rank, name] = at + len(data)
        return data.decode("utf-8", "surrogateescape") if _UNKNOWN in text else text

    @staticmethod
    def _look(path: str, at: int, text: str) -> bytes | None:
        """The bytes at this offset of the file; None if they do not match or are no longer kept."""
        most = len(text.encode("utf-8", "surrogatepass"))
        try:
            with files.open_(path) as file:
                data = files.read_range(file, at, at + most)
        except OSError:
            return None
        end = 0
        for i, part in enumerate(text.split(_UNKNOWN)):
            if i:
                end += len(_UNKNOWN_BYTES) if data.startswith(_UNKNOWN_BYTES, end) else 1
            known = part.encode("utf-8", "surrogatepass")
            if not data.startswith(known, end):
                return None
            end += len(known)
        return data[:end]


class Watch:
    """Follows one cell: prints its output, passes input on, explains why nothing arrives."""

    def __init__(
        self,
        tool: Tool,
        cell: cells.Cell,
        printer: Printer,
        stdin: Input,
        interrupts: cells.Interrupts,
    ) -> None:
        self._tool = tool
        self._cell = cell
        self._printer = printer
        self._stdin = stdin
        self._interrupts = interrupts
        self._begun = False
        self._running = Running(cell, printer)
        self.has_interrupted = False  # the cell, because nobody reads its output

    def patience(self) -> int | None:
        """See cell.follow()."""
        if not self._begun:
            return _QUEUED_MS
        waits = (self._printer.patience(), self._running.patience())
        return min((wait for wait in waits if wait is not None), default=None)

    def take(self, messages: list[dict[str, Any]]) -> None:
        """See cell.follow()."""
        if not messages and not self._begun:
            self._say_if_queued()
        self._begun = True
        if messages:
            self._running.end(any(m["type"] in _ASKS for m in messages))
        for message in messages:
            if message["type"] in _ASKS:
                self._ask(message)
            else:
                self._printer.take(message)
        self._printer.go_on()
        self._running.show()
        if self._printer.is_unread and not self.has_interrupted:
            self._interrupt()

    def _ask(self, message: dict[str, Any]) -> None:
        rank = message["rank"]
        if message["type"] == "input_request":
            self._printer.show_held(rank)
        if self._interrupts.ended_by:  # nobody is there any more
            self._stdin.end(rank)
        elif message["type"] == "input_request":
            self._stdin.ask(rank, bool(message.get("password")))
        else:
            self._stdin.ask(rank, always=True)

    def end(self) -> None:
        """The cell is followed no longer."""
        self._running.end()

    def _interrupt(self) -> None:
        """Interrupts the cell, as a broken pipe ends a program that prints."""
        self.has_interrupted = True
        self._tool.show(f"echo interrupt > {self._cell.path}/ctl")
        with contextlib.suppress(FileNotFoundError):  # it has ended and was dropped
            self._cell.interrupt()

    def _say_if_queued(self) -> None:
        if before := self._cell.waits_for():
            say(f"cell {self._cell.number} waits for {before}")


def _owns_terminal() -> bool:
    """False for a background job, whose user types something else meanwhile."""
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:
        return True


class Running:
    """The line below the output on a terminal, after a while without any: how long the cell has
    been running, or which rank waits for which. It is gone before there is anything else."""

    def __init__(self, cell: cells.Cell, printer: Printer) -> None:
        self._printer = printer
        self._elapsed = Elapsed(lambda: "", cell.verdict) if printer.has_running_line else None
        self._asks = self._shown = False

    def patience(self) -> int | None:
        """The milliseconds until show() has something to do; None: forever."""
        if self._elapsed is None or self._asks or not self._printer.is_at_begin:
            return None
        return math.ceil(self._elapsed.patience() * 1000)

    def show(self) -> None:
        """Shows the line, if it is due."""
        if self._elapsed is None or self.patience() != 0:
            return
        text = self._elapsed.line().rstrip("\n")
        if text and _owns_terminal():
            width = shutil.get_terminal_size().columns - 1
            complain(f"\r\x1b[K{text[:width]}")
            self._shown = True

    def end(self, asks: bool = False) -> None:
        """There is output. asks: a rank asks for input, and what is typed has the line."""
        if self._elapsed is not None:
            self._elapsed.moved()
        self._asks = asks
        if self._shown:
            complain("\r\x1b[K")
            self._shown = False


def run_cell(
    tool: Tool,
    source: str | bytes,
    choice: Choice,
    results: bool,
    stdin: AbstractContextManager[Input] | None = None,
    submitted: Callable[[cells.Cell], object] = lambda cell: None,
) -> int:
    """Runs a source on ranks and prints their output. Returns the exit status.

    stdin: passes input to the ranks. submitted(cell) is called once the cell is queued. Raises
    DipError if it cannot be queued. The signals ENDING interrupt the cell, as Ctrl-C does; then it
    raises SystemExit.
    """
    ranks = f".{choice.ranks}" if choice.ranks else ""
    if choice.detach:
        tool.show(f"exec 3<>{tool.path('cell' + ranks)}; dd >&3 <<<SOURCE; read number <&3")
        cell = cells.submit(tool.group, source, choice.ranks)
        submitted(cell)
        put_out(b"%d\n" % cell.number)
        return OK
    if choice.steers:
        tool.show(f"exec 3<>{tool.path('steer')}; dd >&3 <<<SOURCE; read number rest <&3")
        opened: AbstractContextManager[cells.Cell] = cells.steered(tool.group, source)
    else:
        tool.show(f"exec 3<>{tool.path('stream' + ranks)}; dd >&3 <<<SOURCE; cat <&3")
        opened = cells.submitted(tool.group, source, choice.ranks)
    with cells.Interrupts(also=ENDING) as interrupts, opened as cell:
        submitted(cell)
        status = _see_to_its_end(tool, cell, choice, results, stdin, interrupts)
    if interrupts.ended_by:  # not for the cell alone: a shell ends, too
        sys.exit(_SIGNALLED + interrupts.ended_by)
    return status


def _see_to_its_end(
    tool: Tool,
    cell: cells.Cell,
    choice: Choice,
    results: bool,
    stdin: AbstractContextManager[Input] | None,
    interrupts: cells.Interrupts,
) -> int:
    printer = Printer(cell, choice, results)
    with stdin or Stdin(tool, choice.first) as source:
        watch = Watch(tool, cell, printer, source, interrupts)
        try:
            end = cells.follow(cell, watch.take, watch.patience, choice.shown(), False, interrupts)
        except KeyboardInterrupt:
            say(f"cell {cell.number} goes on: ddip wait {cell.number}; ddip restart ends its ranks")
            raise
        finally:
            watch.end()
            printer.show_held()
    if end["interrupts"]:
        tool.show(f"echo interrupt > {cell.path}/ctl")
    status = status_of(end["state"])
    if end["state"] == "interrupted" and watch.has_interrupted:
        say(f"cell {cell.number} was interrupted: nobody reads its output any more")
    elif status != OK:
        traceback = tool.read(f"cells/{cell.number}/traceback")
        complain(traceback)
        if status != RAISED or not traceback:  # a start that failed has none
            complain(_new_lines(tool.read(f"cells/{cell.number}/error"), traceback))
    elif text := _missing(cell, choice, printer):
        raise Failure(REFUSED, text)
    return status


def _missing(cell: cells.Cell, choice: Choice, printer: Printer) -> str:
    """What to say if not all of the output was shown; "" if it was, or nobody reads it."""
    if printer.is_unread:
        return ""
    if printer.failed:
        name, error = printer.failed
        place = f"{cell.path}/rank{choice.first}/{name}"
        what = "standard error" if name == "stderr" else "standard output"
        return f"{what}: {error.strerror}; all of it is in {place}"
    if printer.dropped and not choice.quiet:
        return f"{printer.dropped} bytes of the ranks' output are missing: `spool` kept fewer"
    return _lost(cell, choice.shown())


def _lost(cell: cells.Cell, shown: set[int] | None) -> str:
    """The group's own words if output of these ranks (None: all) was lost while the cell ran."""
    try:
        lost = [
            each
            for each in cell.group.failures()
            if each["what"] == "output" and (not shown or each["rank"] in shown)
        ]
        status = cell.status() if lost else {}
    except OSError:  # the group or the cell is gone by now
        return ""
    began, ended = (float(status.get(key, 0)) for key in ("began", "ended"))
    found = [each["text"] for each in lost if began <= each["time"] < ended + _LATE_S]
    return "; ".join(found)


def _new_lines(error: str, traceback: str) -> str:
    """The lines of `error` whose text, without the rank, is not in the traceback."""
    lines = error.splitlines(keepends=True)
    said = [re.sub("^rank [0-9]+: ", "", line).strip() for line in lines]
    return "".join(line for line, text in zip(lines, said, strict=True) if text not in traceback)


def exec_code(tool: Tool, words: Sequence[str]) -> int:
    """ddip exec: runs one piece of Python, and prints its value as well."""
    options = Options(tool, words, FLAGS | {"F": "frame"}, VALUED | {"": "frame"})
    if len(options.rest) != 1:
        raise tool.misuse()
    source = options.rest[0] + "\n"
    if options.has("frame"):
        source = _in_frame(tool, options.given["frame"]) + source
        if not options.has("ranks"):
            options.given["ranks"] = [_failed_rank(tool)]
    return run_cell(tool, source, Choice(tool, options), results=True)


def _in_frame(tool: Tool, numbers: list[str]) -> str:
    """The line that has a cell run in a frame of the last failure. numbers: those given, if any."""
    number = numbers[-1] if numbers else "0"
    if not re.fullmatch("[0-9]{1,4}", number):
        raise tool.misuse(f"--frame: want a number of a frame, 0 the innermost, not '{number}'")
    return f"{_IN_FRAME}{number}\n"


def _failed_rank(tool: Tool) -> str:
    """The rank that failed first in the last cell that failed."""
    numbers = sorted(map(int, filter(str.isdecimal, files.listdir(tool.path("cells")))))
    for number in reversed(numbers):
        with contextlib.suppress(FileNotFoundError):  # it is no longer kept
            rank = json.loads(tool.read(f"cells/{number}/report.json")).get("rank")
            if rank is not None and _is_of_its_own(tool, number):
                return str(rank)
    raise Failure(NOTHING, "--frame: no cell has failed on a rank")


def _is_of_its_own(tool: Tool, number: int) -> bool:
    """False for a cell of --frame, and for what ran within a cell: its failure is no program's."""
    within = "within" in json.loads(tool.read(f"cells/{number}/status.json"))
    return not within and not tool.read(f"cells/{number}/source").startswith(_IN_FRAME)


def steer(tool: Tool, words: Sequence[str]) -> int:
    """ddip steer: the same, within the running cell."""
    options = Options(tool, words, {"a": "all", "q": "quiet"}, {"f": "file"})
    file = options.last("file")
    if len(options.rest) != (file is None):
        raise tool.misuse()
    source: str | bytes = options.rest[0] + "\n" if file is None else _read(file)
    found: list[cells.Cell] = []
    choice = Choice(tool, options)
    choice.steers = True
    status = run_cell(tool, source, choice, False, contextlib.nullcontext(_NoInput()), found.append)
    if status == OK and not choice.quiet:
        _print_results(tool, found[0], choice)
    return status


def _read(name: str) -> bytes:
    with sys.stdin.buffer if name == "-" else open(name, "rb") as file:
        return file.read()


class _NoInput:
    """In place of Stdin: standard input stays with the program."""

    def ask(self, rank: int, secret: bool = False, always: bool = False) -> None:
        """Nothing is passed on."""

    def end(self, rank: int) -> None:
        """The same."""


def _print_results(tool: Tool, cell: cells.Cell, choice: Choice) -> None:
    ranks = cell.status()["ranks"].split(",")
    for rank in ranks if choice.label else ranks[:1]:
        text = cell.read(f"rank{rank}/result")
        label = f"{rank}: " if choice.label else ""
        put_out("".join(label + line + "\n" for line in text.splitlines()).encode())


_WAITED = {"stalled": 7, "quiet": 8, "input": 9, "preempt": 10}  # reason -> exit status


def wait(tool: Tool, words: Sequence[str]) -> int:
    """ddip wait: waits until a cell has ended, or for another reason."""
    options = Options(tool, words, {"a": "any", "A": "all"}, {"u": "until"})
    words, reasons = options.rest, options.last("until")
    wide = options.has("any") or options.has("all")
    if len(words) > (0 if wide else 1) or (options.has("any") and options.has("all")):
        raise tool.misuse()
    if wide:
        return _wait_for(tool, tool.path("") if options.has("any") else f"{tool.mount}/", reasons)
    name = _cell_to_wait_for(tool, words)
    if reasons is None:
        return _wait_end(tool, name)
    return _wait_for(tool, tool.path(f"{name}/"), reasons)


def _wait_for(tool: Tool, folder: str, reasons: str | None) -> int:
    """Prints the line of the first reason. Returns its exit status."""
    path = folder + ("wait" if reasons is None else f"wait.{reasons}")
    tool.show(f"head -n 1 {path}")
    try:
        live = files.open_(path)
    except OSError as e:
        if e.errno != errno.EINVAL and "/" not in (reasons or ""):
            raise
        want = "ended,failed,stalled,quiet=SECONDS,input,preempt"
        raise tool.misuse(f"--until: want some of {want}, not '{reasons}'") from e
    with live:
        line = files.read_live(live, _STATUS, folder).decode("utf-8", "replace").partition("\n")[0]
    if not line:
        raise Failure(NOTHING, f"{folder[:-1]} is gone")
    put_out(f"{line}\n".encode())
    reason, *pairs = line.partition(" error=")[0].split()
    value = dict(pair.partition("=")[::2] for pair in pairs)
    if reason == "ended":
        return status_of(value["state"])
    if reason == "failed":
        return failure_of(OSError(getattr(errno, value["errno"], 0), "")).status
    return _WAITED[reason]


def _cell_to_wait_for(tool: Tool, words: Sequence[str]) -> str:
    name = f"cells/{words[0] if words else 'last'}"
    is_name = not words or (words[0] and "/" not in words[0])
    if not is_name or not files.exists(tool.path(name)):
        which = (words[0] or "''") if words else "yet"
        raise DipError(f"no cell {which} in {tool.group.path}", 2)
    # `last` may point to another cell later
    if not words:
        name = f"cells/{files.readlink(tool.path(name))}"
    return name


def _wait_end(tool: Tool, name: str) -> int:
    path = tool.path(f"{name}/wait")
    tool.show(f"cat {path}")
    with files.open_(path) as live:
        text = files.read_live(live, _STATUS, tool.group.path).decode()
    pairs = dict(line.partition(" ")[::2] for line in text.splitlines())
    status = status_of(pairs.get("state", ""))  # no state: its group no longer exists
    if status != OK:
        error = tool.read(f"{name}/error")
        if "state" in pairs and "began" not in pairs:
            say(f"cell {pairs['cell']} never ran: {error.rstrip()}")
        else:
            complain(error)
    return status
