"""The namespace of a rank as bytes, which clone_load.py puts into that of another rank.

The bytes are those of a p5 file. What should be its pickle is the length of a head (u64), the
head, and then a pickle for each name. Those share one memo, so that what several names share stays
shared. The bytes of arrays and tensors are the file's buffers. The head is a pickled dict:

    names     (name, length of its pickle, number of `outside` buffers before it, of all buffers)
    states    names whose pickle is a list of the tensors and optimizers in them, instead of them
    sharded   names that have shards of this rank
    failures  (name, reason)
    outside   the indexes of the buffers that the pickles name by NEXT_BUFFER
    lines     the lines of functions that cells have defined, for tracebacks
    path, cwd, random   of sys.path, the current directory, the random generators
"""

from __future__ import annotations

import ctypes
import io
import linecache
import marshal
import os
import pickle
import random
import re
import sys
import types
from errno import EOPNOTSUPP

from ddip_engine import p5, raised, state
from ddip_engine.data import clone_load, clone_paths, clone_shards, gpu, room
from ddip_engine.data.arrays import is_tensor
from ddip_engine.data.view import export_written, one_line, reason
from ddip_engine.state import Cancelled, EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import torch
    from ddip_engine.data.view import Export

# What IPython keeps in the namespace: _, __, _i3, _12, _ih …
_OF_IPYTHON = re.compile(r"__.*__|_+|_i+|_i?\d+|_(ih|oh|dh|exit_code)")
_TRACK = re.compile(r"[0-9a-f]{32}")
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_SHARDED = ("DTensor", "FSDPModule", "FullyShardedDataParallel")


def export(name: str, value: object) -> Export:
    """The view `clone` of `__main__`: all that can be copied of this rank's namespace."""
    names = names_in(state.main.__dict__)
    room.check("the namespace", "p5", names)
    pickled, pickler, _ = dump(names, _surroundings())
    buffers = [memoryview(buffer).cast("B") for buffer in pickler.buffers]
    return export_written(lambda file: p5.write(file.write, pickled, buffers))


def dump(
    left: dict[str, Any], about: dict[str, Any], saves: bool = False
) -> tuple[bytes, Pickling, dict[str, Any]]:
    """Pickles what can be of these names, which are taken from the dict if they cannot.

    Returns (what a p5 file has as its pickle, the pickler that keeps the buffers, the head).
    about: more entries of the head. saves: it is for this rank itself, later: it has what is
    sharded, and bytes are the same for the same class; without, a class that is made again is the
    one which the same bytes, or later ones, have made before.
    """
    failures: dict[str, str] = {}
    states: list[str] = []
    found = clone_paths.find(left)
    paths = {key: path for key, (path, _) in found.items()}
    while failed := (pickler := _pickler(paths, saves)).dump_all(left):
        for each, why in failed:
            failures.setdefault(each, why)
            value = left.pop(each)
            if each not in states and (parts := _states(each, value, saves)):
                left[each] = parts
                states.append(each)
    head = {
        "names": pickler.places,
        "states": states,
        "sharded": list(pickler.sharded),
        "failures": list(failures.items()),
        "outside": pickler.outside,
        "lines": pickler.lines,
        "random": _random_states(),
        **about,
    }
    head_bytes = pickle.dumps(head, 5)
    pickled = len(head_bytes).to_bytes(8, "little") + head_bytes + pickler.file.getvalue()
    return pickled, pickler, head


def _states(name: str, value: Any, saves: bool) -> list[Any]:
    """The tensors, and the optimizers that can be pickled, in what cannot be."""
    found = [part for _, part in clone_paths.find({name: value}).values() if part is not value]
    tensors = [part for part in found if is_tensor(part)]
    others = [part for part in found if not is_tensor(part) and not hasattr(part, "buffers")]
    numbered = {str(i): part for i, part in enumerate(others)}
    lost = dict(_failing(numbered, saves))
    return tensors + [part for i, part in numbered.items() if i not in lost]


def names_in(space: dict[str, Any]) -> dict[str, Any]:
    """The names of a namespace that are copied: all but those of the engine and of IPython."""
    own = state.engine_names
    return {
        name: value
        for name, value in space.copy().items()
        if type(name) is str
        and not (name in own and own[name] is value)
        and not _OF_IPYTHON.fullmatch(name)
    }


def _surroundings() -> dict[str, Any]:
    """What imports need: the directories of modules, and the current one."""
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    return {"path": list(sys.path), "cwd": cwd}


def _random_states() -> dict[str, Any]:
    """The states of the generators of random, NumPy and torch, on the CPU and this rank's GPU."""
    states: dict[str, Any] = {"random": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = (kind, keys.tolist(), *rest)
    if (torch := gpu.torch_module()) is not None:
        states["torch"] = bytes(torch.get_rng_state().tolist())
        if gpu.uses_cuda():
            states["cuda"] = bytes(torch.cuda.get_rng_state(gpu.current_device()).tolist())
    return states


class _Storage:
    """The bytes of one storage of tensors, which all views of it share. index: of its buffer,
    counted from the first one of the name that is pickled, so that pickles can be compared."""

    def __init__(self, storage: torch.UntypedStorage, index: int) -> None:
        self.fields = index, storage.nbytes(), storage.device.type, _is_own(storage.device)


def _is_own(device: torch.device) -> int:
    """The GPU's number, unless it is the one of this rank: then True."""
    if device.type != "cuda":
        return True
    return True if device.index in (None, gpu.current_device()) else device.index


def _bytes_of(storage: torch.UntypedStorage) -> bytearray | tuple[memoryview, torch.Tensor]:
    """The bytes of a storage as a buffer; a copy if they are on a GPU."""
    torch = gpu.torch_module()
    size = storage.nbytes()
    if not size:
        return bytearray()
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    flat = gpu.host(flat)
    return memoryview((ctypes.c_ubyte * size).from_address(flat.data_ptr())), flat


class Pickling:
    """What picklers have, whatever their base class is. The one of _pickler() pickles."""

    dump: Callable[[Any], None]  # of that class

    def __init__(self, paths: dict[int, str], saves: bool) -> None:
        self.file = io.BytesIO()  # the pickles
        self.buffers: list[Any] = []  # all of them, in the order of the file
        self.kept: list[Any] = []  # what keeps the memory of buffers
        self.outside: list[int] = []  # the indexes of those that pickles name by NEXT_BUFFER
        # name, length of its pickle, number of `outside` buffers before it, of all buffers
        self.places: list[tuple[str, int, int, int]] = []
        self.lines: dict[str, Any] = {}  # file -> its entry in linecache.cache
        self.storages: dict[tuple[int, int], _Storage] = {}  # by address and size
        self.first = 0  # the index of the first buffer of the name that is pickled
        self.paths, self.saves = dict(paths), saves
        self.name = ""  # that is pickled
        self.sharded: dict[str, None] = {}  # names that have shards of this rank

    def buffer(self, buffer: pickle.PickleBuffer) -> None:
        """Keeps the memory of a buffer, which the pickle leaves out."""
        self.outside.append(len(self.buffers))
        self.buffers.append(buffer.raw())

    def note_sharded(self) -> None:
        """The name that is pickled has shards of this rank."""
        self.sharded[self.name] = None

    def dump_all(self, names: dict[str, Any]) -> list[tuple[str, str]] | None:
        """Pickles all values. If one fails, returns [(name, reason)] of those that cannot be
        pickled; else None."""
        for name, value in names.items():
            self.file.seek(0, io.SEEK_END)
            before, outside = self.file.tell(), len(self.outside)
            self.first, self.name = len(self.buffers), name
            try:
                self.dump(value)
            except (Cancelled, MemoryError):
                raise
            except Exception as e:  # pickling runs methods of arbitrary objects
                later = list(names)[list(names).index(name) + 1 :]
                failing = _failing({each: names[each] for each in later}, self.saves)
                return [(name, _why(name, value, e, self)), *failing]
            self.places.append((name, self.file.tell() - before, outside, self.first))
        return None


def _pickler(paths: dict[int, str], saves: bool) -> Pickling:
    """A pickler. paths: of the tensors, modules and optimizers, by their ids; saves: see dump()."""
    parent: Any = p5.base()

    class Pickler(Pickling, parent):
        def __init__(self) -> None:
            Pickling.__init__(self, paths, saves)
            parent.__init__(self, self.file, protocol=5, buffer_callback=self.buffer)

        def reducer_override(self, value: Any) -> Any:
            reduced = _reduce(self, value)
            if reduced is NotImplemented:
                inherited = getattr(super(), "reducer_override", None)
                reduced = inherited(value) if inherited is not None else NotImplemented
            if not isinstance(value, type) or type(reduced) is not tuple:
                return reduced
            make, args, *rest = reduced
            facts = value.__qualname__, type(value), value.__bases__
            if saves:  # cloudpickle names classes by numbers of its own
                args = tuple(None if _is_track(each) else each for each in args)
            own = (rest[3], rest[0]) if len(rest) == 4 else (None, None)
            return clone_load.class_, (*facts, make, args), own, None, None, clone_load.fill_class

    return Pickler()


def _is_track(value: object) -> bool:
    return type(value) is str and _TRACK.fullmatch(value) is not None


def _failing(names: dict[str, Any], saves: bool) -> list[tuple[str, str]]:
    """[(name, reason)] of those that cannot be pickled."""
    found = []
    for name, value in names.items():
        alone = _pickler({}, saves)
        try:
            alone.dump(value)
        except (Cancelled, MemoryError):
            raise
        except Exception as e:
            found.append((name, _why(name, value, e, alone)))
    return found


def _why(name: str, value: Any, error: Exception, pickler: Pickling) -> str:
    """The reason why a value cannot be copied, with the part that is at fault."""
    if raised.is_a(error, EngineError):
        return str(error)
    where, _, error = p5.culprit(value, name, error, lambda part: _reduce(pickler, part))
    text = reason(error).removeprefix("TypeError: ")
    return text if where == name else f"{one_line(where)}: {text}"


# ---- how objects are reduced


def _reduce(pickler: Pickling, value: Any) -> Any:
    """The reduction of what is not pickled as usual, or NotImplemented."""
    if isinstance(value, types.FunctionType) and value.__globals__ is state.main.__dict__:
        return _reduce_function(pickler, value)
    if type(value) is types.CellType:
        try:
            content = (value.cell_contents,)
        except ValueError:  # a variable without a value
            content = None
        return types.CellType, (), content, None, None, clone_load.fill_cell
    if isinstance(value, types.ModuleType):
        return clone_load.module, (value.__name__,)
    if isinstance(value, _FILES) and value not in (sys.stdin, sys.stdout, sys.stderr):
        raise EngineError(EOPNOTSUPP, "an open file")
    torch = gpu.torch_module()
    if torch is None or isinstance(value, type):
        return NotImplemented
    names = {kind.__name__ for kind in type(value).__mro__}
    if "ProcessGroup" in names:
        return _reduce_group(value)
    if pickler.saves and (reduced := clone_shards.reduce(pickler, value)) is not NotImplemented:
        return reduced
    if names & {*_SHARDED}:
        raise EngineError(EOPNOTSUPP, "sharded over the ranks: each rank has a part of its own")
    if isinstance(value, torch.device):
        return clone_load.device, (value.type, value.index is not None and _is_own(value))
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return _reduce_tensor(pickler, value)
    if isinstance(value, _Storage):
        return clone_load.Storage, value.fields
    return _reduce_holder(pickler, value) if clone_paths.is_holder(value) else NotImplemented


def _reduce_function(pickler: Pickling, function: types.FunctionType) -> tuple[Any, ...]:
    """A function whose globals are the namespace: those of the other rank take their place."""
    code = function.__code__
    if code.co_filename in linecache.cache and not os.path.exists(code.co_filename):
        pickler.lines[code.co_filename] = linecache.cache[code.co_filename]
    rest = {
        "__defaults__": function.__defaults__,
        "__kwdefaults__": function.__kwdefaults__,
        "__annotations__": function.__annotations__,
        "__dict__": function.__dict__,
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
    }
    made = marshal.dumps(code), function.__name__, function.__closure__
    return clone_load.function, made, rest, None, None, clone_load.fill_function


def _reduce_group(group: Any) -> tuple[Any, ...]:
    if group is clone_load.default_group():
        return clone_load.default_group, ()
    raise EngineError(EOPNOTSUPP, "a process group: make it on each rank with new_group()")


def _reduce_tensor(pickler: Pickling, tensor: torch.Tensor) -> Any:
    torch = gpu.torch_module()
    special = tensor.is_quantized or tensor.is_meta or tensor.is_conj() or tensor.is_neg()
    if special or tensor.layout is not torch.strided or tensor.is_nested:
        return NotImplemented
    storage = tensor.untyped_storage()
    key = storage.data_ptr(), storage.nbytes()
    if not key[0] or key not in pickler.storages:
        pickler.storages[key] = _Storage(storage, len(pickler.buffers) - pickler.first)
        data = _bytes_of(storage)
        pickler.kept.append(data)
        pickler.buffers.append(data[0] if data else data)
    form = tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
    leaf = tensor.is_leaf
    path, wants = pickler.paths.get(id(tensor)), leaf and tensor.requires_grad
    made = path, type(tensor) is torch.nn.Parameter, pickler.storages[key], form, wants
    rest = tensor.grad if leaf else None, wants, tensor.__dict__ or None
    return clone_load.tensor, made, rest, None, None, clone_load.fill_tensor


def _reduce_holder(pickler: Pickling, value: Any) -> Any:
    """A module or an optimizer that is pickled as objects are: a class and a state."""
    make, args, *rest = value.__reduce_ex__(5)
    if not rest or rest[0] is None or (rest[1:] and any(part is not None for part in rest[1:])):
        return NotImplemented
    made = pickler.paths.get(id(value)), type(value), make, args
    return clone_load.holder, made, rest[0], None, None, clone_load.fill_holder
