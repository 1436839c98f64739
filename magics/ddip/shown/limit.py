"""How much of a cell's output a notebook gets: the first lines, and the end of the rest."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


HEAD_LINES = 5000
HEAD_BYTES = 1 << 20
TAIL_LINES = 30
_TAIL_BYTES = HEAD_BYTES // 8


class Limit:
    """Counts what is printed. files(rank, name): where the whole stream can be read."""

    def __init__(self, files: Callable[[int, str], str]) -> None:
        self._files = files
        self._lines = self._bytes = 0
        self._more_lines = self._more_bytes = 0
        self._last = ""
        self._cut: set[tuple[int, str]] = set()  # (rank, name) of the streams that did not fit

    def admit(self, rank: int, name: str, text: str) -> int:
        """How many characters of this text to print. The rest is left to tail()."""
        fits = len(text)
        lines = text.count("\n")
        if self._cut:
            fits = 0
        elif self._lines + lines > HEAD_LINES or self._bytes + len(text) > HEAD_BYTES:
            fits = _first_lines(text, HEAD_LINES - self._lines, HEAD_BYTES - self._bytes)
        self._lines += lines
        self._bytes += len(text)
        if fits < len(text):
            self._keep(rank, name, text[fits:])
        return fits

    def _keep(self, rank, name, text):
        self._more_lines += text.count("\n")
        self._more_bytes += len(text)
        self._cut.add((rank, name))
        self._last = _last_lines(self._last + text[-_TAIL_BYTES:])

    def tail(self) -> str:
        """The end of the output and where to read all of it; "" if all of it was printed."""
        if not self._cut:
            return ""
        places = " ".join(self._files(*key) for key in sorted(self._cut))
        size = f"{self._more_lines:,} more lines, {self._more_bytes / 1e6:.1f} MB"
        text = f"… {size}: all of it is in {places}\n{self._last}"
        return text if text.endswith("\n") else text + "\n"


def _first_lines(text, lines, limit):
    """The length of a text's first lines, at most limit characters, ending after a line."""
    at = 0
    while lines > 0:
        found = text.find("\n", at) + 1
        if not found or found > limit:
            break
        at, lines = found, lines - 1
    return at


def _last_lines(text):
    """The last TAIL_LINES lines of a text."""
    at = len(text)
    for _ in range(TAIL_LINES + 1):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]
