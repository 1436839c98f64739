"""Text as a terminal shows it, with progress bars: carriage returns and cursor moves take effect.

Rows that may be redrawn stay live; the rows above them are settled and passed on as lines. A
colour is kept with the character that follows it.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n\b])|([^\x1b\r\n\b]+)|(\x1b)")
_MOVES = re.compile(r"[\r\b]|\x1b\[[0-9;?]*[A-DGJKH]")
_OTHER_MOVES = re.compile("\b|\x1b" + r"\[[0-9;?]*[A-DGJKH]")
_CUT_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*)?$")
_LONGEST_SEQUENCE = 32  # characters in which to look for _CUT_SEQUENCE
_REVISITED = 8  # carriage returns below a row after which it is no longer expected to change
_WIDEST = 10_000  # columns to which the cursor moves, at most
_LIVE_ROWS = 50  # rows of one stream that may be redrawn, at most
_DRAWINGS = 64  # last drawings of a row to process in one text; each redraws the whole row


class Screen:
    """Rows of characters and a cursor."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = [[]]
        self._redrawn = [False]  # for each row: text was written where there may have been some
        self._left = [0]  # for each row: self._returns when the cursor left it downwards
        self._row = self._column = 0
        self._colour = ""  # escape sequences that belong to the next character
        self._returns = 0
        self._returned = False  # the cursor went back: what follows redraws the row
        self._settled = 0  # number of rows from the top that are not expected to change

    def write(self, text: str) -> None:
        """Writes text at the cursor."""
        for found in _TOKEN.finditer(text):
            argument, command, control, plain, escape = found.groups()
            if plain:
                self._put(plain)
            elif control:
                self._control(control)
            elif command == "m":
                self._colour += found[0]
            elif command:
                self._move(command, argument)
            else:
                self._colour += escape

    def _put(self, plain):
        row = self._rows[self._row]
        if self._column > len(row):
            row.extend(" " * (self._column - len(row)))
        cells = list(plain)
        cells[0] = self._colour + cells[0]
        self._colour = ""
        row[self._column : self._column + len(cells)] = cells
        self._column += len(cells)
        self._redrawn[self._row] |= self._returned

    def _control(self, control):
        if control == "\n":
            self._end_colour()
            if self._rows[self._row] and not self._redrawn[self._row]:
                self._settled = self._row + 1
            self._go_down()
            self._column = 0
            self._returned = False
        elif control == "\r":
            self._end_colour()
            self._column = 0
            self._returns += 1
            self._returned = True
        else:
            self._column = max(0, self._column - 1)
            self._returned = True

    def _go_down(self):
        self._left[self._row] = self._returns
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])
            self._redrawn.append(False)
            self._left.append(0)

    def _end_colour(self):
        """Attaches pending escape sequences at the end of a row to its last character."""
        row = self._rows[self._row]
        if self._colour and row and self._column == len(row):
            row[-1] += self._colour
            self._colour = ""

    def _move(self, command, argument):
        # int() refuses thousands of digits
        count = min(int(argument[:9]), _WIDEST) if argument.isdigit() else 1
        row = self._rows[self._row]
        if command == "A":
            self._row = max(0, self._row - count)
            self._returned = True
        elif command == "B":
            for _ in range(min(count, len(self._rows) - 1 - self._row)):
                self._go_down()
        elif command == "C":
            self._column = max(self._column, min(self._column + count, _WIDEST))
        elif command == "D":
            self._column = max(0, self._column - count)
            self._returned = True
        elif command == "G":
            self._column = max(0, count - 1)
            self._returned = True
        elif command == "K" and argument == "2":
            row.clear()
        elif command == "K" and argument in ("", "0"):
            del row[self._column :]

    def take_settled(self, above: bool = False) -> str:
        """Removes the settled rows from the screen. Returns them as lines, with their newlines.

        above: all rows above the cursor are settled.
        """
        count = self._row if above else self._settled
        for row in range(count, self._row):
            if self._returns - self._left[row] >= _REVISITED:
                count = row + 1
        count = min(max(count, len(self._rows) - _LIVE_ROWS), self._row)
        if not count:
            return ""
        lines = [
            line.rstrip() if redrawn else line
            for line, redrawn in zip(self.rows()[:count], self._redrawn, strict=False)
        ]
        for table in (self._rows, self._redrawn, self._left):
            del table[:count]
        self._row -= count
        self._settled = 0
        return "".join(line + "\n" for line in lines)

    def is_plain(self) -> bool:
        """True if there is only one row, which was never redrawn."""
        return len(self._rows) == 1 and not self._redrawn[0] and not self._returned

    def drop(self, end: str) -> None:
        """Removes this text from the end of the cursor's row, if it is there."""
        row = self._rows[self._row]
        if end and "".join(row[-len(end) :]) == end:
            del row[-len(end) :]
            self._column = len(row)

    def rows(self) -> list[str]:
        """The rows as they look now."""
        rows = ["".join(row) for row in self._rows]
        rows[-1] += self._colour
        return rows


class Stream:
    """One stream of a rank: returns the lines that are settled and keeps the live rows."""

    def __init__(self) -> None:
        self._line = ""  # an incomplete line
        # None: nothing was redrawn, and self._line is all there is
        self._screen: Screen | None = None
        self._rest = ""  # an incomplete escape sequence

    def write(self, text: str) -> str:
        """Adds text. Returns the lines that are now settled, with their newlines."""
        text = self._rest + text
        cut = _CUT_SEQUENCE.search(text, max(0, len(text) - _LONGEST_SEQUENCE))
        self._rest = cut[0] if cut else ""
        text = text[: len(text) - len(self._rest)]
        if self._screen is None:
            if not _MOVES.search(text):
                whole, end, self._line = (self._line + text).rpartition("\n")
                return whole + end
            self._screen = Screen()
            text, self._line = self._line + text, ""
        self._screen.write(_without_overdrawn(text))
        return self._settled()

    def settle_above(self) -> str:
        """Settles the lines above the cursor, as other output follows. Returns them."""
        return self._settled(above=True) if self._screen is not None else ""

    def _settled(self, above=False):
        lines = self._screen.take_settled(above)
        if self._screen.is_plain():
            (self._line,) = self._screen.rows()
            self._screen = None
        return lines

    def drop(self, end: str) -> None:
        """Removes this text from the end of what is live, if it is there."""
        if self._screen is not None:
            self._screen.drop(end)
        elif end:
            self._line = self._line.removesuffix(end)

    @property
    def is_redrawn(self) -> bool:
        """True if the live rows are being redrawn, as by a progress bar."""
        return self._screen is not None

    def rows(self) -> list[str]:
        """The live rows, without empty ones."""
        rows = self._screen.rows() if self._screen is not None else [self._line]
        return [row.rstrip() if self._screen else row for row in rows if row.strip()]

    def take_line(self) -> str:
        """Removes and returns the incomplete plain line; "" if there is none or it is redrawn."""
        line, self._line = self._line, ""
        return line


def _without_overdrawn(text):
    """The text with only the last drawings of each row, if its only moves are carriage returns."""
    if text.count("\r") <= _DRAWINGS or _OTHER_MOVES.search(text):
        return text
    return "\n".join(map(_last_drawings, text.split("\n")))


def _last_drawings(line):
    first, *drawings = line.split("\r")
    return "\r".join([first, *drawings[-_DRAWINGS:]])
