"""ddip shell: a prompt whose lines run on the ranks, with history and completion."""

from __future__ import annotations

import ast
import codeop
import functools
import importlib
import io
import os
import string
import sys

from ddip.errors import DipError
from ddip.notebook import complete
from ddip.tool.call import OK, REFUSED, Failure, Options, bytes_of, complain, put_out, say
from ddip.tool.cells import FLAGS, VALUED, Choice, run_cell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from ddip.groups import Group
    from ddip.tool.call import Tool

_HISTORY_LINES = 5000
_PASTE = "set enable-bracketed-paste on"  # pasted text is one source, including its empty lines
# Characters from the terminal are passed through, whatever the locale.
_SETTINGS = (
    "set input-meta on",
    "set output-meta on",
    "set convert-meta off",
    "set show-all-if-unmodified on",
    "tab: complete",
)


def shell(tool: Tool, words: Sequence[str]) -> int:
    """ddip shell. Ctrl-C at the prompt discards what was typed, otherwise interrupts the cell."""
    options = Options(tool, words, FLAGS, VALUED)
    if options.rest or options.has("quiet") or options.has("detach"):
        raise tool.misuse()
    if not isinstance(sys.stdin, io.TextIOWrapper) or sys.stdout is None:
        raise Failure(REFUSED, "a shell needs a standard input and a standard output")
    sys.stdin.reconfigure(errors="surrogateescape")  # ranks tell of bytes that are not UTF-8
    choice = Choice(tool, options)
    name = os.path.basename(tool.group.path)
    history = os.environ.get("DDIP_HISTORY") or os.path.expanduser("~/.ddip_history")
    _begin(tool.group, history)
    try:
        while (source := _read(f"{name}> ")) is not None:
            if source.strip() in ("exit", "quit", "exit()", "quit()"):
                break
            if source.strip():
                _run(tool, source, choice)
    finally:
        _end(history)
    complain("\n" if source is None else "")
    return OK


def _run(tool: Tool, source: str, choice: Choice) -> None:
    try:
        run_cell(tool, source, choice, results=True)
    except (DipError, Failure) as e:
        say(str(e))
    except KeyboardInterrupt:  # it no longer follows the cell, and said so
        pass


def _read(prompt: str) -> str | None:
    """One piece of Python; "" if it was discarded, None at the end of input."""
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    lines: list[str] = []
    try:
        while True:
            lines.append(_line("... " if lines else prompt))
            if _is_whole("\n".join(lines), compiler):
                return "\n".join(lines) + "\n"
    except KeyboardInterrupt:
        complain("\n")
        return ""
    except EOFError:
        return None


def _line(prompt: str) -> str:
    if os.isatty(0) and os.isatty(1):
        return input(prompt)
    put_out(bytes_of(prompt))  # input() would keep what it cannot write, and fail when Python ends
    return input()


def _is_whole(source: str, compiler: codeop.CommandCompiler) -> bool:
    """False if more must follow. Invalid Python is whole: ranks report it, or it is a magic."""
    try:
        return compiler(source, "<shell>", "single") is not None
    except (SyntaxError, ValueError, OverflowError):
        return True


# ---- the line


@functools.cache
def _readline() -> ModuleType | None:
    """The module; None if this Python was built without it. Not for other verbs: it handles the
    signal for a new terminal size, and sets LINES and COLUMNS, which curses then obeys."""
    try:
        return importlib.import_module("readline")
    except ImportError:
        return None


def _begin(group: Group, history: str) -> None:
    readline = _readline()
    if readline is None:
        return
    able = os.environ.get("TERM", "dumb") != "dumb"
    for setting in (*_SETTINGS, _PASTE) if able else _SETTINGS:
        readline.parse_and_bind(setting)
    readline.set_history_length(_HISTORY_LINES)
    readline.set_completer_delims(string.whitespace + string.punctuation.replace("_", ""))
    readline.set_completer(_Completer(group, readline))
    try:
        readline.read_history_file(history)
    except OSError:
        pass  # there is no history yet


def _end(history: str) -> None:
    readline = _readline()
    if readline is None:
        return
    try:
        readline.write_history_file(history)
    except OSError as e:
        say(f"{history}: {e.strerror}")


class _Completer:
    """Called by readline for the names that fit at the cursor: (text, 0), (text, 1), …"""

    def __init__(self, group: Group, readline: ModuleType) -> None:
        self._group = group
        self._readline = readline
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> str | None:
        if state == 0:
            line = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            self._found = self._complete(line)
        return self._found[state] if state < len(self._found) else None

    def _complete(self, line: str) -> list[str]:
        if not line.strip():
            return ["    "]
        try:
            return [name for name, _ in complete.candidates(self._group, line)]
        except OSError:
            return []
