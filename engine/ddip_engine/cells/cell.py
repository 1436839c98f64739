"""A cell, how it ended, and what is needed to run one with and without IPython.

Trims tracebacks, keeps sources and runs coroutines; the runners are plain.py and shell.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import linecache
import os
import re
import shlex
import tokenize

from ddip_engine import raised
from ddip_engine.cells import freed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager
    from types import FrameType, TracebackType
    from typing import Any, TypedDict, TypeVar

    T = TypeVar("T")

    class Freed(TypedDict, total=False):
        freed: str  # see freed.py
        within: str

    class Failure(Freed):  # the content of an `error` message of the Jupyter protocol
        ename: str
        evalue: str
        traceback: list[str]


_COOKIE = re.compile(rb"(?:.*\n)?.*coding")  # in the first two lines
_BOM = "\ufeff"  # some editors write it at the beginning of a file
_COMMENT = (b"#", _BOM.encode() + b"#")  # how a directive begins
_PROGRAM = re.compile(r"# ddip run:(.*)")
_SAVED = re.compile(rb"# ddip (save|load): ([0-9a-f]+) (/.*)")
_FRAME = re.compile(r"# ddip frame:(.*)")
_DIRECTIVE = re.compile(r"#\s*ddip:[ \t]*(.*)")
_TOLD_BYTES = 1 << 20  # limit of a value, an error or a traceback; the excess is cut
_NOTE_BYTES = 64  # of these, reserved for the note that says so
_END_BYTES = _TOLD_BYTES // 2  # of these, reserved for a traceback's end, which matters most
_FORM = '# ddip run: {"argv": [FILE, ARG…], "module": NAME or null, "cwd": DIR, "env": {…}}'


class Interruptible:
    """What runs under a number that interrupts name.

    IPython's own code runs around the cell's. It would report a KeyboardInterrupt as an error of
    its own, or lose how the cell ended. So the first interrupt is held there: it is raised when
    the cell's code begins, or never. A second one is raised anywhere: something there hangs.
    """

    file: str  # as tracebacks name its code
    users = True  # code of the user's: the program's signal handlers run in it

    def __init__(self, number: int) -> None:
        self.number = number
        self.interrupted = False  # a KeyboardInterrupt was raised in it
        # an interrupt came but was never raised: True, or what _ddip.leave() has returned
        self.interrupted_late: int = False
        self.in_code = True  # False: what runs is neither its code nor a callback of the user's
        self.held: BaseException | None = None  # the exception of an interrupt that came meanwhile

    def on_held(self) -> None:
        """Called when an interrupt is held. What waits in its place replaces it."""

    def code(self) -> AbstractContextManager[None]:
        """A context: its body is code of the user."""
        return contextlib.nullcontext() if self.in_code else _Code(self)

    def explain(self, function: Callable[..., T], *args: Any) -> T:
        """Returns function(*args), which shows how the code has failed. The text and the notes of
        an exception are code of the user: an interrupt ends that, and is held for what follows."""
        before, self.interrupted = self.interrupted, False
        try:
            with self.code():
                return function(*args)
        finally:
            if self.interrupted:
                self.held = KeyboardInterrupt()
            self.interrupted = before

    def holds(self, frame: FrameType | None) -> bool:
        """True if an interrupt that finds the main thread in this frame must be held."""
        if frame is not None and frame.f_code is _Code.__exit__.__code__:
            return True  # the code has ended, though in_code may not say so yet
        return not self.in_code and self.held is None

    def raise_held(self) -> None:
        """Raises the interrupt that is held, if there is one."""
        held, self.held = self.held, None
        if held is not None:
            self.interrupted = True
            raise held


class _Code:
    def __init__(self, cell: Interruptible) -> None:
        self.cell = cell

    def __enter__(self) -> None:
        self.cell.in_code = True

    def __exit__(self, *exc_info: object) -> None:
        self.cell.in_code = False


class Cell(Interruptible):
    """One cell as it is run: its text without the directive, and the program it belongs to."""

    def __init__(self, number: int, source: bytes) -> None:
        """source: bytes as submitted. Raises SyntaxError if they or the directive are malformed."""
        super().__init__(number)
        self.argv: list[str] | None = None  # of a `# ddip:` cell; None for a plain cell
        self.program: Program | None = None  # None for a cell
        # (verb, token, directory) of a cell that saves or loads the names
        self.saved: tuple[str, str, str] | None = None
        # the number of the frame of the last failure in which it runs
        self.frame: int | None = None
        self.file = "<cell %d>" % number  # as tracebacks name it
        self.inner: dict[str, str] = {}  # the text of a cell that ran within it -> its file name
        if not source.startswith(_COMMENT):
            self.source = _decode(source)
            return
        first, _, rest = source.partition(b"\n")
        if saved := _SAVED.fullmatch(first):
            verb, token, path = saved.groups()
            self.saved = verb.decode(), token.decode(), os.fsdecode(path)
            self.source = first.decode("utf-8", "replace")
            return
        line = first.decode("utf-8", "replace").removeprefix(_BOM).rstrip()
        if found := _PROGRAM.fullmatch(line):
            self.program = Program(found.group(1))
            self.file = self.program.file()
            self.source = _decode(rest)
        elif found := _FRAME.fullmatch(line):
            self.frame = _frame(found.group(1).strip())
            self.source = _decode(rest)
        elif found := _DIRECTIVE.fullmatch(line):
            self._become_program(found.group(1))
            self.source = _decode(rest)
        else:
            self.source = _decode(source)

    def file_of(self, text: str, raw: str) -> str:
        """The file name for the code of this cell, or of one within it, as `%run NOTEBOOK` runs.

        raw: the text before magics are expanded.
        """
        if raw == self.source:
            return self.file
        return self.inner.setdefault(text, "<cell %d.%d>" % (self.number, len(self.inner) + 1))

    def owns(self, file: str) -> bool:
        """True if this is the file name of its code, or of a cell within it."""
        return file == self.file or file.startswith("<cell %d." % self.number)

    def hides(self, frame: FrameType) -> bool:
        """True for a frame that tracebacks must not show: of the engine's code, and of IPython's,
        which hides them too, unless a program imports it."""
        name = frame.f_globals.get("__name__")
        package = name.partition(".")[0] if isinstance(name, str) else ""
        return package == "ddip_engine" or (package == "IPython" and self.program is None)

    def forget_lines(self, needed: Callable[[str], object]) -> None:
        """Drops the lines of its code and of the cells within it, unless needed(text)."""
        for text, file in ((self.source, self.file), *self.inner.items()):
            if not needed(text):
                linecache.cache.pop(file, None)

    def _become_program(self, words: str) -> None:
        """Takes argv from the directive, whose line is dropped so that line numbers are the
        file's."""
        try:
            argv = shlex.split(words)
        except ValueError as e:
            raise SyntaxError("first line: want '# ddip: FILE ARG…': %s" % e) from None
        if not argv:
            raise SyntaxError("first line: want '# ddip: FILE ARG…', there is no FILE")
        self.argv = argv
        self.file = os.path.abspath(argv[0])


class Program:
    """The contents of a `# ddip run:` line: how a program was started."""

    def __init__(self, text: str) -> None:
        try:
            said = json.loads(text)
        except ValueError as e:
            raise SyntaxError("first line: want '%s': %s" % (_FORM, e)) from None
        if not isinstance(said, dict):
            raise SyntaxError("first line: want '%s'" % _FORM)
        self.argv: list[str] = _texts(said.get("argv"), "argv", list)
        self.module: str | None = _said(said.get("module"), "module", (str, type(None)))
        self.cwd: str = _said(said["cwd"] if "cwd" in said else os.getcwd(), "cwd", str)
        self.env: dict[str, str] = _texts(said.get("env", {}), "env", dict)
        # in place of what the engine sets: how it was launched
        self.launch: dict[str, str] = _texts(said.get("launch", {}), "launch", dict)
        # the folder whose files come with the program, and the variable that holds them; or neither
        self.beside: list[str] = _texts(said.get("beside", []), "beside", list)
        self.keep: bool = _said(said.get("keep", False), "keep", bool)
        # name of a stream -> the rank whose stream of that name a terminal shows
        self.terminal: dict[str, object] = _said(said.get("terminal", {}), "terminal", dict)
        # the ranks whose standard input is not at its end; None: all
        self.stdin: list[object] | None = _said(said.get("stdin"), "stdin", (list, type(None)))
        if not self.argv and not self.module:
            raise SyntaxError("first line: want '%s': there is no FILE and no module" % _FORM)

    def is_file(self) -> bool:
        """False if it is a module, or comes from standard input."""
        return not self.module and self.argv[0] != "-"

    def gets_input(self, rank: int) -> bool:
        """False if standard input of this rank is at its end from the beginning."""
        return self.stdin is None or rank in self.stdin

    def file(self) -> str:
        """The file name of the program's code, as Python makes it; a module's is known only once
        it runs."""
        if self.module:
            return "<module %s>" % self.module
        if self.argv[0] == "-":
            return "<stdin>"
        return os.path.join(self.cwd, self.argv[0])


def _frame(word: str) -> int:
    """The number of a frame. Raises SyntaxError."""
    if re.fullmatch("[0-9]{1,4}", word):
        return int(word)
    said = "not '%s'" % word if word else "there is no number"
    raise SyntaxError(
        "first line: want '# ddip frame: N', the number of a frame of the last failure, 0 the"
        " innermost: %s" % said
    )


def _said(value: Any, key: str, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(value, kind):
        raise SyntaxError("first line: '%s' has the wrong type; want '%s'" % (key, _FORM))
    return value


def _texts(value: Any, key: str, kind: type) -> Any:
    """Checks a list or dict of strings: a process cannot be passed NUL bytes."""
    items = [*_said(value, key, kind)]
    if kind is dict:
        items += value.values()
    for item in items:
        if "\0" in _said(item, key, str):
            raise SyntaxError("first line: '%s' has a NUL byte" % key)
    return value


def _decode(source: bytes) -> str:
    """Decodes a source as UTF-8, or as the coding cookie in its first two lines says."""
    try:
        if b"coding" not in source or not _COOKIE.match(source):  # detection is slow
            return source.decode().removeprefix(_BOM)
    except UnicodeDecodeError:
        pass  # reported below
    try:
        coding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return source.decode(coding).removeprefix(_BOM)
    except (SyntaxError, LookupError, UnicodeError) as e:  # a LookupError: no coding of texts
        try:  # the "cookie" may just be a comment in a UTF-8 cell
            return source.decode("utf-8").removeprefix(_BOM)
        except UnicodeDecodeError:
            raise SyntaxError(
                "the source is not in UTF-8, nor as a '# -*- coding: …' line says: %s" % e
            ) from None


class Ended:
    """How the code ended: its exception, if any, and its result as text, if any."""

    def __init__(
        self, error: BaseException | None = None, syntax: bool = False, value: Any = ""
    ) -> None:
        """value: of work of the engine itself, what its function returns."""
        self.error = error
        self.syntax = syntax
        self.value = value


def trim(error: BaseException, cell: Cell) -> None:
    """Removes the frames above the cell's code, and those that it hides, from the tracebacks of an
    exception, of its causes and contexts, and of the exceptions in its group."""
    seen: set[int]
    waiting, seen = [error], set()
    while waiting:
        error = waiting.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        interrupted = raised.is_a(error, KeyboardInterrupt)
        raised.set_trace(error, _cut(raised.trace(error), cell, interrupted))
        if interrupted:
            raised.suppress_context(error, True)  # it is only the collective that it ended
        waiting += raised.parts(error)


def _is_debuggers(frame: FrameType) -> bool:
    """True for a frame of debugpy, which the notebook's debugger uses."""
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in ("_pydevd_bundle", "pydevd")


def _cut(tb: TracebackType | None, cell: Cell, interrupted: bool) -> TracebackType | None:
    """Returns the traceback without these frames, and of an interrupt without those of a debugger,
    in whose wait it came. Changes it in place."""
    at = tb
    while at is not None and not cell.owns(at.tb_frame.f_code.co_filename):
        at = at.tb_next
    kept = []
    tb = at if at is not None else tb
    while tb is not None and not (interrupted and _is_debuggers(tb.tb_frame)):
        if not cell.hides(tb.tb_frame):
            kept.append(tb)
        tb = tb.tb_next
    if tb is not None and len(kept) > 1 and kept[-1].tb_frame is kept[-2].tb_frame:
        kept.pop()  # the interpreter's own entry for a tracer that has raised
    following = None
    for this in reversed(kept):
        if this.tb_next is not following:  # to set it takes a walk along the rest, for loops
            this.tb_next = following
        following = this
    return following


def remember_source(name: str, source: str) -> None:
    """Lets tracebacks and inspect.getsource find the lines of a cell."""
    one_line = "\n" not in source and "\r" not in source
    lines = [source] if one_line and source else io.StringIO(source, newline=None).readlines()
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"  # carets are placed by it
    linecache.cache[name] = (len(source), None, lines, name)


def ends_in_semicolon(source: str) -> bool:
    """True if the last token is a semicolon, whatever comment follows it."""
    ends = (tokenize.ENDMARKER, tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):  # a magic's text need not be Python
        return source.endswith(";")
    told = [t for t in tokens if t.type not in ends]
    return bool(told) and told[-1].string == ";"


def bound(text: str, end_bytes: int = 0) -> str:
    """Cuts a text to a megabyte, if it is longer; keeps end_bytes of its end."""
    if len(text) <= _TOLD_BYTES // 4:  # UTF-8 has at most 4 bytes a character
        return text
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= _TOLD_BYTES:
        return text
    begin = data[: _TOLD_BYTES - _NOTE_BYTES - end_bytes].decode("utf-8", "ignore")
    end = data[len(data) - end_bytes :].decode("utf-8", "ignore")
    cut = len(data) - (_TOLD_BYTES - _NOTE_BYTES)
    return f"{begin}… cut, {cut} bytes" + (f" …{end}" if end else "")


def bound_traceback(text: str) -> str:
    """The same for a traceback, whose middle is cut."""
    return bound(text, _END_BYTES)


def message(error: object) -> str:
    """str() of an exception, or of any object, bounded; never raises."""
    try:
        return bound(str(error))
    except BaseException as e:  # as the traceback module does
        return f"<{type(error).__name__} whose text raises {type(e).__name__}>"


def describe(error: BaseException) -> Failure:
    """The content of an `error` message of the Jupyter protocol, uncoloured."""
    return {
        "ename": raised.name(error),
        "evalue": message(raised.plain(error)),
        "traceback": bound_traceback("".join(raised.lines(error))).splitlines(),
        **freed.place(error),
    }


# shared by all cells: tasks that a cell leaves continue in the next one that awaits
_loop: asyncio.AbstractEventLoop | None = None


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a cell that awaits. An interrupt cancels it: it would continue in the next one."""
    global _loop
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
    task = _loop.create_task(coroutine)
    try:
        return _loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            _loop.run_until_complete(asyncio.wait([task]))
        if not task.cancelled():
            task.exception()  # asyncio would report it too: it is raised here
        raise
