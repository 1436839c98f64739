"""ddip top: shows live what all ranks do: a screen with keys on a terminal, else plain text."""

from __future__ import annotations

import contextlib
import curses
import os
import re
import time

from ddip.errors import DipError
from ddip.mounts import files
from ddip.shown.overview import ALARM, CHOSEN, DIM, HEAD, PLAIN, TITLE, Overview
from ddip.tool.call import NOTHING, OK, USAGE, Failure, Options, put_out, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias, TypeVar

    from ddip.tool.call import Tool

    _Number = TypeVar("_Number", int, float)
    # a rank, how many lines of its output, and the size and the time of that
    _Place: TypeAlias = tuple[int, int, tuple[int, float]]
    _Line: TypeAlias = tuple[int, str]  # its style, its text

_KEYS = "↑↓ choose a rank   i interrupt   s stack   q quit"
_PIECE = 16 << 10  # bytes of a rank's output read for its last lines
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_ESCAPE = 27
_MANY = 1e6  # limit of seconds or rounds


def top(tool: Tool, words: Sequence[str]) -> int:
    """The options are those of top(1)."""
    options = Options(tool, words, {}, {"d": "delay", "n": "number"})
    if options.rest:
        raise tool.misuse()
    delay = _number(options, "delay", float) or 1.0
    rounds = _number(options, "number", int)
    names = "status", "ranks", "stall.json", "gpus"
    tool.show("; ".join(f"cat {tool.path(name)}" for name in names))
    watch = Watch(tool)
    if os.isatty(0) and os.isatty(1) and not rounds and _has_screen():
        curses.wrapper(lambda screen: Screen(screen, watch, delay).run())
        return OK
    for i in range(rounds or 1):
        if i:
            time.sleep(delay)
        watch.look()
        text = "".join(f"{text}\n" for _, text in watch.lines(None))
        put_out(text.encode("utf-8", "replace"))
    return OK


def _has_screen() -> bool:
    """True if the terminal is known and can position its cursor; if not, says so."""
    try:
        curses.setupterm()
        able = bool(curses.tigetstr("cup"))
    except curses.error:
        able = False
    if not able:
        name = os.environ.get("TERM", "")
        say(f"nothing is known of a terminal '{name}' (TERM) that can be drawn on: this is text")
    return able


def _number(options: Options, name: str, kind: Callable[[str], _Number]) -> _Number | None:
    """The value of an option; None if it was not given."""
    text = options.last(name)
    if text is None:
        return None
    try:
        value = kind(text)
    except ValueError:
        value = 0
    if not 0 < value < _MANY:
        raise Failure(USAGE, f"--{name} takes a number above 0, not '{text}'")
    return value


class Watch:
    """An Overview of a group, and the end of a rank's output."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self._overview = Overview(tool.group)
        self.lines = self._overview.lines
        # which end of which file; its lines
        self._output: tuple[_Place | None, list[str]] = (None, [])

    @property
    def ranks(self) -> list[dict[str, str]]:
        """The rows of `ranks`."""
        return self._overview.ranks

    def look(self) -> bool:
        """Reads what may have changed. False: nothing has. Raises Failure if the group is gone."""
        try:
            return self._overview.look()
        except OSError as e:
            raise Failure(NOTHING, f"{self.tool.group.path} is gone") from e

    def output(self, rank: int, count: int) -> tuple[list[str], bool]:
        """The last lines of a rank's output, and whether they may differ from before."""
        path = self.tool.path(f"rank{rank}/stdout")
        try:
            place: _Place | None = (rank, count, files.attributes(path)[1:])
            if place == self._output[0]:
                return self._output[1], False
            text = files.read_end(path, _PIECE)[0].decode("utf-8", "replace")
        except OSError:  # the group is smaller now
            place, text = None, ""
        lines = [line.rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")]
        self._output = place, lines[max(0, len(lines) - count) :]
        return self._output[1], True


class Screen:
    """The terminal: draws the screen and handles the keys."""

    def __init__(self, screen: curses.window, watch: Watch, delay: float) -> None:
        self._screen, self._watch, self._delay = screen, watch, delay
        self._chosen = 0
        self._note = ""  # what the last key did, or why it failed
        self._overview: list[_Line] = []
        # what the screen shows; None if it must be redrawn
        self._shown: tuple[int, int, str, list[_Line]] | None = None
        with contextlib.suppress(curses.error):  # not every terminal can hide its cursor
            curses.curs_set(0)
        alarm = curses.A_BOLD
        with contextlib.suppress(curses.error):
            curses.use_default_colors()
            curses.init_pair(1, curses.COLOR_YELLOW, -1)
            alarm |= curses.color_pair(1)
        self._styles = {
            TITLE: curses.A_BOLD, ALARM: alarm,
            HEAD: curses.A_REVERSE, PLAIN: curses.A_NORMAL, CHOSEN: curses.A_BOLD,
            DIM: curses.A_DIM,
        }  # fmt: skip

    def run(self) -> None:
        """Runs until q is pressed."""
        while True:
            if self._watch.look() or self._shown is None:
                self._chosen = max(0, min(self._chosen, len(self._watch.ranks) - 1))
                self._overview = list(self._watch.lines(self._chosen))
            self._draw()
            until = time.monotonic() + self._delay
            while (left := until - time.monotonic()) > 0:
                self._screen.timeout(int(left * 1000) + 1)
                key = self._screen.getch()
                if key in (ord("q"), _ESCAPE):
                    return
                if key != -1:
                    self._press(key)
                    break

    def _press(self, key: int) -> None:
        self._note, self._shown = "", None
        if key == curses.KEY_UP:
            self._chosen -= 1
        elif key == curses.KEY_DOWN:
            self._chosen += 1
        elif key == ord("i"):
            self._tell("ctl", "interrupt")
        elif key == ord("s"):
            self._page(f"rank{self._chosen}/stack")

    def _tell(self, name: str, verb: str) -> None:
        try:
            with self._watch.tool.telling(verb):
                self._watch.tool.tell(name, verb)
            self._note = f"{verb}: sent"
        except DipError as e:
            self._note = str(e)

    def _page(self, name: str) -> None:
        """Shows a text until a key is pressed."""
        try:
            text = self._watch.tool.group.read(name)
        except OSError as e:
            text = str(e.strerror)
        self._screen.erase()
        for y, line in enumerate([*text.splitlines(), "", "any key goes back"]):
            self._put(y, line, curses.A_NORMAL)
        self._screen.refresh()
        self._screen.timeout(-1)
        self._screen.getch()

    def _draw(self) -> None:
        height, width = self._screen.getmaxyx()
        overview = self._part(height)
        y = len(overview)
        output, is_new = self._watch.output(self._chosen, height - y - 3)
        shown = (height, width, self._note, overview)
        if shown == self._shown and not is_new:
            return
        self._shown = shown
        self._screen.erase()
        for row, (style, text) in enumerate(overview):
            self._put(row, text, self._styles[style])
        self._put(y + 1, f"rank {self._chosen} prints:", curses.A_REVERSE)
        for row, line in enumerate(output):
            self._put(y + 2 + row, line, curses.A_NORMAL)
        self._put(height - 1, self._note or _KEYS, curses.A_DIM)
        self._screen.refresh()

    def _part(self, height: int) -> list[_Line]:
        """The overview; cut to include the chosen rank and leave room for output if it is long."""
        heads = [line for line in self._overview if line[0] in (TITLE, ALARM, HEAD)]
        rows = self._overview[len(heads) :]
        room = max(1, height - height // 3 - len(heads) - 3)
        begin = max(0, self._chosen - room + 1)
        return [*heads, *rows[begin : begin + room]]

    def _put(self, y: int, text: str, style: int) -> None:
        """Draws one line, as much of it as fits."""
        height, width = self._screen.getmaxyx()
        if 0 <= y < height:
            line = _CONTROL.sub("", text.expandtabs())
            with contextlib.suppress(curses.error):  # wide characters lead below the last line
                self._screen.addnstr(y, 0, line, width - 1, style)
