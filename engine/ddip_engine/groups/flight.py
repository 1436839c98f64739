"""What this rank's process groups are doing, for the stall report.

Two sources number the operations of each group. Torch's flight recorders, one of gloo and one of
NCCL, know also those that C++ starts, such as the buckets of DDP's reducer. C asks them without the
GIL (rank/rank_flight.c) if it finds them, else Python does. `own`: the calls of torch's Python
functions in this cell.
"""

from __future__ import annotations

import os
import re
import sys
import time

import _ddip
from ddip_engine import patches, state
from ddip_engine.data import gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_FEW = 64  # records: a dump of torch's default, 2000, takes 75 ms, in which no Python code runs
_SIZE = "TORCH_FR_BUFFER_SIZE"
_RECORDERS = {"gloo": patches.FLIGHT, "nccl": patches.FLIGHT_NCCL}
_ID = re.compile(rb'"record_id":(\d+)')

_c10d: Any = None  # torch.distributed.distributed_c10d
_tensor: Any = ()  # torch.Tensor
_devices_of: Any = None  # maps the devices of a group to their backends
_found = 0  # bits of the recorders that C asks
_first = dict.fromkeys(_RECORDERS, 0)  # numbers of their first records since the default group
# do the recorders keep so few records that they can be asked? None: none made yet
_is_few: bool | None = None
_published: list[str] | None = None  # the groups that C has been told of
_calls: dict[str, _Call] = {}  # name of a group -> its last _Call in this cell
_cell = 0  # the number of that cell


def install(devices_of: Callable[[Any], dict[str, str]]) -> None:
    """Torch must have been imported. devices_of(group): maps devices to its backends."""
    global _c10d, _tensor, _devices_of, _found
    _devices_of = devices_of
    _c10d = sys.modules["torch.distributed.distributed_c10d"]
    _tensor = getattr(sys.modules["torch"], "Tensor", ())
    _found = _ddip.flight_find()


def keep_few() -> None:
    """Has torch keep few records. Called before its first group, which makes the recorders: a
    program's environment, which replaces the engine's, comes too late for them."""
    global _is_few
    size = os.environ.setdefault(_SIZE, str(_FEW))
    if _is_few is None:
        _is_few = size.isdecimal() and 0 < int(size) <= 4 * _FEW


def forget() -> None:
    """The default group is made anew. Names of groups, and with them numbers, begin anew, too."""
    global _published
    _calls.clear()
    _published = None
    for name in _RECORDERS:
        ids = [int(each) for each in _ID.findall(_ask(name) or b"")]
        if ids:
            _first[name] = max(ids) + 1


def publish(call: Callable[[Callable[[], None]], object] = patches.quietly) -> None:
    """Tells C which groups there are, if they are others than last time."""
    global _published
    with patches.FLIGHT:
        groups = _groups()
        names = [each.group_name for each in groups]
        if names != _published:
            call(lambda: _ddip.flight_groups("".join(map(_recorded, groups)).encode()))
            _published = names


def begin_cell() -> None:
    """The ranks that run it are in step: numbers of our own begin anew."""
    global _cell
    _calls.clear()
    _cell = state.cell
    if len(patches.PG_MAP.get(())) != len(_published or ()):  # some are made past new_group()
        publish()


class _Call:
    """The last call on a group in this cell."""

    __slots__ = ("began", "given", "is_certain", "name", "number")
    given: tuple[tuple[Any, ...], dict[str, Any]] | None  # the arguments, until it is over

    def __init__(self) -> None:
        self.number = 0  # in the group and the cell
        self.is_certain = True  # not after one that raised: other ranks may count it, or not
        self.name, self.given, self.began = "", None, 0.0


def begin(group: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    """A call on this group begins. Returns what end() and failed() need."""
    call = _calls.get(group.group_name)
    if call is None:
        call = _calls[group.group_name] = _Call()
    if call.given is not None:
        call.is_certain = False  # an interrupt came between its failure and failed()
    call.number += 1
    call.name, call.given, call.began = name, (args, kwargs), time.monotonic()
    return call


def end(call: _Call) -> None:
    """The call has returned. Its tensors are not kept."""
    call.given = None


def failed(call: _Call) -> None:
    """The call has raised."""
    call.is_certain = False
    call.given = None


def describe() -> bytes:
    """A line `cell NUMBER`: the cell in which `own` counts. `cuda 1` if the rank uses a GPU. Then
    for each group a line `group NAME own ENTERED MEMBERS`, and below it `op NUMBER NAME ELEMENTS
    DTYPE DONE SECONDS` if it has entered one. ENTERED is the number of the last one, MEMBERS a list
    of ranks such as 0,2-5. DONE is 0 or 1. SECONDS have passed since the rank entered it. ELEMENTS
    is -1 if unknown. SOURCE `unknown` instead of own has no numbers. Nothing at all: this is not
    known.

    Runs in a thread of C's that holds the GIL, while the rank may be stuck in C.
    """
    global _published
    lines = []
    with patches.FLIGHT:
        _published = None
        publish(lambda tell: tell())  # filters of warnings belong to all threads
        for which, name in enumerate(_RECORDERS):
            asks = not _found & 1 << which and (name != "nccl" or _ddip.flight_ready())
            if asks and (text := _ask(name)):
                _ddip.flight_text(which, text)
        lines = [f"cell {_cell}", *["cuda 1"] * gpu.uses_cuda(), *map(_own, _groups())]
    return "".join(f"{line}\n" for line in lines).encode()


def _groups() -> list[Any]:
    """All process groups; none if torch does not say which ranks they have."""
    world = _c10d.GroupMember.WORLD if _c10d is not None else None
    known = world is not None and patches.GROUP_RANKS.get() is not None
    return list(patches.PG_MAP.get([world])) if known else []


def _name(group: Any) -> str:
    return group.group_name.replace(" ", "_")


def _members(group: Any) -> str:
    return _spell(sorted(patches.GROUP_RANKS.get()(group)))


def _own(group: Any) -> str:
    call = _calls.get(group.group_name) or _Call()
    source = "own" if call.is_certain else "unknown"
    line = f"group {_name(group)} {source} {call.number} {_members(group)}"
    return f"{line}\n{_called(call)}" if call.number and call.is_certain else line


def _recorded(group: Any) -> str:
    """The group's lines for C, if torch records all that it does."""
    backends = set(_devices_of(group).values()) if _is_few else set()
    if not backends <= {n for n, row in _RECORDERS.items() if row.get() is not None}:
        return ""
    tail = _members(group)
    return "".join(f"{_name(group)} {each} {_first[each]} {tail}\n" for each in sorted(backends))


def _spell(ranks: Iterable[int]) -> str:
    """Ascending numbers as a list such as 0,2-5."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def _called(call: _Call) -> str:
    given, elements, dtype = call.given, -1, "-"
    for each in (*given[0], *given[1].values()) if given is not None else ():
        if isinstance(each, _tensor):
            elements, dtype = each.numel(), str(each.dtype).removeprefix("torch.")
            break
    age = time.monotonic() - call.began
    return f"op {call.number} {call.name} {elements} {dtype} {int(given is None)} {age:.6f}"


def _ask(name: str) -> bytes | None:
    """What this recorder of torch's says, as JSON; None if there is none."""
    function = _RECORDERS[name].get() if _is_few else None
    if function is None:
        return None
    with _RECORDERS[name]:
        said: bytes = function()  # not quietly: filters of warnings belong to all threads
        return said
    return None
