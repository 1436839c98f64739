"""What this rank's process groups are doing, for the stall report.

Two sources number the operations of each group. `torch`: torch's flight recorder, which knows also
those that C++ starts, such as the buckets of DDP's reducer, but (so far) only those of gloo.
`own`: the calls of torch's Python functions in this cell.
"""

import json
import math
import os
import sys
import time

from ddip_engine import patches, state

_FEW = 64  # records: a dump of torch's default, 2000, takes 75 ms, in which no Python code runs
_SIZE = "TORCH_FR_BUFFER_SIZE"
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
}

_c10d = None  # torch.distributed.distributed_c10d
_tensor = ()  # torch.Tensor
_devices_of = None  # maps the devices of a group to their backends
_first = 0  # the number of torch's first record since the default group was made
_calls = {}  # name of a group -> its last _Call in this cell
_cell = 0  # the number of that cell


def install(devices_of):
    """Torch must have been imported. devices_of(group): maps devices to its backends."""
    global _c10d, _tensor, _devices_of
    _devices_of = devices_of
    _c10d = sys.modules["torch.distributed.distributed_c10d"]
    _tensor = getattr(sys.modules["torch"], "Tensor", ())


def keep_few():
    """Has torch keep few records. Called before its first group, which makes the recorder."""
    os.environ.setdefault(_SIZE, str(_FEW))


def forget():
    """The default group is made anew. Names of groups, and with them numbers, begin anew, too."""
    global _first
    _calls.clear()
    records = _records()
    if records:
        _first = records[-1]["record_id"] + 1


def begin_cell():
    """The ranks that run it are in step: numbers of our own begin anew."""
    global _cell
    _calls.clear()
    _cell = state.cell


class _Call:
    """The last call on a group in this cell."""

    __slots__ = ("began", "given", "is_certain", "name", "number")

    def __init__(self):
        self.number = 0  # in the group and the cell
        self.is_certain = True  # not after one that raised: other ranks may count it, or not
        self.name, self.given, self.began = "", None, 0.0


def begin(group, name, args, kwargs):
    """A call on this group begins. Returns what end() and failed() need."""
    call = _calls.get(group.group_name)
    if call is None:
        call = _calls[group.group_name] = _Call()
    call.number += 1
    call.name, call.given, call.began = name, (args, kwargs), time.monotonic()
    return call


def end(call):
    """The call has returned. Its tensors are not kept."""
    call.given = None


def failed(call):
    """The call has raised."""
    call.is_certain = False
    call.given = None


def describe():
    """A line `cell NUMBER STATE`: the cell in which `own` counts, and the main thread's state as in
    proc(5). Then for each group and source a line `group NAME SOURCE ENTERED MEMBERS`, and below it
    lines `op NUMBER NAME ELEMENTS DTYPE DONE SECONDS` in the order of their numbers. ENTERED is the
    highest number of this rank, MEMBERS a list of ranks such as 0,2-5. DONE is 0 or 1. SECONDS have
    passed since the rank entered it. ELEMENTS is -1 if unknown. SOURCE `unknown` has no numbers.
    Nothing at all: this is not known.

    Runs in a thread of C's that holds the GIL, while the rank may be stuck in C.
    """
    lines = []
    if _c10d is not None and _c10d.GroupMember.WORLD is not None:
        with patches.FLIGHT:
            lines = [f"cell {_cell} {_state()}", *_groups()]
    return "".join(f"{line}\n" for line in lines).encode()


def _state():
    with open(f"/proc/self/task/{os.getpid()}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1].decode()


def _groups():
    records = _records()
    for group in patches.PG_MAP.get([_c10d.GroupMember.WORLD]):
        name = group.group_name
        at = f"group {name.replace(' ', '_')}"
        members = _spell(sorted(_c10d.get_process_group_ranks(group)))
        call = _calls.get(name) or _Call()
        yield f"{at} {'own' if call.is_certain else 'unknown'} {call.number} {members}"
        if call.number and call.is_certain:
            yield _called(call)
        known = records is not None and set(_devices_of(group).values()) == {"gloo"}
        own = [r for r in records or () if r["process_group"][0] == name]
        if known and (own or not records or records[0]["record_id"] <= _first):
            entered = max((r["collective_seq_id"] for r in own), default=0)
            yield f"{at} torch {entered} {members}"
            yield from map(_line, own)


def _spell(ranks):
    """Ascending numbers as a list such as 0,2-5."""
    runs = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def _called(call):
    given, elements, dtype = call.given, -1, "-"
    for each in (*given[0], *given[1].values()) if given is not None else ():
        if isinstance(each, _tensor):
            elements, dtype = each.numel(), str(each.dtype).removeprefix("torch.")
            break
    age = time.monotonic() - call.began
    return f"op {call.number} {call.name} {elements} {dtype} {int(given is None)} {age:.3f}"


def _records():
    """Torch's records since the default group was made, in their order; None if it has none."""
    try:
        few = 0 < int(os.environ.get(_SIZE, 0)) <= 4 * _FEW
    except ValueError:
        few = False
    text = patches.FLIGHT.call() if few else None
    if text is None:
        return None
    records = [r for r in json.loads(text).get("entries") or () if r["record_id"] >= _first]
    return sorted((r for r in records if not r["is_p2p"]), key=lambda r: r["record_id"])


def _line(record):
    name = record["profiling_name"].rpartition(":")[2].lstrip("_").replace(" ", "_")
    sizes, dtypes = record["input_sizes"], record["input_dtypes"]
    elements = sum(math.prod(size) for size in sizes) if sizes else -1
    dtype = _DTYPES.get(dtypes[0], dtypes[0].lower()) if dtypes else "-"
    done = int(record["retired"])
    age = max(0, time.time_ns() - record["time_created_ns"]) / 1e9
    head = f"op {record['collective_seq_id']} {name or '-'} {elements} {dtype or '-'}"
    return f"{head} {done} {age:.3f}"
