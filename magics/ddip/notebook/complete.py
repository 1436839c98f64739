"""Completion and inspection of remote names, in cells that run on the ranks.

Both use only what the daemon and the ranks can return at once, even while a cell runs; anything
that would have to wait is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading

from ddip import patches
from ddip.errors import DipError
from ddip.mounts import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.groups import Group


_DOTTED = re.compile(r"((?:[^\W\d]\w*\.)+)([^\W\d]\w*)?$")
_FIELD = re.compile(r"^([A-Z][a-z]+(?: [a-z]+)?:)(?=\s)", re.M)
_WORD = re.compile(r"[^\W\d]\w*$")
_BEHIND_AN_EXPRESSION = (".", ")", "]", "}", "'", '"')  # no file lists the attributes of these
# x = %dip CODE, unless what is asked for is the notebook's
_LINE = re.compile(
    r"\s*(?:(?:[^%#'\"]|'[^']*'|\"[^\"]*\")*=\s*)?"
    r"%(?:dip|steer|watch)\s(?!(?:.*\s)?(?:-p|--push|--scatter|local)\s)"
)
_PULLS = re.compile(r"%dipull\s|%dip\s(.*\s)?--gather\s")


def candidates(group: Group, text: str, rank: int = 0) -> list[tuple[str, str]]:
    """[(name, kind)] of the remote names and attributes that could complete this text."""
    dotted = _DOTTED.search(text)
    if dotted:
        path, begun = dotted[1], dotted[2] or ""
        if text[: dotted.start()].endswith(_BEHIND_AN_EXPRESSION):
            return []
        found = [(key, "attribute") for key in _view(group, rank, path[:-1], "dir").splitlines()]
    elif begun := _fragment(text):
        names = _view(group, rank, "", "dir").splitlines() or group.variables()
        found = [(name, "instance") for name in names]
    else:
        return []
    hidden = begun.startswith("_")
    return [
        (name, kind)
        for name, kind in found
        if name.startswith(begun) and (hidden or not name.startswith("_"))
    ]


def _view(group, rank, path, view):
    """A view of `a.b.c` on a rank, or of its namespace (""); "" if not available soon."""
    path = f"__main__.{path}" if path else "__main__"
    return _soon(os.path.join(group.path, f"rank{rank}", "vars", f"{path}.{view}"))


_PATIENCE_S = 1.0  # the longest wait while the user is typing
_reader = None  # the thread that reads a view; may still be waiting for a rank that is in C code


def _soon(path):
    """The text of a file whose open waits for a rank; "" if it fails or takes too long."""
    global _reader
    if _reader is not None and _reader.is_alive():
        return ""
    found = []

    def read():
        with contextlib.suppress(OSError):
            found.append(files.read_text(path))

    _reader = threading.Thread(target=read, daemon=True)
    _reader.start()
    _reader.join(_PATIENCE_S)
    return found[0] if found else ""


class Helper:
    """Hooks into one shell. is_remote(code): will this cell run on ranks? group(): the group, None
    if there is none; raises DipError if it cannot be determined. rank(): whose names."""

    def __init__(
        self,
        shell: InteractiveShell,
        is_remote: Callable[[str], bool],
        group: Callable[[], Group | None],
        rank: Callable[[], int] = lambda: 0,
    ) -> None:
        self._shell = shell
        self._is_remote = is_remote
        self._group = group
        self._rank = rank
        self._matcher = None
        self._inspect = None  # the kernel's own do_inspect()

    def install(self) -> None:
        """Installs the hooks."""
        try:
            from IPython.core.completer import context_matcher
        except ImportError:
            return
        self._matcher = context_matcher()(lambda context: self._match(context))
        self._shell.Completer.custom_matchers.append(self._matcher)
        kernel = getattr(self._shell, "kernel", None)
        if kernel is not None:
            self._inspect = patches.INSPECT.of(kernel)
            patches.INSPECT.put(kernel, self._do_inspect)

    def remove(self) -> None:
        """Removes the hooks."""
        matchers = self._shell.Completer.custom_matchers
        if self._matcher in matchers:
            matchers.remove(self._matcher)
        if self._inspect is not None:
            del self._shell.kernel.do_inspect

    def _known(self):
        """The group; None also on an error, which a cell would report."""
        try:
            return self._group()
        except (DipError, OSError):
            return None

    def _match(self, context):
        """The matcher for IPython: remote names, or attributes after a name and a dot."""
        from IPython.core.completer import SimpleCompletion

        found, text = [], context.text_until_cursor
        line = text.rpartition("\n")[2]
        if _PULLS.match(line):
            if (group := self._known()) is not None:
                begun = _fragment(text)
                names = [name for name in group.variables() if name.startswith(begun)]
                found = [(name, "instance") for name in names]
        elif _LINE.match(line) or self._is_remote(context.full_text):
            if (group := self._known()) is not None:
                found = candidates(group, text, self._rank())
        return {
            "completions": [SimpleCompletion(text=text, type=kind) for text, kind in found],
            "suppress": bool(found),
            "matched_fragment": _fragment(text),
        }

    def _do_inspect(self, code, cursor_pos, *args, **kwargs):
        """Handles the kernel's inspect_request: Shift-Tab, or `obj?` in a console."""
        if self._is_remote(code) and (group := self._known()) is not None:
            from IPython.utils.tokenutil import token_at_cursor

            name = token_at_cursor(code, cursor_pos)
            known = name and all(part.isidentifier() for part in name.split("."))
            text = _view(group, self._rank(), name, "doc") if known else ""
            if text:
                data = {"text/plain": _coloured(text)}
                return {"status": "ok", "found": True, "data": data, "metadata": {}}
        return self._inspect(code, cursor_pos, *args, **kwargs)


def _coloured(text):
    """A description with the names of its fields in red, by which VS Code finds them."""
    return _FIELD.sub("\x1b[0;31m\\1\x1b[0m", text)


def _fragment(text):
    found = _WORD.search(text)
    return found[0] if found else ""
