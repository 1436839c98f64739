"""Completion and inspection of remote names, in cells that run on the ranks.

Both read what the daemon and the ranks tell at once, also while a cell runs; what would have to
wait is left out.
"""

import os
import re

_NAMED = re.compile(r"([^\W\d]\w*)\.([^\W\d]\w*)?$")
_WORD = re.compile(r"[^\W\d]\w*$")


def candidates(group, text):
    """[(name, kind)] of remote names and attributes that could stand at the end of this text."""
    dotted = _NAMED.search(text)
    if dotted:
        name, begun = dotted[1], dotted[2] or ""
        if text[: dotted.start()].endswith("."):
            return []  # an attribute of an attribute: no file tells of it
        hidden = begun.startswith("_")
        return [
            (key, "attribute")
            for key in _view(group, name, "dir").splitlines()
            if key.startswith(begun) and (hidden or not key.startswith("_"))
        ]
    begun = _fragment(text)
    if not begun:
        return []
    table = group.read("names").splitlines()
    names = sorted({line.split()[0] for line in table if line and not line.startswith("#")})
    return [(name, "instance") for name in names if name.startswith(begun)]


def _view(group, name, view):
    """A view of a remote object, or "" where it cannot be had at once."""
    path = os.path.join(group.path, "vars", f"{name}.{view}")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # no such name, or the rank is in C code
        return ""
    with open(fd, encoding="utf-8", errors="replace") as file:
        return file.read()


class Helper:
    """Hooks into one shell. is_remote(code): will this cell run on ranks? group(): or None."""

    def __init__(self, shell, is_remote, group):
        self._shell = shell
        self._is_remote = is_remote
        self._group = group
        self._matcher = None
        self._inspect = None  # the kernel's own

    def install(self):
        """Begins to answer."""
        try:
            from IPython.core.completer import context_matcher
        except ImportError:
            return
        self._matcher = context_matcher()(lambda context: self._match(context))
        self._shell.Completer.custom_matchers.append(self._matcher)
        kernel = getattr(self._shell, "kernel", None)
        if kernel is not None:
            self._inspect = kernel.do_inspect
            kernel.do_inspect = self._do_inspect

    def remove(self):
        """Ends it."""
        matchers = self._shell.Completer.custom_matchers
        if self._matcher in matchers:
            matchers.remove(self._matcher)
        if self._inspect is not None:
            del self._shell.kernel.do_inspect

    def _match(self, context):
        """IPython's matcher: remote names, or attributes behind a name and a dot."""
        from IPython.core.completer import SimpleCompletion

        found = []
        if self._is_remote(context.full_text) and self._group() is not None:
            found = candidates(self._group(), context.text_until_cursor)
        return {
            "completions": [SimpleCompletion(text=text, type=kind) for text, kind in found],
            "suppress": bool(found),
            "matched_fragment": _fragment(context.text_until_cursor),
        }

    def _do_inspect(self, code, cursor_pos, *args, **kwargs):
        """The kernel's inspect_request: Shift-Tab, `obj?` in a console."""
        if self._is_remote(code) and self._group() is not None:
            from IPython.utils.tokenutil import token_at_cursor

            name = token_at_cursor(code, cursor_pos)
            text = _view(self._group(), name, "doc") if name.isidentifier() else ""
            if text:
                data = {"text/plain": text}
                return {"status": "ok", "found": True, "data": data, "metadata": {}}
        return self._inspect(code, cursor_pos, *args, **kwargs)


def _fragment(text):
    found = _WORD.search(text)
    return found[0] if found else ""
