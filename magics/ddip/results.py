"""The results of a cell in the notebook: `Out[n]` where `Out[rank:n]` was shown.

The objects are neither sent to the notebook nor kept on the ranks; the notebook has what was shown
of them. If that is a Python literal (a number, a string, a list of them …), it becomes the value.
"""

import ast

_LITERAL_CHARS = 100_000  # a longer text is not turned into a value
_ELIDED = "..."  # stands for what was not shown


class Shown:
    """A result that is not a literal; it displays as it did in the cell."""

    def __init__(self, data, metadata):
        self.data = data
        self.metadata = metadata

    def __repr__(self):
        return self.data.get("text/plain", "")

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.data, self.metadata


def value(message):
    """The value that an execute_result message shows; a Shown if it is not a literal."""
    data = message["data"]
    text = data.get("text/plain", "")
    if data.keys() <= {"text/plain"} and len(text) <= _LITERAL_CHARS and _ELIDED not in text:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    return Shown(data, message.get("metadata") or {})


def values(shown):
    """One value for [(rank, message)]: that of the only rank, {rank: value}, or None if empty."""
    found = {rank: value(message) for rank, message in sorted(shown, key=lambda item: item[0])}
    if len(found) > 1:
        return found
    return next(iter(found.values()), None)


def remember(shell, number, shown):
    """Stores the results in `Out[number]` of the notebook."""
    if shown and shell is not None and isinstance(shell.user_ns.get("_oh"), dict):
        shell.user_ns["_oh"][number] = values(shown)
