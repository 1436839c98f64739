"""Text as a terminal shows it: what carriage returns, backspaces and cursor movements overwrite.

Colours stay with the characters that they were written before.
"""

import re

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n\b])|([^\x1b\r\n\b]+)|(\x1b)")
_MOVES = re.compile(r"[\r\b]|\x1b\[[0-9;?]*[A-DGJKH]")


class Screen:
    """Rows of characters and a cursor. write() as often as text comes, text() at the end."""

    def __init__(self):
        self._rows = [[]]
        self._row = self._column = 0
        self._colour = ""  # escape sequences that wait for the next character

    def write(self, text):
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

    def _control(self, control):
        if control == "\n":
            self._end_colour()
            self._row += 1
            self._column = 0
            if self._row == len(self._rows):
                self._rows.append([])
        elif control == "\r":
            self._end_colour()
            self._column = 0
        else:
            self._column = max(0, self._column - 1)

    def _end_colour(self):
        """A colour that ends at the end of a line stays there."""
        row = self._rows[self._row]
        if self._colour and row and self._column == len(row):
            row[-1] += self._colour
            self._colour = ""

    def _move(self, command, argument):
        count = int(argument) if argument.isdigit() else 1
        row = self._rows[self._row]
        if command == "A":
            self._row = max(0, self._row - count)
        elif command == "B":
            self._row = min(len(self._rows) - 1, self._row + count)
        elif command == "C":
            self._column += count
        elif command == "D":
            self._column = max(0, self._column - count)
        elif command == "G":
            self._column = max(0, count - 1)
        elif command == "K" and argument == "2":
            row.clear()
        elif command == "K" and argument in ("", "0"):
            del row[self._column :]

    def text(self):
        """What is to be seen now."""
        text = "\n".join("".join(row) for row in self._rows)
        return text + self._colour


def settled(text):
    """The text without what it overwrites itself."""
    if not _MOVES.search(text):
        return text
    screen = Screen()
    screen.write(text)
    return screen.text()
