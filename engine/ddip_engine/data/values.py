"""Objects of a rank by name: THE TABLE OF VIEWS, reading, and pushing in two steps.

The service threads read, even while a cell runs; the main thread pushes, deletes and renames
between cells.
"""

from __future__ import annotations

import functools
import os
import unicodedata
from errno import EAGAIN, EBADMSG, EINVAL, ENOENT, EOPNOTSUPP

from ddip_engine import raised, state
from ddip_engine.data import (
    across_ranks,
    arrays,
    clone,
    fingerprint,
    frames,
    gpu,
    gpu_write,
    inside,
    inside_set,
    pickles,
    room,
    state_dicts,
    table,
    texts,
)
from ddip_engine.data.view import ABSENT, Export, Incoming, article, blank, reason, refusal_of
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias, TypeVar

    from ddip_engine.data.state_dicts import Undo

    T = TypeVar("T")
    Exporter: TypeAlias = Callable[[str, Any], Export]  # of a name and its object
    # of a name, the bytes, and what the name holds or ABSENT
    Importer: TypeAlias = Callable[[str, Incoming, Any], Any]
    Step: TypeAlias = Callable[[], Any] | None  # of commit()

# view -> (object to bytes, bytes to object); None if this direction does not exist.
VIEWS: dict[str, tuple[Exporter, Importer | None]] = {
    "": (texts.export_plain, texts.import_plain),
    "text": (texts.export_plain, texts.import_plain),
    "json": (texts.export_json, texts.import_json),
    "npy": (arrays.export_npy, arrays.import_npy),
    "safetensors": (arrays.export_safetensors, arrays.import_safetensors),
    "pt": (arrays.export_pt, arrays.import_pt),
    "pkl": (pickles.export_pkl, pickles.import_pkl),
    "p5": (pickles.export_p5, pickles.import_p5),
    "csv": (texts.export_csv, None),
    "png": (texts.export_png, None),
    "dir": (texts.export_dir, None),
    "doc": (texts.export_doc, None),
    "fingerprint": (fingerprint.export, None),  # for the daemon only, as the next one
    "clone": (clone.export, None),
}
_COPIED = ("pkl", "p5", "pt")
_STATE_VIEWS = ("safetensors", "pt")  # into a module or optimizer: load_state_dict
_BLANK = "blank "  # see Tget in wire.h
_ATTEMPTS = 3  # to read an object that a running cell keeps changing

# functions: (what commit(True) does, what undoes put()); None: nothing is pending
_pending: tuple[Step, Step] | None = None


def _view(name: str) -> tuple[Exporter, Importer | None]:
    if name not in VIEWS:
        known = " ".join(view for view in VIEWS if view)
        raise EngineError(EINVAL, f"no view .{name}; there are: {known}")
    return VIEWS[name]


def _lookup(path: str) -> Any:
    """The object that a name or an attribute, `a.b.c`, refers to; `__main__` is the namespace.
    `SCOPE:a` is in a frame, see frames.value(); `a/KEY/KEY` in an object, see inside.items()."""
    name, value, keys = _begin(path)
    return inside.items(name, value, keys)[-1]


def _begin(path: str) -> tuple[str, Any, list[str]]:
    """(the name, the object, the keys in it) of a path."""
    name, *keys = path.split("/")
    scope, _, name = name.rpartition(":")
    name, *attributes = name.split(".")
    try:
        if scope:
            value = frames.value(scope, name)
        else:
            value = state.main if name == table.MAIN else state.main.__dict__[name]
    except KeyError:
        raise EngineError(ENOENT, f"no variable {name} on rank {state.rank}") from None
    for attribute in attributes:
        value, name = _attribute(name, value, attribute), f"{name}.{attribute}"
    return name, value, keys


def _shown(path: str) -> str:
    """How messages call what a path refers to."""
    name, *keys = path.split("/")
    return inside.shown(name.rpartition(":")[2], keys)


def names_inside(path: str) -> Export:
    """The entries of the object that the path `…/` refers to, see inside.names(). Raises
    EngineError."""
    name, value, keys = _begin(path.removesuffix("/"))
    return inside.names(name, value, keys)


def has_inside(path: str) -> tuple[bool, str]:
    """(is there such an entry, or with a `/` at the end such an object to look into?, why not)."""
    try:
        name, value, keys = _begin(path.removesuffix("/"))
        look = inside.check if path.endswith("/") else inside.items
        look(name, value, keys)
    except EngineError as e:
        return False, str(e)
    return True, ""


def _attribute(name: str, value: Any, attribute: str) -> Any:
    """Refuses properties: what they compute is the program's business."""
    if isinstance(getattr(type(value), attribute, None), (property, functools.cached_property)):
        raise EngineError(EOPNOTSUPP, f"{name}.{attribute} is a property: nothing computes it here")
    try:
        return getattr(value, attribute)
    except Exception as e:  # a __getattr__ may raise anything
        raise EngineError(ENOENT, f"{name} has no {attribute} ({reason(e)})") from None


def get(
    name: str, view: str, op: str = "", fd: int = -1, export_part: Exporter = across_ranks.export
) -> Export:
    """The object that the name is bound to now, as a view.Export.

    With an OP, this rank's part of an object over all ranks, by export_part(name, object). With a
    descriptor as well, which stays the caller's, the view of the object made from all parts, whose
    bytes the descriptor holds. With `blank SIZE` before the OP, the same if it needs only their
    number, else nothing. For the OP `same`, the view in host memory.

    Raises EngineError, also for whatever the object's own code raises.
    """
    export, _ = _view(view)
    path, name = name, _shown(name)
    if op.startswith(_BLANK):
        _, size, op = op.split(" ", 2)
        data = blank(int(size))
        if data is None:
            return Export()
        made, lies = _whole(export, name, view, op, data)
        return Export(made.head, size=made.size, blank=True) if lies else Export()
    if fd >= 0:
        data = Incoming(fd, os.fstat(fd).st_size).data()
        made, lies = _whole(export, name, view, op, data)
        return Export(made.head, fd=fd, size=made.size) if lies else made
    if op == "same":
        return gpu.hosted(_export(export, name, view, _lookup(path)))
    if op:
        export = export_part
    return _export(export, name, view, _lookup(path))


def _whole(
    export: Exporter, name: str, view: str, op: str, data: memoryview
) -> tuple[Export, bool]:
    """(the view of the object over all ranks with these bytes, is it a head and then the bytes?)"""
    value = across_ranks.assemble(name, op, data)
    try:
        made = _export(export, name, view, value)
    except EngineError as e:
        raise across_ranks.named(e, name, op) from None
    return made, across_ranks.ends_with(made, value, len(data))


def _export(export: Exporter, name: str, view: str, value: Any) -> Export:
    for _ in range(_ATTEMPTS):
        try:
            if view in _COPIED:
                room.check(name, view, value)
            return export(name, value)
        except BaseException as e:  # code of the object's class may raise anything
            if not _changed_meanwhile(e):
                what = f"{_path(name, view)} of {article(value)}"
                raise refusal_of(e, what, EOPNOTSUPP) from None
    raise EngineError(EAGAIN, f"{name} changes while it is read: try again")


def _path(name: str, view: str) -> str:
    return f"{name}.{view}" if view and view != "fingerprint" else name


def _changed_meanwhile(error: BaseException) -> bool:
    """True for "dictionary changed size during iteration", "deque mutated during iteration"."""
    return raised.is_a(error, RuntimeError) and "during iteration" in reason(error)


def _call(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


def put(
    name: str, view: str, op: str, fd: int, size: int, call: Callable[..., Any] = _call
) -> None:
    """Decodes pushed bytes; nothing is bound until commit(True). fd: a memfd that has `size` bytes,
    which stays the caller's. Raises EngineError, and then nothing has changed.

    call(function, *args) calls the function, and may raise state.Cancelled in it at any time.
    """
    global _pending
    commit(False)
    path, name, change = name, _shown(name), None
    if "/" in path:
        old, change = inside_set.prepare(*_begin(path))
    else:
        check_name(name)
        old = state.main.__dict__.get(name, ABSENT)
    undo: list[Undo] = []
    loads = view in _STATE_VIEWS and arrays.holds_state(old) and not op
    try:
        value = call(_decode, name, view, op, Incoming(fd, size), old, undo if loads else None)
        if change is not None and not loads:
            call(change, value, undo)
    except BaseException as e:  # the bytes may be anything, and may make any code run
        for function in undo:
            function()
        what = f"{_path(name, view)}: {size} bytes that do not decode"
        raise refusal_of(e, what, EBADMSG) from None
    _pending = (None, undo[0]) if undo else ((lambda: _bind(name, value)), None)


def _bind(name: str, value: Any) -> Any:
    """Binds the name. Returns what it was bound to before."""
    names = state.main.__dict__
    old, names[name] = names.get(name), value
    return old


def _decode(
    name: str, view: str, op: str, incoming: Incoming, old: Any, undo: list[Undo] | None
) -> Any:
    """The object that this rank makes from the bytes. If undo is a list, the object is loaded into
    the old one, and a function that undoes that is appended: loading may fail, and a rank where it
    does must be able to stop all the others."""
    _, decode = _view(view)
    if decode is None:
        raise EngineError(EOPNOTSUPP, f".{view} can only be read")
    value = decode(name, incoming, old)
    if op == "cuda":
        return gpu_write.on_device(value)
    if op:
        return across_ranks.scatter(name, value, op, old, state.rank, state.size)
    if undo is not None:
        state_dicts.check(name, old, value)
        undo.append(state_dicts.keep(old))
        state_dicts.load(name, old, value)
    return value


def commit(keep: int) -> list[Any]:
    """Does what put() or move() prepared, or with keep=False leaves everything as it was before.
    Raises EngineError(EINVAL) if nothing is there to be kept.

    Returns the objects that the caller releases: their own code may run then.
    """
    global _pending
    pending, _pending = _pending, None
    if pending is None:
        if keep:
            raise EngineError(EINVAL, "nothing was pushed that could be kept")
        return []
    act, undo = pending
    function = act if keep else undo
    return [pending, function() if function is not None else None]


def check_name(name: str) -> None:
    """Refuses a name that no variable can have, or that means another in source (PEP 3131)."""
    if not table.is_name(name):
        raise EngineError(EINVAL, f"'{name}' is not a valid variable name")
    plain = name if name.isascii() else unicodedata.normalize("NFKC", name)
    if plain != name:
        text = f"'{name}' is not a valid variable name: Python's source means '{plain}' by it"
        raise EngineError(EINVAL, text)


def delete(name: str) -> Any:
    """Removes the name. Returns what it was bound to. Raises EngineError(ENOENT)."""
    _lookup(name)
    return state.main.__dict__.pop(name)


def move(old: str, new: str) -> None:
    """Renames at commit(True), which replaces what the new name held. Raises EngineError."""
    global _pending
    check_name(new)
    _lookup(old)
    _pending = (lambda: _rename(old, new)), None


def _rename(old: str, new: str) -> Any:
    return _bind(new, state.main.__dict__.pop(old))
