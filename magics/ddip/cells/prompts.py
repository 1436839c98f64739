"""The input fields of a cell, for the input(), getpass() and debuggers of its ranks."""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import signal
import sys
import threading
import time

from ddip import ranks as rank_lists
from ddip.cells import cell as cells
from ddip.mounts import files
from ddip.shown.sink import Sink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.cells.cell import Cell
    from ddip.shown.quiet import QuietView
    from ddip.shown.show import View
    from ddip.shown.tabs import Tabs


_FIRST_S = 0.1  # a request waits this long for that of a lower rank
_TURN_S = 0.5  # a rank that was answered has this long to ask again before others have their turn
_STAYS_S = 5.0  # and this long if a debugger executes what was answered
_DEBUGGER = re.compile(r"\([\w()+]*Pdb[+\w)]*\) $|ipdb\d*> $")
# These commands of pdb let the program go on; an empty line repeats the last one.
_GOES_ON = {
    *("c", "cont", "continue", "n", "next", "s", "step", "r", "return", "unt", "until", "j"),
    *("jump", "q", "quit", "exit", "sys.exit", "EOF", ""),
}
_VOID_MS = 1000  # how long an interrupted cell may take to end before the next prompt is shown
_CONTEXT_BYTES = 4096  # of the output before a prompt to show, if the rank was not shown


def turn_s(prompt: str, line: str) -> float:
    """How many seconds a rank has to ask again, after this line answered this prompt."""
    last = line.removeprefix("*").rpartition(";;")[2].strip()
    word = last.partition(" ")[0].partition("(")[0]
    return _STAYS_S if _DEBUGGER.search(prompt) and word not in _GOES_ON else _TURN_S


class Prompts:
    """Answers the input requests of one cell. view: where its output is shown. interrupt():
    interrupts the cell.

    The lowest rank that asks comes first. A rank that asks again at once goes on: one dialog with a
    debugger ends before the next one begins, also if what it executes takes a moment; not for ever,
    as it may be a collective that waits for the other ranks. Where several ranks ask the same, an
    answer that begins with * goes to all of them.

    An interrupt in an input field interrupts the cell, and voids the requests that other ranks
    have already made. The end of the cell closes the open field.
    """

    def __init__(
        self,
        shell: InteractiveShell | None,
        cell: Cell,
        view: View | QuietView | Tabs,
        interrupt: Callable[[], object],
    ) -> None:
        self._shell = shell
        self._cell = cell
        self._view = view
        self._interrupt = interrupt
        self._interrupted = False
        self._waiting: dict[int, dict[str, Any]] = {}  # rank -> its request
        self._came = 0.0  # when the last request came
        self._talks: int | None = None  # which rank was answered last
        self._told = 0.0  # when it was
        self._turn_s = _TURN_S
        self._together: set[int] = set()  # the ranks that were answered then, if there were several
        self._size = 0  # how many ranks run the cell; 0: not known yet

    def take(self, requests: list[dict[str, Any]]) -> bool:
        """Takes a batch of requests, and answers at most one of those that wait. True: it has."""
        for message in requests:
            self._waiting[message["rank"]] = message
            self._came = max(self._came, time.monotonic())
        if not self._waiting or self.patience():
            return False
        if self._interrupted and self._has_ended(_VOID_MS):
            self._waiting.clear()
            return False
        rank = self._talks if self._talks in self._waiting else min(self._waiting)
        self._interrupted = not self._answer(rank)
        self._talks, self._told = rank, time.monotonic()
        if self._interrupted and not self._has_ended(0):
            with contextlib.suppress(FileNotFoundError):  # it has ended and was dropped
                self._interrupt()
        return True

    def patience(self) -> int | None:
        """Milliseconds until take([]) would answer a request; None if none waits."""
        if not self._waiting:
            return None
        until = 0.0
        if self._interrupted:
            return 0
        if self._talks not in self._waiting or not self._together <= self._waiting.keys():
            until = self._told + self._turn_s
        if self._talks not in self._waiting and len(self._waiting) < self._ranks():
            until = max(until, self._came + _FIRST_S)
        return max(0, math.ceil((until - time.monotonic()) * 1000))

    def _ranks(self):
        if not self._size:
            with contextlib.suppress(OSError):  # it has ended and was dropped
                self._size = len(rank_lists.parse([self._cell.status()["ranks"]], sys.maxsize))
        return self._size

    def _has_ended(self, wait_ms):
        """True if the cell has ended, or ends within wait_ms."""
        try:
            return self._cell.has_ended(wait_ms)
        except OSError:  # it no longer exists
            return True

    def _answer(self, rank):
        """Asks the user and passes the answer on, to this rank or to all that ask the same. False:
        the user interrupted."""
        message = self._waiting.pop(rank)
        prompt, same = message.get("prompt", ""), [rank]
        if not message.get("password"):
            same += [k for k, m in self._waiting.items() if m.get("prompt", "") == prompt]
        if rank not in self._view.seen:
            self._view.reveal(rank, self._last_words(rank))
        shown = self._view.asks(rank, prompt)
        if len(same) > 1:
            prompt = f"[rank {rank}; *TEXT answers {rank_lists.name(same)}] {prompt}"
        else:
            prompt = "" if shown else f"[rank {rank}] {prompt}"
        try:
            with cells.default_interrupts(), self._closed_by_the_end():
                if message.get("password"):
                    from getpass import getpass

                    line = getpass(prompt)
                else:
                    line = input(prompt)
        except KeyboardInterrupt:
            return False
        except (EOFError, RuntimeError) as e:  # no input is possible here
            Sink(self._shell).write("stderr", f"rank {rank} asks for input: {e}\n")
            return False
        to_all = len(same) > 1 and line.startswith("*")
        self._together = set(same) if to_all else set()
        self._turn_s = turn_s(message.get("prompt", ""), line)
        data = f"{line.removeprefix('*') if to_all else line}\n".encode("utf-8", "surrogatepass")
        for each in same if to_all else [rank]:
            self._waiting.pop(each, None)
            with contextlib.suppress(OSError):  # the rank has ended, as the cell's stream tells
                files.write(f"{self._cell.group.path}/rank{each}/stdin", data)
        return True

    def _last_words(self, rank):
        """The last lines that a rank printed in this cell."""
        try:
            data, size = files.read_end(f"{self._cell.path}/rank{rank}/stdout", _CONTEXT_BYTES)
        except OSError:
            return ""
        if size > _CONTEXT_BYTES:
            data = data.partition(b"\n")[2]
        return data.decode("utf-8", "replace")

    @contextlib.contextmanager
    def _closed_by_the_end(self):
        """Within it, the end of the cell raises KeyboardInterrupt: nothing else ends input()."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        read, write = os.pipe()
        watcher = threading.Thread(target=self._interrupt_at_the_end, args=(read,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            os.close(write)
            watcher.join()
            os.close(read)

    def _interrupt_at_the_end(self, closed):
        with contextlib.suppress(OSError), files.open_(f"{self._cell.path}/wait") as wait:
            poller = select.poll()
            poller.register(closed, 0)
            poller.register(wait.arm(), select.POLLIN)
            while closed not in dict(poller.poll()):
                if wait.read(1):
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                    return
                time.sleep(files.LOOK_S)
