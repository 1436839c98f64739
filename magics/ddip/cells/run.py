"""Runs a cell on the ranks and shows it: `%%dip` without its options."""

from __future__ import annotations

import contextlib
import sys

from ddip import ranks as rank_lists
from ddip.cells import cell as cells
from ddip.cells import comms, numbers, shutdown
from ddip.cells.detached import DetachedCell
from ddip.cells.doing import Doing
from ddip.cells.failures import command_to_end, failure
from ddip.cells.prompts import Prompts
from ddip.errors import DipError, RemoteInterrupt
from ddip.shown import quiet as views
from ddip.shown import results, tabs
from ddip.shown.cleared import Frames
from ddip.shown.elapsed import Elapsed
from ddip.shown.sink import Sink

_SEEN_MAX = 1000  # cells

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.cells.cell import Cell
    from ddip.groups import Group

    Words: TypeAlias = Sequence[int | str]


def run(
    shell: InteractiveShell | None,
    group: Group,
    source: str | bytes,
    see: Words | None = None,
    quiet: bool = False,
    ranks: Words | None = None,
) -> Any:
    """Runs a cell on the ranks, shows it and returns its results (see results.values()).

    see: words for the ranks to show; None: rank 0, or the first that runs it. ranks: words for
    the ranks that run it; None: all. Raises RemoteError, RemoteInterrupt or DipError.
    """
    return run_cell(shell, group, source, see, quiet, ranks)[1]


def steer(
    shell: InteractiveShell | None, group: Group, source: str | bytes, see: Words | None = None
) -> None:
    """Runs a source within the running cell, between the same two steps of it on all ranks, or as a
    cell if none runs. Shows its output and value. Raises as run() does."""
    if see and see != [rank_lists.TABS]:
        rank_lists.parse(see, group.size)  # what is wrong with it is told before anything runs
    with (
        shutdown.noticed(shell) as leaves,
        cells.Interrupts(leaves=leaves) as interrupts,
        cells.steered(group, source) as cell,
    ):
        with cells.losses_told(cell):
            on, seen, as_tabs = _places_of(cell, see)
        _tell_apart(on, seen)
        watch(shell, cell, seen, False, interrupts, as_tabs)
    for rank in seen:
        if rank in on and (value := cell.read(f"rank{rank}/result")):
            print(f"{rank}: {value}" if len(seen) > 1 else value, end="")


def stop_at(group: Group, expression: str) -> None:
    """Stops the ranks of the running cell where this is true; "": lets them go on."""
    if not expression:
        if not (watched := group.status().get("watch")):
            raise DipError("nothing is watched")
        group.ctl(f"cancel {watched.split()[0]}")
        return
    with cells.watched(group, expression, keeps=True) as (cell, news):
        try:
            for line in news:
                print(line)
        except KeyboardInterrupt:
            group.ctl(f"cancel {cell.number}")
            raise
        if cell.has_ended(0) and "step" not in cell.status():
            raise DipError(cell.read("error").rstrip())


def run_cell(
    shell: InteractiveShell | None,
    group: Group,
    source: str | bytes,
    see: Words | None = None,
    quiet: bool = False,
    ranks: Words | None = None,
    linked: bool = False,
    used: bool = False,
) -> tuple[Callable[[], Any], Any]:
    """Like run(), but returns (value(), results): value() is that of rank 0, or with `ranks` a list
    of the values of these ranks, shown or not; None where a rank has none. linked: see FrontEnd.
    used: the caller uses the value, and no result is shown.
    """
    on, seen, way = _places(group, see, ranks)
    comms.submit_waiting()
    words = rank_lists.spell(on) if on else None
    with (
        shutdown.noticed(shell) as leaves,
        cells.Interrupts(leaves=leaves, stop=_stop) as interrupts,
        cells.submitted(group, source, words) as cell,
    ):
        numbers.remember(shell, cell)
        if see:
            _remember(cell, see)
        shown = watch(shell, cell, seen, quiet, interrupts, way, linked, used)

    def value():
        found = [results.of_rank(cell, rank) for rank in on or [0]]
        return found if on else found[0]

    return value, shown


def _stop(cell):
    """Interrupts a cell, and the callbacks of this notebook's widgets that it is queued behind."""
    front = cell.in_front()
    own = [task for task in front if cells.Cell(cell.group, task["id"]).path in comms.carried]
    for task in own:
        with contextlib.suppress(FileNotFoundError):  # it has ended
            cells.Cell(cell.group, task["id"]).interrupt()
    cell.front = [task for task in front if task not in own]
    cell.interrupt()


_seen: dict[str, Words] = {}  # path of a cell of this notebook -> words for the ranks it shows


def _remember(cell, see):
    """For a replay, which shows the same."""
    _seen[cell.path] = see
    if len(_seen) > _SEEN_MAX:
        del _seen[next(iter(_seen))]


def detach(
    shell: InteractiveShell | None,
    group: Group,
    source: str | bytes,
    see: Words | None = None,
    ranks: Words | None = None,
) -> DetachedCell:
    """Like run(), without waiting. Returns a DetachedCell."""
    on, seen, _ = _places(group, see, ranks)
    comms.submit_waiting()
    cell = cells.submit(group, source, rank_lists.spell(on) if on else None)
    numbers.remember(shell, cell)
    return DetachedCell(shell, cell, seen, replay)


def _places(group, see, ranks):
    """(ranks that run a cell, None: all; ranks to show; as tabs?), from the words for both."""
    size = 0
    if ranks or see:  # the file is read only if it is needed
        with group.existing():
            size = group.size
    on = rank_lists.parse(ranks, size) if ranks else None
    as_tabs = see == [rank_lists.TABS]
    if as_tabs:
        seen = on or list(range(size))
    else:
        seen = rank_lists.parse(see, size) if see else (on or [0])[:1]
    if on:
        _tell_apart(on, seen)
    return on, seen, as_tabs


def _places_of(cell, see):
    """The same of a cell that there is, from the words for the ranks to show."""
    size = cell.group.size
    on = rank_lists.parse([cell.status()["ranks"]], size)
    as_tabs = see == [rank_lists.TABS]
    seen = on if as_tabs else rank_lists.parse(see, size) if see else on[:1]
    return on, seen, as_tabs


def _tell_apart(on, seen):
    """Says so if no rank that is shown runs the cell."""
    if not set(on) & set(seen):
        texts = map(rank_lists.name, (on, seen))
        print("This runs on {}, and -S shows {}".format(*texts), file=sys.stderr)


def replay(
    shell: InteractiveShell | None, group: Group, number: int, see: Words | None = None
) -> None:
    """Shows a cell of the history again; follows it if it still runs, until Ctrl-C."""
    cell = cells.Cell(group, number)
    try:
        _, seen, as_tabs = _places_of(cell, see or _seen.get(cell.path))
    except FileNotFoundError:
        raise DipError(f"there is no cell {number} in the history of {group.path}") from None
    try:
        watch(shell, cell, seen, quiet=False, as_tabs=as_tabs)
    except RemoteInterrupt:
        raise
    except KeyboardInterrupt:
        raise DipError(f"cell {number} goes on ({command_to_end(group, number)} ends it)") from None


def watch(
    shell: InteractiveShell | None,
    cell: Cell,
    seen: Sequence[int],
    quiet: bool,
    interrupts: cells.Interrupts | None = None,
    as_tabs: bool = False,
    linked: bool = False,
    used: bool = False,
) -> Any:
    """Follows a cell to its end and shows the ranks in seen. interrupts: see follow(); None: it is
    only watched, and an interrupt leaves it alone. as_tabs: if the notebook can show tabs.
    linked, used: see run_cell().

    Returns its results, as run() does.
    """
    attached = interrupts is None
    sink = Sink(shell)
    elapsed = _elapsed(cell)
    as_tabs = as_tabs and not quiet and tabs.available(shell)
    view = _view(cell, sink, seen, elapsed, quiet, as_tabs)
    prompts = Prompts(shell, cell, view, interrupts.pass_on if interrupts else cell.interrupt)
    front_end = comms.FrontEnd(shell, cell, view.seen, linked=linked)
    hidden: list[dict[str, Any]] = []  # results that are not shown

    def take(messages):
        rest = numbers.translated(shell, cell, front_end.take(messages))
        shown = _without_results(rest, hidden) if used else rest
        _note(elapsed, rest, len(rest) < len(messages))
        view.take([m for m in shown if m["type"] != "input_request"])
        for message in messages:
            if message["type"] == "comm_close":
                view.closed(message["rank"], message["comm_id"])
        if prompts.take([m for m in rest if m["type"] == "input_request"]):
            elapsed.moved()  # nobody was silent while the user typed

    frames = Frames(take, view.seen if sink.redraws else ())

    def patience():
        return _least(view.patience(), frames.patience(), prompts.patience())

    try:
        end = cells.follow(cell, frames.take, patience, view.seen, attached, interrupts)
    except KeyboardInterrupt:
        if interrupts is None:
            raise
        text = f"cell {cell.number} goes on: %dip --replay {cell.number} shows it"
        text += " in the next kernel" if interrupts.has_left else ", %makedip -r ends it"
        raise RemoteInterrupt(text, [text]) from None
    finally:
        try:
            frames.end()
        finally:
            view.end()
            found = view.results + [(m["rank"], m) for m in hidden if m["rank"] in view.seen]
            results.remember(cell.number, found)
    front_end.end()
    if end["state"] != "ok":
        raise failure(cell, view.errors, end, view.told)
    return results.values(found)


def _elapsed(cell):
    return Elapsed(
        lambda: _waits_for(cell),
        lambda: numbers.placed(cell, cell.verdict()),
        lambda: _goes_on(cell),
    )


def _least(*waits):
    some = [wait for wait in waits if wait is not None]
    return min(some) if some else None


def _note(elapsed, messages, moved):
    """Tells what shows the time of failures; moved: that the rank has said something, too."""
    for message in messages:
        if message["type"] == "error":
            elapsed.failed(message)
    if moved:
        elapsed.moved()


def _without_results(messages, hidden):
    """The messages but results, which are added to hidden."""
    hidden += [m for m in messages if m["type"] == "execute_result"]
    return [m for m in messages if m["type"] != "execute_result"]


def _view(
    cell: Cell, sink: Sink, seen: Sequence[int], elapsed: Elapsed, quiet: bool, as_tabs: bool
) -> tabs.Tabs | views.QuietView | views.View:
    """What shows a cell."""

    def files(rank: int, name: str) -> str:
        return f"{cell.path}/rank{rank}/{name}"

    if not as_tabs:
        return views.make(sink, seen, files, quiet, elapsed)
    return tabs.Tabs(sink, cell.number, seen, files, elapsed, Doing(cell, seen))


def _goes_on(cell):
    """(ranks that still run a cell, seconds that a failure gives them; None: no limit)."""
    try:
        rows, grace = cell.group.ranks(), cell.group.settings()["grace"]
    except (OSError, KeyError):
        return [], None
    own = [k for k, row in enumerate(rows) if row.get("cell") == str(cell.number)]
    own = [k for k in own if rows[k]["state"] == "busy"]
    return own, None if grace == "off" else float(grace)


def _waits_for(cell):
    """What a queued cell is waiting for; "" if it is not queued."""
    try:
        if cell.status().get("state") != "queued":
            return ""
        status = cell.group.status()
        rows = cell.group.ranks()
    except (OSError, KeyError):
        return ""
    numbers = sorted({int(row["cell"]) for row in rows if row["state"] == "busy"})
    if numbers and {cells.Cell(cell.group, number).path for number in numbers} <= comms.carried:
        words = " and ".join(f"cell {number}" for number in numbers)
        return f"queued behind {words}, a callback of a widget here"
    before = cell.waits_for()
    return f"waits for {before}" if before else f"queued: the group is {status.get('state')}"
