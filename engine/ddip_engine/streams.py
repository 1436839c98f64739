"""sys.stdout, sys.stderr and sys.stdin of a rank, and the stream of rich output (JSON lines).

Bytes go through `_ddip.Out`, which shares its buffer with the agent. A child that user code forks
gets ordinary text files on descriptors 1 and 2 instead.
"""

import base64
import builtins
import ctypes
import getpass
import io
import json
import os
import sys

import _ddip
from ddip_engine import state

_STDOUT, _STDERR, _DISPLAY = 0, 1, 2  # kinds of _ddip.Out
_libc = ctypes.CDLL(None)
_display = None  # the Out of kind 2; None: rich output is not taken (a forked child)


class _Binary(io.RawIOBase):
    """`sys.stdout.buffer`: bytes that keep their place between the texts."""

    def __init__(self, text):
        super().__init__()
        self._text = text

    def writable(self):
        return True

    def fileno(self):
        return self._text.fileno()

    def isatty(self):
        return False

    def write(self, data):
        self._text.flush()
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += os.write(self._text.fileno(), view[done:])
        return done


class Stream(_ddip.Out):
    """A text stream of this rank; write, flush and fileno are C."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    write_through = False
    mode = "w"

    def __init__(self, fd, kind):
        super().__init__(fd, kind)
        self.name = "<%s>" % ("stdout", "stderr", "display")[kind]
        self.buffer = _Binary(self)

    def isatty(self):
        return False

    def writable(self):
        return True

    def reconfigure(self, **settings):
        """Accepted for programs that ask for UTF-8 or line buffering: both are so already."""
        encoding = settings.get("encoding")
        if encoding and encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
            raise ValueError("the output of a rank is UTF-8, not %s" % encoding)

    def close(self):
        """Flushes only: the rank's streams outlive what user code does to them."""
        self.flush()


class _Stdin(io.TextIOBase):
    """Text that somebody writes into the rank's stdin file; reading waits for it."""

    encoding = "utf-8"
    errors = "replace"
    name = "<stdin>"
    mode = "r"

    def __init__(self):
        super().__init__()
        self._held = b""
        self._ended = False

    def readable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return 0

    def close(self):
        """Stays open: the builtin exit() closes stdin, and the rank goes on."""

    def _fill(self):
        """Waits for more bytes; False at the end of input."""
        flush()
        data = _ddip.stdin_read()
        self._held += data
        return bool(data)

    def _take(self, count):
        data, self._held = self._held[:count], self._held[count:]
        return data.decode("utf-8", "replace")

    def readline(self, limit=-1):
        """A line with its newline; the rest, perhaps nothing, at the end of input."""
        if b"\n" not in self._held:
            display("input_request", prompt=_prompt, password=_password)
        while b"\n" not in self._held and (limit is None or limit < 0 or len(self._held) < limit):
            if not self._fill():
                break
        count = self._held.find(b"\n") + 1 or len(self._held)
        if limit is not None and limit >= 0:
            count = min(count, limit)
        return self._take(count)

    def read(self, count=-1):
        """Up to count characters, or all until the end of input."""
        if not self._held or count is None or count < 0:
            display("input_request", prompt=_prompt, password=_password)
        while count is None or count < 0 or len(self._held) < count:
            if not self._fill():
                break
        return self._take(len(self._held) if count is None or count < 0 else count)


_prompt = ""  # of the input() that waits now, for the front end's input field
_password = False


def _input(prompt="", /):
    """builtins.input on a rank: the prompt goes to stdout and into the input_request."""
    return _ask(str(prompt), False)


def _getpass(prompt="Password: ", stream=None):
    """getpass.getpass on a rank: there is no terminal whose echo could be turned off."""
    return _ask(prompt, True)


def _ask(prompt, password):
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


def install():
    """Puts the rank's streams into sys; called once, before any user code."""
    global _display
    sys.stdout = sys.__stdout__ = Stream(1, _STDOUT)
    sys.stderr = sys.__stderr__ = Stream(2, _STDERR)
    sys.stdin = sys.__stdin__ = _Stdin()
    _display = _ddip.Out(-1, _DISPLAY)
    builtins.input = _input
    getpass.getpass = _getpass
    os.register_at_fork(after_in_child=_in_child)


def _in_child():
    """A forked child writes to the descriptors itself: the shared buffers are its parent's."""
    global _display
    _display = None
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = open(number, "wb", closefd=False)
        text = io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=True)
        if isinstance(getattr(sys, name), Stream):
            setattr(sys, name, text)
        setattr(sys, "__%s__" % name, text)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)


def flush():
    """Everything printed so far leaves this process: Python's streams and C stdio's."""
    for name in ("stdout", "stderr"):
        stream, own = getattr(sys, name), getattr(sys, "__%s__" % name)
        if stream is not own:
            _flush_foreign(name, stream, own)
        own.flush()
    _libc.fflush(None)


def _flush_foreign(name, stream, own):
    """Flushes what user code put into sys.stdout; one that is broken is taken out again."""
    try:
        stream.flush()
    except Exception as e:  # whatever an object of the user's does
        setattr(sys, name, own)
        sys.__stderr__.write(
            "ddip: sys.%s (%s) cannot be flushed (%s: %s); it is the rank's own again\n"
            % (name, type(stream).__name__, type(e).__name__, e)
        )


def display(kind, **content):
    """Sends one message of rich output, named as in the Jupyter protocol, with this rank."""
    if _display is None:
        return
    line = json.dumps({"type": kind, **content, "rank": state.rank}, default=_plain)
    _display.write(line + "\n")
    _display.flush()


def _plain(value):
    """What json cannot write: images as base64, numbers of numpy as numbers, the rest as text."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return str(value)
