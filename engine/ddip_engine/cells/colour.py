"""Coloured tracebacks as a notebook shows them: a few lines around each frame's line.

IPython's own code parses every file of a traceback first, which takes half a second if the frames
are torch's: too long for an interrupt. It is used only if %xmode asks for another kind.
"""

from __future__ import annotations

import builtins
import linecache
import os
import re
import traceback

from ddip_engine import raised

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType
    from typing import Any

    Highlighter = tuple[Callable[..., str], Any, Any]  # highlight, lexer, formatter

_RED, _GREEN, _CYAN, _END = "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[39m"
_WIDTH = 75
_AROUND = 2  # lines before and after
_REPEATS = 3  # equal frames that are shown; the rest are elided
CELL = re.compile(r"<cell (\d+)(?:\.\d+)?>")  # the latter: of a cell within that cell
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())  # does not exist before Python 3.11
_pygments: Highlighter | tuple[()] | None = None  # () if pygments is missing


def render(error: BaseException) -> list[str]:
    """The lines of an `error` message: a list of str, some of which span several lines."""
    return raised.shown(error, _render)


def _render(error: BaseException) -> list[str]:
    # Of a whole chain at once: made for each exception, they would walk the rest of it each time.
    return _chain(error, traceback.TracebackException.from_exception(error, limit=0))


def _chain(error: BaseException, texts: traceback.TracebackException | None) -> list[str]:
    """An exception, its causes and contexts; texts: its TracebackException, with theirs."""
    parts: list[list[str]]
    seen: set[int]
    parts, seen = [], set()
    while texts is not None and id(error) not in seen:
        seen.add(id(error))
        parts.append(_one(error, texts))
        if error.__cause__ is not None:
            parts.append(["", _CAUSE, ""])
            error, texts = error.__cause__, texts.__cause__
        elif error.__context__ is not None and not error.__suppress_context__:
            parts.append(["", _CONTEXT, ""])
            error, texts = error.__context__, texts.__context__
        else:
            break
    return [line for part in reversed(parts) for line in part]


def _one(error: BaseException, texts: traceback.TracebackException) -> list[str]:
    """One exception, without its causes and contexts."""
    name = type(error).__name__
    head = "Traceback (most recent call last)".rjust(_WIDTH - len(name))
    lines = [_RED + "-" * _WIDTH + _END, _RED + name + _END + head]
    last: tuple[CodeType, int] | None
    count, last = 0, None
    for frame, lineno in traceback.walk_tb(error.__traceback__):
        place = (frame.f_code, lineno)
        count = count + 1 if place == last else 0
        last = place
        if count == _REPEATS:
            lines += ["    [... the same frame again and again]", ""]
        if count < _REPEATS:
            lines += [_frame(frame, lineno), ""]
    said = "".join(texts.format_exception_only()).rstrip("\n")
    kind, colon, text = said.partition(":")
    lines.append(_RED + kind + _END + colon + text)
    if isinstance(error, _GROUP):
        lines += _members(error, texts.exceptions)  # type: ignore[attr-defined]  # Python 3.11
    return lines


def _members(group: Any, texts: Iterable[traceback.TracebackException]) -> Iterator[str]:
    """The exceptions of a group, indented."""
    for number, (error, its) in enumerate(zip(group.exceptions, texts, strict=False), 1):
        yield f"    {number} of {len(group.exceptions)}:"
        for text in _chain(error, its):
            yield "\n".join("    " + line for line in text.split("\n"))


def _frame(frame: FrameType, lineno: int) -> str:
    """A frame's location, and its line with the lines around it."""
    code = frame.f_code
    found = CELL.fullmatch(code.co_filename)
    if found:
        place = f"{_CYAN}Cell{_END} {_GREEN}In[{found.group(1)}], line {lineno}{_END}"
    else:
        name = code.co_filename.replace(os.path.expanduser("~") + "/", "~/", 1)
        # a link in front ends that look for `File `, a colour, and the path
        place = f"{_CYAN}File {_GREEN}{name}:{lineno}{_END}"
    if code.co_name != "<module>":
        arguments = ", ".join(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        name = getattr(code, "co_qualname", code.co_name)
        place += f", in {_CYAN}{name}({arguments}){_END}"
    return "\n".join([place, *_lines(frame, lineno)])


def _lines(frame: FrameType, lineno: int) -> Iterator[str]:
    first = max(1, lineno - _AROUND)
    numbers = range(first, lineno + _AROUND + 1)
    name = frame.f_code.co_filename
    source = linecache.getlines(name, frame.f_globals)[first - 1 : lineno + _AROUND]
    shown = _highlight("".join(source)).split("\n")
    for number, line in zip(numbers, shown[: len(source)], strict=False):
        arrow = f"{_GREEN}{f'-> {number}':->7}{_END} " if number == lineno else f"{number:7} "
        yield arrow + line


def _highlight(source: str) -> str:
    """Coloured Python; the source itself if pygments is missing."""
    global _pygments
    if _pygments is None:
        _pygments = _load_pygments()
    if not _pygments or not source:
        return source
    highlight, lexer, formatter = _pygments
    return highlight(source, lexer, formatter)


def _load_pygments() -> Highlighter | tuple[()]:
    try:
        from pygments import highlight
        from pygments.formatters.terminal256 import Terminal256Formatter
        from pygments.lexers.python import PythonLexer
    except ImportError:
        return ()
    try:
        from IPython.utils.PyColorize import theme_table

        style = theme_table["neutral"].as_pygments_style()
    except (ImportError, KeyError, AttributeError):  # before IPython 9
        style = "default"
    return highlight, PythonLexer(stripnl=False), Terminal256Formatter(style=style)
