"""Running a cell on the ranks and showing it: `%%dip` without its options."""

import contextlib
import os
import re
import select
import signal
import threading

from ddip import cell as cells
from ddip import ranks as rank_lists
from ddip import show
from ddip.errors import DipError, RemoteError, RemoteInterrupt
from ddip.sink import Sink

_HEADING = "\x1b[1m%s:\x1b[0m"
_VOID_MS = 1000  # after an interrupt a cell has so long to end before the next prompt is shown


def run(shell, group, source, see=None, quiet=False, ranks=None):
    """Runs a source on the ranks, shows it, returns at its end.

    see: words for the ranks that are shown, None: rank 0, or the first that runs it. ranks: words
    for those that run it, None: all. Raises RemoteError, RemoteInterrupt or DipError.
    """
    size = group.size if ranks or see else 0  # the file is read where it is needed
    on = rank_lists.parse(ranks, size) if ranks else None
    seen = rank_lists.parse(see, size) if see else (on or [0])[:1]
    with cells.Interrupts() as interrupts:
        cell = cells.submit(group, source, rank_lists.spell(on) if on else None)
        watch(shell, cell, seen, quiet, interrupts=interrupts)


def replay(shell, group, number, see=None):
    """Shows a cell of the history again; one that still runs is followed, Ctrl-C lets go of it."""
    cell = cells.Cell(group, number)
    try:
        ranks = dict(line.partition(" ")[::2] for line in cell.read("status").splitlines())["ranks"]
    except FileNotFoundError:
        raise DipError(f"there is no cell {number} in the history of {group.path}") from None
    on = rank_lists.parse([ranks], group.size)
    seen = rank_lists.parse(see, group.size) if see else on[:1]
    try:
        watch(shell, cell, seen, quiet=False, attached=True)
    except KeyboardInterrupt:
        raise DipError(
            f"cell {number} goes on (echo interrupt > {cell.path}/ctl ends it)"
        ) from None


def watch(shell, cell, seen, quiet, attached=False, interrupts=None):
    """Follows a cell to its end and shows the ranks of seen. The last two: see follow()."""

    def files(rank, name):
        return f"{cell.path}/rank{rank}/{name}"

    view = show.make(Sink(shell), seen, files, quiet)

    prompts = _Prompts(shell, cell)

    def take(messages):
        view.take([m for m in messages if m["type"] != "input_request"])
        prompts.take([m for m in messages if m["type"] == "input_request"])

    try:
        end = cells.follow(cell, take, view.patience, set(seen), attached, interrupts)
    except KeyboardInterrupt:
        if attached:
            raise
        text = (
            f"cell {cell.number} goes on: %dip --replay {cell.number} shows it, %makedip -r ends it"
        )
        raise RemoteInterrupt(text, [text]) from None
    finally:
        view.end()
    if end["state"] != "ok":
        raise failure(cell, view.errors, end)


class _Prompts:
    """The input fields of a cell: what its ranks ask for, one after the other.

    An interrupt in one of them is for the cell, and what other ranks had asked by then is void. The
    end of the cell closes the field that is open.
    """

    def __init__(self, shell, cell):
        self._shell = shell
        self._cell = cell
        self._interrupted = False

    def take(self, requests):
        """Answers requests that came together."""
        for message in requests:
            if self._interrupted and self._has_ended(_VOID_MS):
                return
            self._interrupted = not self._answer(message)
            if self._interrupted:
                with contextlib.suppress(FileNotFoundError):  # it has ended, and was dropped
                    self._cell.interrupt()
                return

    def _has_ended(self, wait_ms):
        """True if the cell has, or does within that time."""
        try:
            with open(f"{self._cell.path}/wait", "rb", buffering=0) as wait:
                poller = select.poll()
                poller.register(wait, select.POLLIN)
                return bool(poller.poll(wait_ms))
        except OSError:  # it is gone
            return True

    def _answer(self, message):
        """Asks the user what a rank asks, and passes it on. False: an interrupt is the answer."""
        rank = message["rank"]
        prompt = f"[rank {rank}] {message.get('prompt', '')}"
        try:
            with cells.default_interrupts(), self._closed_by_the_end():
                if message.get("password"):
                    from getpass import getpass

                    line = getpass(prompt)
                else:
                    line = input(prompt)
        except KeyboardInterrupt:
            return False
        except (EOFError, RuntimeError) as e:  # nobody can be asked here
            Sink(self._shell).write("stderr", f"rank {rank} asks for input: {e}\n")
            return False
        with open(f"{self._cell.group.path}/rank{rank}/stdin", "w", encoding="utf-8") as stdin:
            stdin.write(line + "\n")
        return True

    @contextlib.contextmanager
    def _closed_by_the_end(self):
        """Within it the end of the cell is a KeyboardInterrupt: input() knows nothing else."""
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
        with contextlib.suppress(OSError), open(f"{self._cell.path}/wait", "rb", 0) as wait:
            poller = select.poll()
            poller.register(closed, 0)
            poller.register(wait, select.POLLIN)
            if closed not in dict(poller.poll()):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


# ---- failures


def failure(cell, errors, end):
    """The exception that tells how a cell failed. errors: rank -> its `error` message."""
    parts = {rank: (m["ename"], m["evalue"], m["traceback"]) for rank, m in errors.items()}
    for line in cell.read("error").splitlines():
        rank, _, text = line.removeprefix("rank ").partition(": ")
        if rank.isdigit() and int(rank) not in parts:
            ename, _, evalue = text.partition(": ")
            known = ename.isidentifier()  # else it is the daemon's text, of a rank that died
            parts[int(rank)] = (ename if known else "RankError", evalue if known else text, [text])
    first = _first(cell, parts)
    if first is None:
        text = f"cell {cell.number}: {end['state']} {end['errno']}".rstrip()
        if end["interrupts"]:
            return RemoteInterrupt(text, [text])
        return DipError(text)
    lines = _lines(parts, first)
    ename, evalue, _ = parts[first]
    if end["state"] == "interrupted" or (end["interrupts"] and ename == "KeyboardInterrupt"):
        return RemoteInterrupt(evalue, lines)
    return RemoteError(ename, evalue, sorted(parts), lines, first)


def _first(cell, parts):
    """The rank that failed first, which the group names."""
    for _, text in reversed(cell.group.failures()):
        found = re.match(rf"cell {cell.number}: rank (\d+)", text)
        if found and int(found[1]) in parts:
            return int(found[1])
    return min(parts, default=None)


def _lines(parts, first):
    """Tracebacks with the ranks above, equal ones once, that of the first failure last."""
    told = {}
    for rank, (ename, evalue, traceback) in sorted(parts.items()):
        told.setdefault((ename, evalue, "\n".join(traceback)), []).append(rank)
    lines = []
    for (_, _, text), ranks in sorted(told.items(), key=lambda item: first in item[1]):
        noun = "rank" if len(ranks) == 1 else "ranks"
        lines += [_HEADING % f"{noun} {rank_lists.spell(ranks)}", text]
    return lines
