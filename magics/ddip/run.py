"""Running a cell on the ranks and showing it: `%%dip` without its options."""

import re

from ddip import cell as cells
from ddip import show
from ddip.errors import DipError, RemoteError, RemoteInterrupt
from ddip.sink import Sink

_HEADING = "\x1b[1m%s:\x1b[0m"


def parse_ranks(words, size):
    """The ranks of words like 0 1, 0,1, 0-3 or all. Raises DipError for one that is not there."""
    found = []
    for word in re.split(r"[\s,]+", " ".join(map(str, words)).strip(", ")):
        if word == "all":
            return list(range(size))
        first, dash, last = word.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise DipError(f"ranks: want e.g. 0 2-3 or all, not '{word}'")
        found.extend(range(int(first), int(last or first) + 1))
    for rank in found:
        if rank >= size:
            raise DipError(f"rank {rank}: the group has ranks 0..{size - 1}")
    return sorted(set(found))


def spell_ranks(ranks):
    """`0-3,5` for a list of numbers."""
    spans = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def run(shell, group, source, see=None, quiet=False, ranks=None):
    """Runs a source on the ranks, shows it, returns at its end.

    see: words for the ranks that are shown, None: rank 0, or the first that runs it. ranks: words
    for those that run it, None: all. Raises RemoteError, RemoteInterrupt or DipError.
    """
    on = parse_ranks(ranks, group.size) if ranks else None
    seen = parse_ranks(see, group.size) if see else (on or [0])[:1]
    with cells.Interrupts() as interrupts:
        cell = cells.submit(group, source, spell_ranks(on) if on else None)
        watch(shell, cell, seen, quiet, interrupts=interrupts)


def replay(shell, group, number, see=None):
    """Shows a cell of the history again; one that still runs is followed, Ctrl-C lets go of it."""
    cell = cells.Cell(group, number)
    try:
        ranks = dict(line.partition(" ")[::2] for line in cell.read("status").splitlines())["ranks"]
    except FileNotFoundError:
        raise DipError(f"there is no cell {number} in the history of {group.path}") from None
    on = parse_ranks([ranks], group.size)
    seen = parse_ranks(see, group.size) if see else on[:1]
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

    def take(messages):
        view.take([m for m in messages if m["type"] != "input_request"])
        for message in messages:
            if message["type"] == "input_request":
                _answer(shell, cell, message)

    try:
        end = cells.follow(cell, take, view.patience, set(seen), attached, interrupts)
    finally:
        view.end()
    if end["state"] != "ok":
        raise failure(cell, view.errors, end)


def _answer(shell, cell, message):
    """Asks the user what a rank asks, and passes it on to its stdin."""
    rank, prompt = message["rank"], f"[rank {message['rank']}] {message.get('prompt', '')}"
    try:
        with cells.default_interrupts():
            if message.get("password"):
                from getpass import getpass

                line = getpass(prompt)
            else:
                line = input(prompt)
    except KeyboardInterrupt:
        cell.interrupt()
        return
    except (
        EOFError,
        RuntimeError,
    ) as e:  # nobody can be asked here
        Sink(shell).write("stderr", f"rank {rank} asks for input: {e}\n")
        cell.interrupt()
        return
    with open(f"{cell.group.path}/rank{rank}/stdin", "w", encoding="utf-8") as stdin:
        stdin.write(line + "\n")


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
        lines += [_HEADING % f"{noun} {spell_ranks(ranks)}", text]
    return lines
