"""Marks that show which rank output comes from: a rank's chip, a result's label."""

from __future__ import annotations

from ddip.shown import bars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Backgrounds of the chips of ranks 0, 1 …, used cyclically; from the 256 colours that are the same
# everywhere. If the colour is one of the palette's, notebooks pad the background, so that the last
# line of an output gets a scroll bar, and draw the letters in grey.
_BACKGROUNDS = (26, 127, 28, 23, 94, 160, 61, 240)
_LETTERS = 231  # white
_RED, _END = "\x1b[31m", "\x1b[0m"
_LABELLED = {"text/plain", "text/html"}  # types that get the label in front


def chip(rank: int) -> str:
    """The rank's number in its colour."""
    background = _BACKGROUNDS[rank % len(_BACKGROUNDS)]
    return f"\x1b[48;5;{background};38;5;{_LETTERS}m {rank} {_END} "


def result(rank: int, number: int, data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(label to print above, bundle to display) for a rank's result in a cell.

    Text and tables get `Out[rank:number]:` in front, and the label above is "". A result that is
    shown as anything else (a figure, LaTeX, Markdown) is left as it is, below the label.
    """
    prompt = f"Out[{rank}:{number}]:"
    if not data.keys() <= _LABELLED:
        return f"{_RED}{prompt}{_END}\n", data
    bundle = dict(data)
    text = bundle.get("text/plain", "")
    lead = "\n" if "\n" in text else " "
    bundle["text/plain"] = f"{_RED}{prompt}{_END}{lead}{text}"
    if "text/html" in bundle:
        bundle["text/html"] = bars.pre(f"{_RED}{prompt}{_END} ") + bundle["text/html"]
    return "", bundle
