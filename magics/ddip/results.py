"""What a cell's results are in the notebook: `Out[n]` where `Out[rank:n]` was shown.

The objects stay on the ranks, and are not kept there: here is what was shown of them. Where that
is a Python literal (numbers, texts, lists of them …) it is the value.
"""

import ast

_LITERAL_CHARS = 100_000  # of a longer text no value is made
_ELIDED = "..."  # stands for what is not shown


class Shown:
    """A result that is no literal: shows itself as it was shown."""

    def __init__(self, data, metadata):
        self.data = data
        self.metadata = metadata

    def __repr__(self):
        return self.data.get("text/plain", "")

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.data, self.metadata


def value(message):
    """What an execute_result message shows, as a value."""
    data = message["data"]
    text = data.get("text/plain", "")
    if data.keys() <= {"text/plain"} and len(text) <= _LITERAL_CHARS and _ELIDED not in text:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    return Shown(data, message.get("metadata") or {})


def values(shown):
    """[(rank, message)] as one value: that of the one rank, or {rank: value}; None of none."""
    found = {rank: value(message) for rank, message in sorted(shown, key=lambda item: item[0])}
    if len(found) > 1:
        return found
    return next(iter(found.values()), None)


def remember(shell, number, shown):
    """Puts them into `Out[number]` of the notebook."""
    if shown and shell is not None and isinstance(shell.user_ns.get("_oh"), dict):
        shell.user_ns["_oh"][number] = values(shown)
