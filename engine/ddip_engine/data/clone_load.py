"""Puts the namespace of another rank into this one's; the bytes are made by clone.py.

Tensors, modules and optimizers that have the same place and form here as there stay the same
objects, so that wrappers and optimizers go on with them; all other names are bound to new objects.
Everything is decoded before anything is changed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import linecache
import marshal
import os
import pickle
import pickletools
import random
import struct
import sys
import types
from errno import EBADMSG

from ddip_engine import p5, state
from ddip_engine.data import clone_paths, gpu
from ddip_engine.data.view import reason
from ddip_engine.state import Cancelled, EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, TypeAlias, TypeVar

    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.nn.parallel import DistributedDataParallel

    T = TypeVar("T")
    Reasons: TypeAlias = dict[str, str]  # by name
    Bind: TypeAlias = Callable[[dict[str, Any]], list[Any]]
    Form: TypeAlias = tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]  # strides, offset
    # of a tensor: its gradient, does it want one?, its attributes
    Rest: TypeAlias = tuple[torch.Tensor | None, bool, dict[str, Any] | None]

_HEAD_SIZE = 8  # bytes: the length of the head
MEMOIZES = ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT")
_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE")
FROM_MEMO = ("GET", "BINGET", "LONG_BINGET")
_PUT = struct.Struct("<ciccIc")  # BININT, BINPERSID, LONG_BINPUT, POP
# the one in progress: what pickles call needs it
_now: _Loading = None  # type: ignore[assignment]


def load(
    data: memoryview,
    call: Callable[..., Any],
    space: dict[str, Any] | None = None,
    unwanted: Reasons | None = None,
    bind: Bind | None = None,
    generators: Reasons | None = None,
) -> tuple[int, list[tuple[str, str]], bool, list[Any]]:
    """Loads the bytes. call(function, *args) calls the function, and may raise Cancelled in it.

    space: the names that are here, by default those of `__main__`; bind(values) binds them, and
    returns the objects replaced. unwanted: {name: reason} of those that are not to be loaded,
    generators: the same of random generators.

    Raises EngineError(EBADMSG), and what call() and bind() raise.

    Returns (number of names copied, [(name, reason)] of those that were not, whether a
    DistributedDataParallel is new or has other parameters, so that its peers must begin anew, too;
    a list of the objects that were replaced).
    """
    global _now
    try:
        head, pickles, buffers = split(data)
    except p5.Malformed as e:
        raise EngineError(EBADMSG, str(e)) from None
    _now = loading = _Loading(buffers, head, state.main.__dict__ if space is None else space)
    try:
        loading.go_there()
        call(loading.decode, pickles)
        loading.leave(unwanted or {}, generators or {})
        old = loading.apply(bind or _bind)
    finally:
        _now = None  # type: ignore[assignment]
    return len(loading.values), loading.failures, loading.wrapped, old


def split(data: memoryview) -> tuple[dict[str, Any], memoryview, list[memoryview]]:
    """(head, the pickles of the names, buffers) of the bytes. Raises p5.Malformed."""
    pickled, buffers = p5.split(data)
    end = _HEAD_SIZE + int.from_bytes(pickled[:_HEAD_SIZE], "little")
    return pickle.loads(pickled[_HEAD_SIZE:end]), pickled[end:], buffers


def _bind(values: dict[str, Any]) -> list[Any]:
    space = state.main.__dict__
    old = [space.get(name) for name in values]
    space.update(values)
    return old


class _Loading:
    """One clone: what is decoded, and what is still to be done to objects of this rank."""

    def __init__(
        self, buffers: list[memoryview], head: dict[str, Any], space: dict[str, Any]
    ) -> None:
        self.buffers, self.head = buffers, head
        self.space = space
        self.others: dict[str, str] = {}  # other paths of an object -> its path in self.here
        self.here: dict[str, Any] = dict(clone_paths.find(space, True, self.others).values())
        self.kept: set[int] = set()  # ids of what stays: objects in self.here, and classes
        # address of a storage of this rank -> the Storage that is copied into it
        self.taken: dict[int, Storage] = {}
        self.filled: dict[int, Any] = {}  # id -> object that was made and got all that it has
        self.values: dict[str, Any] = {}  # name -> new value
        self.name = ""  # that is decoded
        self.first = 0  # the index of its first buffer
        self.pending: list[tuple[str, Callable[[], object]]] = []  # by name
        self.wrapped = False
        self.failures: list[tuple[str, str]] = list(head["failures"])

    def go_there(self) -> None:
        """Modules are found, and files, where the other rank finds them."""
        sys.path += [each for each in self.head["path"] if each not in sys.path]
        with contextlib.suppress(OSError):  # another host
            os.chdir(self.head["cwd"])
        for file, lines in self.head["lines"].items():
            linecache.cache.setdefault(file, lines)

    # ---- decoding

    def decode(self, data: memoryview) -> None:
        """Decodes all names. One that fails takes with it the later ones that share its objects."""
        at = 0
        lost: dict[int, str] = {}
        unpickler = self._unpickler(data, 0)
        for name, size, outside, first in self.head["names"]:
            part, self.name, self.first = data[at : at + size], name, first
            try:
                if lost:
                    _check_memo(part, lost)
                self.values[name] = unpickler.load()
            except (Cancelled, KeyboardInterrupt, MemoryError):
                raise
            except BaseException as e:  # unpickling can run any code
                text = str(e) if isinstance(e, Refused) else reason(e)
                self.failures.append((name, text))
                self.pending = [each for each in self.pending if each[0] != name]
                first, after = _count(data[:at]), _count(data[: at + size])
                has = unpickler.memo.copy()
                has.update(_constants(part, first, has, unpickler.find_class))
                memo = {key: has.get(key) for key in range(after)}
                whole = [key for key in range(first, after) if self._is_whole(memo[key])]
                lost.update(dict.fromkeys({*range(first, after)}.difference(whole), name))
                following = outside + sum(op == "NEXT_BUFFER" for op, _ in ops(part))
                unpickler = self._unpickler(data[at + size :], following, memo)
            at += size
        self.name = ""

    def _unpickler(
        self, data: memoryview, outside: int, memo: dict[int, Any] | None = None
    ) -> pickle.Unpickler:
        """An unpickler that begins with this memo."""
        indexes = self.head["outside"][outside:]
        # copies: a small array must not keep the whole file in memory
        buffers = (bytearray(self.buffers[i]) for i in indexes)
        if memo is None:
            return pickle.Unpickler(io.BytesIO(data), buffers=buffers)
        # CPython loses a dict that is assigned to the attribute `memo`
        puts = b"".join(_PUT.pack(b"J", key, b"Q", b"r", key, b"0") for key in memo)
        made = _Unpickler(io.BytesIO(b"\x80\x05" + puts + b"N." + data), buffers=buffers)
        made.given = memo
        made.load()
        return made

    def _is_whole(self, value: Any) -> bool:
        """Has all of this object been made, whatever happened to what it was made for?"""
        if isinstance(value, (type, types.FunctionType)) and value.__module__ != "__main__":
            return True
        return isinstance(value, _WHOLE) or id(value) in self.filled or _is_dtype(value)

    def keeps(self, value: object) -> bool:
        """Is it an object of this rank that stays?"""
        return id(value) in self.kept

    def keep(self, value: T) -> T:
        """Notes such an object, and returns it."""
        self.kept.add(id(value))
        return value

    def at(self, path: str | None) -> Any:
        """The tensor, module or optimizer of this rank that has this path, unless it stays for
        another one; None: there is none."""
        if path is None:
            return None
        if path in self.here:
            return None if self.keeps(self.here[path]) else self.here[path]
        end = len(path)
        while end > 0:
            if (first := self.others.get(path[:end])) is not None:
                return self.at(first + path[end:])
            end = path.rfind(".", 0, end)
        return None

    def meshes(self) -> Iterator[DeviceMesh]:
        """The meshes of this rank."""
        for value in [*self.space.values(), *self.here.values()]:
            if clone_paths.is_kind(value, "DeviceMesh"):
                yield value
            elif clone_paths.is_sharded_tensor(value):
                yield value.device_mesh

    def later(self, function: Callable[..., object], *args: Any) -> None:
        """Calls the function once everything has been decoded."""
        self.pending.append((self.name, functools.partial(function, *args)))

    # ---- changing this rank

    def apply(self, bind: Bind) -> list[Any]:
        """Changes the objects that stay, and binds the names. Returns the objects replaced."""
        for name, function in self.pending:
            try:
                function()
            except Exception as e:  # a module's own code, or no memory on a GPU
                self.failures.append((name, reason(e)))
                self.values.pop(name, None)
        for name in self.head["states"]:
            self._note_state(name, self.values.pop(name, []))
        old = bind(self.values)
        for kind, restore in _RANDOM.items():
            if kind in self.head["random"]:
                try:
                    restore(self.head["random"][kind])
                except Exception as e:  # another version's, or a rank without a GPU
                    self.failures.append((f"the random state of {kind}", reason(e)))
        return old

    def leave(self, unwanted: Reasons, generators: Reasons) -> None:
        """Does nothing with these names and random generators ({name: reason})."""
        self.failures = [each for each in self.failures if each[0] not in unwanted]
        self.failures += unwanted.items()
        self.pending = [each for each in self.pending if each[0] not in unwanted]
        self.values = {n: value for n, value in self.values.items() if n not in unwanted}
        for kind, why in generators.items():
            self.head["random"].pop(kind, None)
            self.failures.append((f"the random state of {kind}", why))

    def _note_state(self, name: str, parts: list[Any]) -> None:
        """Of what could not be pickled only these parts have been copied, where they were here."""
        kept = sum(map(self.keeps, parts))
        if not kept:
            return
        what = "only its tensors" if kept == len(parts) else "only some of its tensors"
        self.failures = [
            (each, f"{what} were copied, not {why}" if each == name else why)
            for each, why in self.failures
        ]


class _Unpickler(pickle.Unpickler):
    given: dict[int, Any]  # objects by number

    def persistent_load(self, pid: int) -> Any:
        return self.given[pid]


class Refused(Exception):
    """A name needs what is not here, or could not be made."""


def loading() -> _Loading:
    """The _Loading in progress."""
    return _now


def ops(data: memoryview) -> Iterator[tuple[str, Any]]:
    """(name, argument) of each operation of these pickles."""
    return ((op.name, arg) for op, arg, _ in _all_ops(io.BytesIO(data)))


def _all_ops(file: io.BytesIO) -> Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]]:
    """The operations of all pickles in a file."""
    size = file.getbuffer().nbytes
    while file.tell() < size:
        yield from pickletools.genops(file)


def _count(data: memoryview) -> int:
    """The number of objects that these pickles put into the memo."""
    return sum(op in MEMOIZES for op, _ in ops(data))


def _constants(
    part: memoryview, first: int, memo: Mapping[int, Any], find: Callable[[str, str], Any]
) -> dict[int, Any]:
    """The strings and globals that a pickle puts into the memo, from this index on: index -> value.
    find(module, name) looks a global up."""
    found: dict[int, Any] = {}
    texts: list[str] = []
    last, at = None, first
    for op, arg in ops(part):
        if op in MEMOIZES:
            if last is not None:
                found[at] = last
            at += 1
        elif op == "STACK_GLOBAL":
            with contextlib.suppress(Exception):  # then the first failure was this one
                last = find(*texts[-2:])
        elif op not in ("FRAME", "PROTO"):
            last = arg if op in _TEXTS else None
            from_memo = found.get(arg, memo.get(arg)) if op in FROM_MEMO else None
            texts += [text for text in (last, from_memo) if type(text) is str]
    return found


def _is_dtype(value: object) -> bool:
    numpy, torch = sys.modules.get("numpy"), gpu.torch_module()
    kinds = tuple(module.dtype for module in (numpy, torch) if module is not None)
    return isinstance(value, kinds)


def _check_memo(part: memoryview, lost: Mapping[int, str]) -> None:
    """Refuses a pickle that takes something from the memo that could not be made."""
    for op, arg in ops(part):
        if op in FROM_MEMO and arg in lost:
            raise Refused(f"it shares an object with {lost[arg]}")


def _set_torch(states: bytes) -> None:
    torch = gpu.torch_module()
    torch.set_rng_state(torch.tensor(list(states), dtype=torch.uint8, device="cpu"))


def _set_cuda(states: bytes) -> None:
    torch = gpu.torch_module()
    states = torch.tensor(list(states), dtype=torch.uint8, device="cpu")
    torch.cuda.set_rng_state(states, gpu.current_device())


_RANDOM: dict[str, Callable[[Any], object]] = {
    "random": random.setstate,
    "numpy": lambda states: importlib.import_module("numpy").random.set_state(states),
    "torch": _set_torch,
    "cuda": _set_cuda,
}


# ---- what the pickles call


def module(name: str) -> types.ModuleType:
    """The module of this name."""
    return importlib.import_module(name)


def default_group() -> Any:
    """This rank's default process group."""
    return gpu.torch_module().distributed.group.WORLD


def device(kind: str, index: int) -> torch.device:
    """A torch.device. index False: none; True: this rank's own."""
    torch = gpu.torch_module()
    if index is False or (index is True and kind != "cuda"):
        return torch.device(kind)
    return torch.device(kind, gpu.current_device() if index is True else index)


def fill_cell(cell: types.CellType, content: tuple[Any]) -> None:
    """Sets a variable of a closure."""
    (cell.cell_contents,) = content
    _fills(cell)


def function(
    code: bytes, name: str, closure: tuple[types.CellType, ...] | None
) -> types.FunctionType:
    """A function of this rank's namespace."""
    return types.FunctionType(marshal.loads(code), state.main.__dict__, name, None, closure)


def fill_function(made: types.FunctionType, rest: dict[str, Any]) -> None:
    """Sets what a function may change."""
    for name, value in rest.items():
        if name == "__dict__":
            made.__dict__.update(value)
        else:
            setattr(made, name, value)
    _fills(made)


def class_(
    name: str, kind: type, bases: tuple[type, ...], make: Callable[..., type], args: tuple[Any, ...]
) -> type:
    """The class of this name, if it has the same bases here: its objects stay its objects."""
    old: Any = state.main.__dict__.get(name)
    same = type(old) is kind and isinstance(old, type) and old.__bases__ == bases
    if same and old.__module__ == "__main__" and kind.__module__ != "enum":
        return _now.keep(old)
    return make(*args)


def fill_class(made: type, rest: tuple[Callable[[type, Any], object] | None, Any]) -> None:
    """Gives a class its attributes."""
    fill, fields = rest
    if fill is None:
        return
    if _now.keeps(made):
        _now.later(fill, made, fields)
    else:
        fill(made, fields)
    _fills(made)


def _fills(made: object) -> None:
    """The object has got all that it has."""
    _now.filled[id(made)] = made


class Storage:
    """The bytes of a storage, which are copied into one of this rank's or make a new one."""

    def __init__(self, index: int, size: int, kind: str, own: int) -> None:
        self.index, self.size = _now.first + index, size
        self.device = device(kind, own)
        self._storage: Any = None  # see storage()

    def data(self) -> torch.Tensor:
        """The bytes that came, as a tensor."""
        torch = gpu.torch_module()
        if not self.size:
            return torch.empty(0, dtype=torch.uint8, device="cpu")
        return torch.frombuffer(_now.buffers[self.index], dtype=torch.uint8)

    def storage(self) -> torch.UntypedStorage:
        """The storage that has the bytes, or will have them."""
        if self._storage is None:
            self._storage = self.data().to(self.device, copy=True).untyped_storage()
        return self._storage

    def takes(self, storage: torch.UntypedStorage) -> bool:
        """Can a storage of this rank be the one?"""
        if self._storage is not None:
            return self._storage.data_ptr() == storage.data_ptr()
        if storage.nbytes() != self.size or storage.device.type != self.device.type:
            return False
        if storage.data_ptr() in _now.taken:
            return False
        _now.taken[storage.data_ptr()] = self
        self._storage = storage
        _now.later(self._copy)
        return True

    def _copy(self) -> None:
        torch = gpu.torch_module()
        flat = torch.empty(0, dtype=torch.uint8, device=self._storage.device)
        flat.set_(self._storage).copy_(self.data())


def tensor(
    path: str | None, is_parameter: bool, storage: Storage, form: Form, wants_grad: bool
) -> torch.Tensor:
    """A tensor over this storage; that of this rank at this path, if it has the same form."""
    torch = gpu.torch_module()
    old = _now.at(path)
    if type(old) is (torch.nn.Parameter if is_parameter else torch.Tensor) and old.is_leaf:
        has = old.dtype, tuple(old.shape), old.stride(), old.storage_offset()
        strided = old.layout is torch.strided and not old.is_quantized
        if strided and has == form and storage.takes(old.untyped_storage()):
            return _now.keep(old)
    dtype, shape, stride, offset = form
    made = torch.empty(0, dtype=dtype, device=storage.device)
    made.set_(storage.storage(), offset, shape, stride)
    if is_parameter:
        return torch.nn.Parameter(made, requires_grad=wants_grad)
    return made.requires_grad_(wants_grad)


def fill_tensor(made: torch.Tensor, rest: Rest) -> None:
    """Sets the gradient and the attributes of a tensor."""
    if _now.keeps(made):
        _now.later(update_tensor, made, *rest)
    else:
        _set_tensor(made, *rest)
    _fills(made)


def _set_tensor(
    made: torch.Tensor,
    grad: torch.Tensor | None,
    wants_grad: bool,
    attributes: dict[str, Any] | None,
) -> None:
    if grad is not None:
        made.grad = grad
    made.__dict__.update(attributes or {})


def update_tensor(
    made: torch.Tensor,
    grad: torch.Tensor | None,
    wants_grad: bool,
    attributes: dict[str, Any] | None,
) -> None:
    """Sets these of a tensor that stays, whose bytes have changed."""
    torch = gpu.torch_module()
    torch.autograd.graph.increment_version(made)
    made.requires_grad_(wants_grad)
    made.grad = None
    _set_tensor(made, grad, wants_grad, attributes)


def holder(path: str | None, kind: type, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """A module or an optimizer; that of this rank at this path, if it is of the same class."""
    old = _now.at(path)
    return _now.keep(old) if type(old) is kind else make(*args)


def fill_holder(made: Any, fields: dict[str, Any]) -> None:
    """Gives a module or an optimizer its state."""
    torch = gpu.torch_module()
    if isinstance(made, torch.nn.parallel.DistributedDataParallel):
        _fill_wrapper(made, fields)
    elif not _now.keeps(made):
        made.__setstate__(fields)
    elif isinstance(made, torch.optim.Optimizer):
        _now.later(_update_optimizer, made, fields)
    else:
        _now.later(made.__setstate__, fields)
    _fills(made)


def _update_optimizer(made: torch.optim.Optimizer, fields: dict[str, Any]) -> None:
    groups = made.param_groups
    made.__setstate__(fields)
    groups[:] = made.param_groups
    made.param_groups = groups


def _fill_wrapper(made: DistributedDataParallel, fields: dict[str, Any]) -> None:
    """A DistributedDataParallel of this rank keeps what it has for its process group."""
    if not _now.keeps(made):
        _now.wrapped = True
        if fields.get("device_ids"):
            own = gpu.current_device()
            fields.update(device_ids=[own], output_device=own)
        made.__setstate__(fields)
        return
    before = {id(each) for each in made.parameters()}
    names = ("training", "require_backward_grad_sync", "require_forward_param_sync")
    kept = {name: fields[name] for name in names if name in fields}
    modules = fields["_modules"]
    _now.later(_update_wrapper, made, kept, modules, before)


def _update_wrapper(
    made: DistributedDataParallel, kept: dict[str, Any], modules: dict[str, Any], before: set[int]
) -> None:
    made.__dict__.update(kept)
    for name, part in modules.items():
        made.add_module(name, part)
    _now.wrapped |= before != {id(each) for each in made.parameters()}


# What is made at once, or not at all.
_WHOLE = (str, bytes, int, float, complex, types.BuiltinFunctionType, types.ModuleType, Storage)
