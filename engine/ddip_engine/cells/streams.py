"""sys.stdout, sys.stderr and sys.stdin of a rank, and the stream of rich output (JSON lines).

Bytes go through `_ddip.Out`, which shares its buffer with the agent. A child that user code forks
gets ordinary text files on descriptors 1 and 2 instead.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import ctypes
import fcntl
import getpass
import io
import os
import sys
from _thread import RLock  # before a program's gevent puts its own in its place

import _ddip
from ddip_engine import patches, state
from ddip_engine.cells import prompts
from ddip_engine.data.view import strict_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from typing_extensions import Buffer

_STDOUT, _STDERR, _DISPLAY = 0, 1, 2  # kinds of _ddip.Out
_BYTES = "surrogateescape"  # bytes that are no UTF-8 are read and written as they are
_Decoder = codecs.getincrementaldecoder("utf-8")
_libc = ctypes.CDLL(None)
# the rank's own, whatever is in sys; see install()
_stdin: _Stdin
_own: dict[str, Stream | io.TextIOWrapper] = {}  # "stdout" and "stderr"
_kept: list[Any] = []  # files that must not be dropped
_NAMES = ("stdin", "stdout", "stderr")
_WITH_FIGURES = ("display_data", "update_display_data", "execute_result")
figures = 0  # that the running cell has sent, as fs/tree/figure_file.c counts them
# the Out of kind 2; None: rich output is discarded (in a forked child)
_display: _ddip.Out | None = None


class _Binary(io.RawIOBase):
    """`sys.stdout.buffer`: bytes that stay in order with the text."""

    def __init__(self, text: Stream) -> None:
        super().__init__()
        self._text = text

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._text.fileno()

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        """Flushes only, like the stream: a file around it closes it when it is dropped."""
        self._text.flush()

    def write(self, data: Buffer) -> int:
        """Writes all of it. Returns the number of bytes."""
        self._text.flush()
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += os.write(self._text.fileno(), view[done:])
        return done


class Stream(_ddip.Out):
    """A text stream of this rank; write, flush and fileno are in C."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    write_through = False
    mode = "w"

    def __init__(self, fd: int, kind: int) -> None:
        super().__init__(fd, kind)
        self.name = "<%s>" % ("stdout", "stderr", "display")[kind]
        if kind == _STDOUT:
            self.errors = _BYTES
        self.terminal = False  # a terminal shows it, while a program runs
        self.buffer = _Binary(self)

    def isatty(self) -> bool:
        """Does a terminal show it?"""
        return self.terminal

    def writable(self) -> bool:
        return True

    def reconfigure(self, **settings: Any) -> None:
        """Accepted for programs that ask for UTF-8 or line buffering, which are already in use."""
        encoding = settings.get("encoding")
        if encoding and encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
            raise ValueError("the output of a rank is UTF-8, not %s" % encoding)

    def close(self) -> None:
        """Flushes only: the rank's streams outlive what user code does to them."""
        self.flush()


class _BinaryStdin(io.BufferedIOBase):
    """`sys.stdin.buffer`: the bytes that the text stream has not consumed."""

    def __init__(self, text: _Stdin) -> None:
        super().__init__()
        self._text = text

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Stays open: a file around it closes it when it is dropped."""

    def read(self, count: int | None = -1) -> bytes:
        """Up to count bytes, or all until the end of input."""
        return self._text.take(count)

    def read1(self, count: int | None = -1) -> bytes:
        """What is available, or else the next bytes that arrive."""
        return self._text.take_some(count)

    def readline(self, limit: int | None = -1) -> bytes:
        """A line with its newline; the rest, perhaps nothing, at the end of input."""
        return self._text.take_line(limit)


class _Stdin(io.TextIOBase):
    """Text that is written to the rank's stdin file; reading waits for it.

    It reads from descriptor 0 no more than is asked for: what poll(2) says of that is true.
    """

    encoding = "utf-8"
    errors = _BYTES
    name = "<stdin>"
    mode = "r"

    def __init__(self) -> None:
        super().__init__()
        self._held = bytearray()  # of a line, or of a read, that is not complete
        self._lock = RLock()  # for it: one thread reads at a time
        self.is_watched = False  # the front ends of this cell know that it uses descriptor 0
        self.buffer = _BinaryStdin(self)

    def readable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """Descriptor 0: who asks for it will poll it, read from it, or give it to a child."""
        if not self.is_watched:
            self.is_watched = True
            watched()
        return 0

    def close(self) -> None:
        """Stays open: the builtin exit() closes stdin, but the rank continues."""

    def drop(self) -> None:
        """Drops what the program did not read."""
        self._held.clear()
        _ddip.stdin_end_program()

    def readline(  # type: ignore[override]  # as io.TextIOBase has it
        self, limit: int | None = -1
    ) -> str:
        """A line with its newline; the rest, perhaps nothing, at the end of input."""
        return self.take_line(limit).decode("utf-8", _BYTES)

    def read(self, count: int | None = -1) -> str:
        """Up to count characters, or all until the end of input."""
        count, text, data, wanted = _unlimited(count), "", b"", 0
        decoder = _Decoder(_BYTES)
        with self._lock:
            while len(text) < count and len(data) == wanted:
                wanted = count - len(text)
                data = self.take(wanted)
                text += decoder.decode(data, len(data) < wanted)
            # a byte that ends an incomplete character makes several at once
            self._held[:0] = text[count:].encode("utf-8", _BYTES) + decoder.getstate()[0]
        return text[:count]

    def take_line(self, limit: int | None) -> bytes:
        """The bytes of readline()."""
        limit = _unlimited(limit)
        with self._lock:
            while b"\n" not in self._held and len(self._held) < limit:
                if not self._fill(limit - len(self._held), line=True):
                    break
            return self._cut(min(self._held.find(b"\n") + 1 or len(self._held), limit))

    def take(self, count: int | None) -> bytes:
        """The bytes of read()."""
        count = _unlimited(count)
        with self._lock:
            while len(self._held) < count:
                if not self._fill(count - len(self._held)):
                    break
            return self._cut(count)

    def take_some(self, count: int | None) -> bytes:
        """At least one byte, except at the end of input, and no more than are available."""
        count = _unlimited(count)
        with self._lock:
            if not self._held and count:
                self._fill(count)
            return self._cut(count)

    def _fill(self, most: int, line: bool = False) -> bool:
        """Waits for more bytes; False at the end of input."""
        flush()
        if not _ddip.stdin_ready():
            display("input_request", prompt=_prompt, password=_password)
        prompts.leave()
        data = _ddip.stdin_read(most, line, _password)
        self._held += data
        return bool(data)

    def _cut(self, count: int) -> bytes:
        data = bytes(self._held[:count])
        del self._held[:count]
        return data


def watched() -> None:
    """Tells front ends that a program takes descriptor 0 for itself, and may wait for it now."""
    display("input_watched")


def cell_ended() -> None:
    """The next cell is another that may take it."""
    _stdin.is_watched = False


def _unlimited(count: int | None) -> int:
    return sys.maxsize if count is None or count < 0 else count


_prompt = ""  # of the pending input(), for the front end's input field
_password = False


def _input(prompt: object = "", /) -> str:
    """builtins.input on a rank: the prompt goes to stdout and into the input_request."""
    return _ask(str(prompt), False)


def _getpass(prompt: str = "Password: ", stream: object = None) -> str:
    """getpass.getpass on a rank: there is no terminal whose echo could be turned off."""
    return _ask(prompt, True)


def _ask(prompt: str, password: bool) -> str:
    global _prompt, _password
    sys.stdout.write(prompt)
    sys.stdout.flush()
    _prompt, _password = prompt, password
    try:
        line = sys.stdin.readline()
    finally:
        _prompt, _password = "", False
    if not line:
        raise EOFError("EOF when reading a line")
    return line.rstrip("\n")


def install() -> None:
    """Puts the rank's streams into sys; called once, before any user code."""
    global _display, _stdin
    _stdin = _Stdin()
    _own.update(stdout=Stream(1, _STDOUT), stderr=Stream(2, _STDERR))
    for name, own in (("stdin", _stdin), *_own.items()):
        _set(name, own)
    _display = _ddip.Out(-1, _DISPLAY)
    patches.INPUT.replace(lambda real: _input)
    assert getpass  # imported to be patched
    patches.GETPASS.replace(lambda real: _getpass)
    os.register_at_fork(after_in_child=_in_child)


def _set(name: str, stream: object) -> None:
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def begin_program(terminals: Collection[str], ended: bool) -> None:
    """Once a program has reached the end of its standard input, it stays there.

    terminals: names of the streams that a terminal shows, for isatty(). ended: it has no input.
    """
    _ddip.stdin_begin_program(ended)
    _set_terminals(terminals)


def end_program() -> None:
    """Standard input waits again; what the program left unread is dropped."""
    _stdin.drop()
    _set_terminals(())


def _set_terminals(names: Collection[str]) -> None:
    for name, stream in _own.items():
        if isinstance(stream, Stream):
            stream.terminal = name in names


def current() -> dict[str, Any]:
    """sys.stdin, sys.stdout and sys.stderr by their names."""
    return {name: getattr(sys, name, None) for name in _NAMES}


def restore(before: Mapping[str, Any]) -> None:
    """Puts these streams back into sys. Files on descriptors 0 to 2 are kept: when they were
    dropped, they would close the rank's own."""
    for name, stream in before.items():
        now: Any = getattr(sys, name, None)
        setattr(sys, name, stream)
        with contextlib.suppress(Exception):  # an object of the user's may raise anything
            if now is not stream and now.fileno() < len(_NAMES):
                _kept.append(now)


def descriptors() -> dict[int, int]:
    """Copies of the descriptors 0 to 2, for restore_descriptors()."""
    copies = {}
    for fd in range(len(_NAMES)):
        with contextlib.suppress(OSError):  # it is closed, or there is no room for a copy
            copies[fd] = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, len(_NAMES))
    return copies


def restore_descriptors(copies: Mapping[int, int]) -> None:
    """Undoes what dup2() and close() have done to them; what was printed stays where it went."""
    flush()
    for fd, copy in copies.items():
        with contextlib.suppress(OSError):  # the copy was closed
            if not _is_same(fd, copy):
                os.dup2(copy, fd)
            os.close(copy)


def _is_same(fd: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(fd, other)
    except OSError:  # one is closed
        return False


def _in_child() -> None:
    """Makes a forked child write to the descriptors: the shared buffers are its parent's."""
    global _display
    _display = None
    for number, name, errors in ((1, "stdout", _BYTES), (2, "stderr", "backslashreplace")):
        raw = open(number, "wb", closefd=False)
        text = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=True)
        if isinstance(getattr(sys, name), Stream):
            setattr(sys, name, text)
        setattr(sys, "__%s__" % name, text)
        _own[name] = text
    _set("stdin", open(0, encoding="utf-8", errors=_BYTES, closefd=False))


def flush() -> None:
    """Flushes everything printed so far, in Python's streams and in C stdio's."""
    for name, own in _own.items():
        if (stream := getattr(sys, name, None)) is not own:
            _flush_foreign(name, stream)
        own.flush()
    _libc.fflush(None)


def _flush_foreign(name: str, stream: Any) -> None:
    """Flushes what user code put into sys.stdout or sys.stderr; replaces a broken one."""
    try:
        stream.flush()
    except Exception as e:  # an object of the user's may raise anything
        setattr(sys, name, _own[name])
        _own["stderr"].write(
            "ddip: sys.%s (%s) cannot be flushed (%s: %s); it is the rank's own again\n"
            % (name, type(stream).__name__, type(e).__name__, e)
        )


def display(kind: str, **content: object) -> None:
    """Sends one message of rich output, named as in the Jupyter protocol, with this rank."""
    if _display is None:
        return
    global figures
    message = {"type": kind, **content, "rank": state.rank}
    data = content.get("data") if kind in _WITH_FIGURES else None
    if isinstance(data, dict) and isinstance(data.get("image/png"), (str, bytes)):
        figures += 1
    line = strict_json(message, lambda word: repr(float(word)), default=_plain)  # as in Jupyter
    _display.write(line + "\n")
    _display.flush()


def _plain(value: Any) -> object:
    """What json cannot encode: bytes as base64, NumPy's numbers as numbers, the rest as text."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return str(value)
