"""How much of a cell's output a notebook gets: the first lines, and the end of the rest."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


HEAD_LINES = 5000
HEAD_BYTES = 1 << 20
TAIL_LINES = 30  # of all ranks together
_LEAST_LINES = 3  # of each, however many they are
_TAIL_BYTES = HEAD_BYTES // 8


class Limit:
    """Counts what is printed. files(rank, name): where the whole stream can be read."""

    def __init__(self, files: Callable[[int, str], str]) -> None:
        self._files = files
        self._lines = self._bytes = 0
        self._more_lines = self._more_bytes = 0
        self._last: dict[int, str] = {}  # rank -> its last lines of what did not fit
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
        last = self._last.get(rank, "") + text[-_TAIL_BYTES:]
        self._last[rank] = _last_lines(last[-_TAIL_BYTES:], TAIL_LINES)

    def tail(self) -> str:
        """The end of the output of each rank and where to read all of it; "" if all of it was
        printed."""
        if not self._cut:
            return ""
        places = [self._files(*key) for key in sorted(self._cut)]
        size = f"{self._more_lines:,} more lines, {self._more_bytes / 1e6:.1f} MB"
        parts = [("\n" if len(places) > 1 else " ").join([f"… {size}: all of it is in", *places])]
        count = max(_LEAST_LINES, TAIL_LINES // len(self._last))
        for _, text in sorted(self._last.items()):
            last = _last_lines(text[-(_TAIL_BYTES // len(self._last)) :], count)
            parts.append(last.removesuffix("\n"))
        return "\n".join(parts) + "\n"


def _first_lines(text, lines, limit):
    """The length of a text's first lines, at most limit characters, ending after a line."""
    at = 0
    while lines > 0:
        found = text.find("\n", at) + 1
        if not found or found > limit:
            break
        at, lines = found, lines - 1
    return at


def _last_lines(text, count):
    """The last lines of a text."""
    at = len(text)
    for _ in range(count + 1):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]
