"""Cells that save the namespaces of all ranks to a directory (saved_dir.py), or load them.

Their source is a line `# ddip save: TOKEN DIR`, which the verbs of `ctl` write; TOKEN is a number
that all ranks have been given. A rank's file is what clone.py sends. Within a running cell,
steer.py calls function(): the names are those of the frame that makes the step, and of `__main__`.
"""

from __future__ import annotations

import errno
import json
import platform
import sys
import time

from ddip_engine import p5, state
from ddip_engine.cells import cell as cells
from ddip_engine.cells import spliced
from ddip_engine.data import clone, clone_load, frames, saved_dir, saved_same
from ddip_engine.data.view import one_line, type_name
from ddip_engine.groups import repair
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from types import FrameType
    from typing import Any, Protocol, TypedDict, TypeVar

    from ddip_engine.cells.cell import Cell, Ended
    from ddip_engine.data.clone_load import Reasons
    from ddip_engine.data.saved_dir import Said, Writer

    T = TypeVar("T")
    Lost = list[tuple[str, str]]  # names, and why they were lost
    WriteAll = Callable[[bytes | memoryview], None]

    class Call(Protocol):  # calls a function so that an interrupt is raised in it
        def __call__(self, function: Callable[..., T], /, *args: Any) -> T: ...

    class Name(TypedDict):  # of the manifest
        type: str
        ranks: list[int]


def run_cell(cell: Cell) -> Ended:
    """Runs it between cells. Returns cells.Ended: its value is what could not be kept, a line each,
    its error an EngineError if nothing was done."""
    return function(None)(cell)


def function(frame: FrameType | None) -> Callable[[Cell], Ended]:
    """As spliced.function(): for a cell that saves or loads in this frame; None: in `__main__`."""

    def run(cell: Cell) -> Ended:
        cell.in_code = False  # an interrupt that comes while objects are changed is held
        assert cell.saved is not None  # its source is such a line
        verb, token, path = cell.saved

        def call(function: Callable[..., T], /, *args: Any) -> T:
            with cell.code():
                cell.raise_held()
                return function(*args)

        try:
            lost = _VERBS[verb](path, token, _Scope(frame), call)
            return cells.Ended(value="\n".join(one_line(f"{name}: {why}") for name, why in lost))
        except OSError as e:
            return cells.Ended(saved_dir.refusal(path, e))
        except MemoryError:
            text = f"{path}: no memory for it on rank {state.rank}"
            return cells.Ended(EngineError(errno.ENOMEM, text))
        except BaseException as e:
            return cells.Ended(e)

    return run


class _Scope:
    """The names that code at this place sees."""

    def __init__(self, frame: FrameType | None) -> None:
        space = state.main.__dict__
        self.frame = frame if frame is not None and frame.f_locals is not space else None
        self.own: dict[str, Any] = {}  # the variables of the frame
        if self.frame is not None and spliced.is_function(self.frame):
            self.own = spliced.values_of(self.frame, spliced.names_of(self.frame))
        elif self.frame is not None:
            self.own = clone.names_in(self.frame.f_locals)
        names = clone.names_in(space)
        self.hidden = [n for n, value in self.own.items() if names.get(n, value) is not value]
        self.all = {**names, **self.own}

    def where(self) -> str:
        """`main() at train.py:44`; "" for `__main__` alone."""
        return frames.where(self.frame, self.frame.f_lineno) if self.frame is not None else ""

    def bind(self, values: Mapping[str, Any], own: Container[str]) -> list[Any]:
        """Binds names. own: names that are variables of a frame. Returns the objects replaced."""
        old = [self.all.get(name) for name in values]
        mine = {}
        if self.frame is not None:
            has = spliced.names_of(self.frame) if spliced.is_function(self.frame) else self.own
            mine = {name: v for name, v in values.items() if name in has and name in own}
            if spliced.is_function(self.frame):
                spliced.bind(self.frame, mine)
            else:
                self.frame.f_locals.update(mine)
        state.main.__dict__.update((n, value) for n, value in values.items() if n not in mine)
        return old


# ---- save


def _save(path: str, token: str, scope: _Scope, call: Call) -> Lost:
    lost: Lost = []

    def pickled() -> tuple[Writer, Said]:
        about = {"path": list(sys.path), "cwd": "", "frame": scope.where(), "own": [*scope.own]}
        names = dict(scope.all)
        pickle, pickler, head = clone.dump(names, about, saves=True)
        hides = f"the global of this name: {scope.where()} has a variable of its own"
        lost[:] = head["failures"] + [(name, hides) for name in scope.hidden]

        def write(write_all: WriteAll) -> None:
            buffers = [memoryview(buffer).cast("B") for buffer in pickler.buffers]
            p5.write(write_all, pickle, buffers)

        types = {name: type_name(type(value)) for name, value in names.items()}
        return write, {"names": types, "lost": lost}

    where = scope.where()
    with saved_dir.Aside(path, token) as aside:
        aside.save(call, pickled, lambda said: _write_manifest(aside, where, said))
    return lost


def _write_manifest(aside: saved_dir.Aside, where: str, said: list[Said]) -> None:
    """said: of each rank, its `names` and their types, those `lost`, the `bytes` of its file."""
    names: dict[str, Name]
    lost: dict[str, list[int]]
    names, lost = {}, {}
    for rank, each in enumerate(said):
        for name, kind in each["names"].items():
            names.setdefault(name, {"type": kind, "ranks": []})["ranks"].append(rank)
        for name, why in each["lost"]:
            lost.setdefault(f"{name}: {why}", []).append(rank)
    torch = sys.modules.get("torch")
    manifest = {
        "format": saved_dir.FORMAT,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "size": state.size,
        "python": platform.python_version(),
        "torch": str(getattr(torch, "__version__", "")),
        "frame": where,
        "files": {
            f"rank{rank}.p5": {"bytes": each["bytes"], "pickle": True}
            for rank, each in enumerate(said)
        },
        "names": names,
        "lost": [{"text": one_line(text), "ranks": ranks} for text, ranks in lost.items()],
    }
    text = json.dumps(manifest, indent=1) + "\n"
    aside.write(saved_dir.MANIFEST, lambda write_all: write_all(text.encode()))
    if lost:
        lines = [
            one_line(text) + ("" if len(ranks) == state.size else f" (ranks {ranks})") + "\n"
            for text, ranks in lost.items()
        ]
        listed = "".join(lines).encode("utf-8", "backslashreplace")
        aside.write(saved_dir.LOST, lambda write_all: write_all(listed))


# ---- load


def _load(path: str, token: str, scope: _Scope, call: Call) -> Lost:
    saved = saved_dir.Saved(path)
    try:
        unwanted: Reasons
        generators: Reasons
        unwanted, generators = {}, {}
        if saved.size != state.size:
            unwanted, generators = saved_same.differing(map(saved.data, range(saved.size)))
        data = saved.data(state.rank if saved.size == state.size else 0)
        head = clone_load.split(data)[0]
        of_frame = set(head["own"]) if head["frame"] else {name for name, *_ in head["names"]}
        count, lost, wrapped, old = clone_load.load(
            data,
            call,
            scope.all,
            unwanted,
            lambda values: scope.bind(values, of_frame),
            generators,
        )
        del count, old
        if wrapped or scope.frame is None:
            lost += [(name, why) for name, why in repair.renew()]
    except p5.Malformed as e:
        raise EngineError(errno.EBADMSG, f"{path}: {e}") from None
    finally:
        saved.close()
    return lost


_VERBS: dict[str, Callable[[str, str, _Scope, Call], Lost]] = {"save": _save, "load": _load}
