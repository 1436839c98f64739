"""ddip start, stop, restart, interrupt, cancel, save, load, selftest, umount."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import time

from ddip import ranks as rank_lists
from ddip.cells import cell as cells
from ddip.errors import DipError
from ddip.mounts import files, mount, where
from ddip.tool.call import (
    HINT,
    NOTHING,
    OK,
    REFUSED,
    TIMEOUT,
    Failure,
    Options,
    failure_of,
    put_out,
    say,
)
from ddip.tool.cells import VALUED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ddip.tool.call import Tool

_END_MS = 10000  # for a rank to exit after its daemon
_GRACE_S = 5  # for an interrupted cell to end, where `grace` is off


_NO_RANKS = (errno.EHOSTDOWN, errno.EOPNOTSUPP)  # they do not start, or cannot join
_EVENTS = 1 << 16  # bytes; those of one start are less


def start(tool: Tool, words: Sequence[str]) -> int:
    """start, stop and restart are verbs of ctl."""
    if words:
        raise tool.misuse()
    start_ranks(tool, tool.verb)
    return OK


def start_ranks(tool: Tool, verb: str) -> None:
    """Starts or restarts the ranks, and says which versions of theirs are known to fail."""
    with files.open_(tool.path("events")) as events:
        try:
            tool.ctl(verb)
        except DipError as e:
            if e.errno not in _NO_RANKS:
                raise
            raise Failure(failure_of(e).status, f"{e}\n{HINT}") from None
        if events.poll(0):
            told = events.read(_EVENTS).decode("utf-8", "replace")
            for why in re.findall(r"^\S+ \S+ known-bad rank=\d+ (.*)", told, re.M):
                say(f"known to fail: {why}")


def interrupt(tool: Tool, words: Sequence[str]) -> int:
    """Interrupts a cell, or what runs on some ranks, or on all, and waits for its end."""
    options = Options(tool, words, {}, VALUED)
    words, ranks = options.rest, options.last("ranks")
    if len(words) > (ranks is None) or not all(word.isdecimal() for word in words):
        raise tool.misuse()
    left = interrupt_cells(tool, int(words[0]) if words else 0, ranks)[1]
    if not left:
        return OK
    raise Failure(
        TIMEOUT,
        "; ".join(f"cell {cell.number} has not ended yet" for cell in left)
        + f": ddip stack shows where it is, ddip wait {left[0].number} waits for it",
    )


def interrupt_cells(
    tool: Tool, number: int = 0, ranks: str | None = None
) -> tuple[list[cells.Cell], list[cells.Cell]]:
    """Interrupts cell `number`, or with 0 what runs on these ranks (a list, "0,2-3"; None: all).

    Waits for the ends, up to `grace` in all. Returns the cells, and those that have not ended.
    """
    if number:
        found = [cells.Cell(tool.group, number)]
        if not files.isdir(found[0].path):
            raise Failure(NOTHING, f"no cell {number} in {tool.group.path}")
        with tool.telling(f"cells/{number}"):
            tool.tell(f"cells/{number}/ctl", "interrupt")
    else:
        found = _running(tool, ranks)
        tool.ctl(f"interrupt {ranks.replace(',', ' ')}" if ranks else "interrupt")
    grace = tool.group.settings().get("grace", "")
    end = time.monotonic() + (float(grace) if re.fullmatch(r"[0-9.]+", grace) else _GRACE_S)
    for cell in found:
        tool.show(f"cat {cell.path}/wait")
    left = [c for c in found if not c.has_ended(max(0, end - time.monotonic()) * 1000)]
    return found, left


def _running(tool: Tool, ranks: str | None) -> list[cells.Cell]:
    """The cells that run now on these ranks."""
    rows = json.loads(tool.group.read("ranks.json"))
    chosen = rank_lists.parse([ranks or "all"], len(rows))
    numbers = {row["cell"] for row in rows if row["rank"] in chosen and row["cell"]}
    return [cells.Cell(tool.group, number) for number in sorted(numbers)]


def cancel(tool: Tool, words: Sequence[str]) -> int:
    """Takes from the queue what has not begun: some of it, or all."""
    options = Options(tool, words, {"a": "all"}, {})
    if bool(options.rest) == options.has("all") or not all(w.isalnum() for w in options.rest):
        raise tool.misuse()
    tool.ctl(" ".join(["cancel", *options.rest]))
    return OK


def keep(tool: Tool, words: Sequence[str]) -> int:
    """save and load are verbs of ctl. Says what could not be kept, which is no failure."""
    if len(words) != 1 or not words[0]:
        raise tool.misuse()
    path = os.path.abspath(words[0])
    quoted = path.replace("'", "''")
    before = [entry["number"] for entry in _failures(tool)]
    tool.ctl(f"{tool.verb} '{quoted}'")
    for entry in _failures(tool):
        if entry["number"] not in before and entry["what"] == f"{tool.verb} {path}":
            say(entry["text"])
    return OK


def _failures(tool: Tool) -> list[dict[str, Any]]:
    return json.loads(files.read(tool.path("error.json")))


def selftest(tool: Tool, words: Sequence[str]) -> int:
    """Tests the process group and prints the findings, even if the test fails."""
    try:
        tool.ctl(" ".join(["selftest", *words]))
    except DipError as e:
        if e.errno != errno.EREMOTEIO:
            raise
        put_out(files.read(tool.path("selftest")))
        raise
    tool.show(f"cat {tool.path('selftest')}")
    put_out(files.read(tool.path("selftest")))
    return OK


def umount(tool: Tool, words: Sequence[str]) -> int:
    """Ends the daemon, and returns when its ranks have exited."""
    options = Options(tool, words, {"l": "lazy"}, {})
    words, lazy = options.rest, options.has("lazy")
    if len(words) > 1:
        raise tool.misuse()
    path = words[0] if words else tool.named or tool.mount
    found = where.locate(path)
    if found is None and not _is_dead(path):
        raise Failure(NOTHING, f"{path}: no ddipfs is mounted there")
    path = found or path
    ranks = [pidfd for pid in _rank_pids(path) if (pidfd := _pidfd(pid)) is not None]
    is_socket = files.learn(path)
    tool.show(f"kill DAEMON # of {path}" if is_socket else f"fusermount3 -u {path}")
    try:
        mount.stop(path, lazy)
    except DipError as e:
        who = "" if is_socket else f" (who: fuser -vm {path})"
        raise Failure(REFUSED, f"{e}{who}") from None
    for pidfd in ranks:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        if not poller.poll(_END_MS):
            raise Failure(REFUSED, "a rank is still there")
        os.close(pidfd)
    return OK


def _is_dead(path: str) -> bool:
    """True for a mount whose daemon has exited."""
    try:
        os.stat(path)
    except OSError as e:
        return e.errno == errno.ENOTCONN
    return False


def _rank_pids(path: str) -> list[int]:
    """The pids of the ranks on this host: that of a rank elsewhere is another process's here."""
    pids: list[int] = []
    try:
        for name in files.listdir(path):
            if files.isdir(f"{path}/{name}"):
                hosts = files.read_text(f"{path}/{name}/hosts")
                here = set(re.findall(r"^(\S+) state=up .* connection=- ", hosts, re.M))
                ranks = files.read_text(f"{path}/{name}/ranks")
                found = re.findall(r" pid=([1-9]\d*) host=(\S+)", ranks)
                pids += [int(pid) for pid, host in found if host in here]
    except OSError:
        pass  # the mount is dead
    return pids


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:  # it has exited
        return None
