"""The p5 format: pickles of protocol 5 whose large buffers lie beside the pickle. See ddipfs(4).

Arrays and tensors are written from where they lie and read into the memory that they keep.
Functions of the notebook travel as code and find their globals in `__main__` over there.
"""

import io
import linecache
import marshal
import mmap
import os
import pickle
import struct
import sys
import types
from importlib import import_module
from operator import itemgetter, methodcaller

from ddip.errors import DipError

_MAGIC = b"ddip-p5\n"
_HEAD = struct.Struct("<8sIIQ")
_BUFFER = struct.Struct("<QQ")
_ALIGN = 64
_MAPPED = 64 << 10  # larger buffers get memory of their own that nothing has to clear
_DEPTH = 4  # how deep a part that cannot be pickled is looked for


class _Call:
    """Pickles as the value of function(*args), computed where it is unpickled."""

    def __init__(self, function, *args):
        self._parts = function, args

    def __reduce__(self):
        return self._parts

    def __call__(self):
        """Never called here: picklers only want to see that it could be."""
        raise TypeError("the value is over there")


def _base():
    try:
        import cloudpickle
    except ImportError:
        return pickle.Pickler
    return cloudpickle.Pickler


def pickler(file, buffer_callback=None):
    """A pickler for objects of a notebook."""
    base = _base()

    class Pickler(base):
        def reducer_override(self, value):
            reduced = _reduce(value)
            if reduced is not NotImplemented:
                return reduced
            inherited = getattr(super(), "reducer_override", None)
            return inherited(value) if inherited is not None else NotImplemented

    return Pickler(file, protocol=5, buffer_callback=buffer_callback)


def _reduce(value):
    if isinstance(value, types.FunctionType):
        return NotImplemented if _is_importable(value) else _reduce_function(value)
    return _reduce_tensor(value)


# ---- functions


def _is_importable(function):
    """True if the other side can import it by name."""
    name = function.__module__
    found = sys.modules.get(name) if name != "__main__" else None
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _namespace(name):
    """A module's dictionary, the other side's."""
    return _Call(vars, _Call(import_module, name))


def _of_types(name):
    return _Call(getattr, _Call(import_module, "types"), name)


def _reduce_function(function):
    """Code over the globals of the module of that name; the rest is state, for it may be cyclic.

    Functions, classes and modules of the notebook that it uses go along, for names that mean
    nothing there yet.
    """
    space = _namespace(function.__module__)
    cells = [(_Cell(), cell) for cell in function.__closure__ or ()]
    args = (
        _Code(function.__code__),
        space,
        function.__name__,
        function.__defaults__,
        tuple(place for place, _ in cells) or None,
    )
    steps = [_Call(setattr, place, "cell_contents", *_contents(cell)) for place, cell in cells]
    steps += _source(function.__code__.co_filename)
    for name, value in _used(function).items():
        steps.append(_Call(methodcaller("setdefault", name, value), space))
    state = {
        "__doc__": _Call(itemgetter(-1), (*steps, function.__doc__)),
        "__kwdefaults__": function.__kwdefaults__,
        "__qualname__": function.__qualname__,
        "__module__": function.__module__,
        "__dict__": function.__dict__,
    }
    return _of_types("FunctionType"), args, (None, state)


def _source(file):
    """Lets tracebacks over there show the lines of a cell, which are in no file."""
    if os.path.exists(file) or not (lines := linecache.getlines(file)):
        return []
    cache = _Call(getattr, _Call(import_module, "linecache"), "cache")
    return [_Call(methodcaller("setdefault", file, (0, None, lines, file)), cache)]


class _Code:
    """A code object, by marshal; only for the same version of Python."""

    def __init__(self, code):
        self._data = marshal.dumps(code)

    def __reduce__(self):
        return marshal.loads, (self._data,)


class _Cell:
    """An empty cell of a closure."""

    def __reduce__(self):
        return _of_types("CellType"), ()


def _contents(cell):
    try:
        return (cell.cell_contents,)
    except ValueError:
        raise pickle.PicklingError("it uses a variable that has no value yet") from None


def _used(function):
    """Definitions and modules among the globals that a function of the notebook uses."""
    if function.__module__ != "__main__":
        return {}
    names, codes = set(), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    kinds = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)
    space = function.__globals__
    return {
        name: _Call(import_module, value.__name__) if isinstance(value, types.ModuleType) else value
        for name in sorted(names)
        if isinstance(value := space.get(name), kinds) and value is not function
    }


# ---- tensors


def _reduce_tensor(value):
    """A tensor as an array over its memory, whose bytes numpy keeps out of the pickle."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor or value.layout is not torch.strided:
        return NotImplemented
    if value.is_quantized or value.is_meta:
        return NotImplemented
    if value.requires_grad:
        return torch.Tensor.requires_grad_, (value.detach(),)
    plain = value.cpu().resolve_conj().resolve_neg()
    if not plain.is_contiguous() and not (plain.ndim >= 2 and plain.mT.is_contiguous()):
        plain = plain.contiguous()
    try:
        return torch.from_numpy, (plain.numpy(),)
    except TypeError:  # a type that numpy has not: its bytes under another name
        widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        return torch.Tensor.view, (plain.view(widths[plain.element_size()]), value.dtype)


# ---- bytes


def dump(value, name):
    """(pickle, buffers) of an object; name is what errors call it. Raises DipError."""
    out, buffers = io.BytesIO(), []
    try:
        pickler(out, buffers.append).dump(value)
    except Exception as e:  # pickling runs the methods of whatever the objects are
        where, reason = _culprit(value, name, e, _DEPTH)
        text = f"{where} ({type(reason[0]).__name__}) cannot be pickled: {reason[1]}"
        if _base() is pickle.Pickler and getattr(type(reason[0]), "__module__", "") == "__main__":
            text += "; with cloudpickle installed, classes of the notebook travel too"
        raise DipError(text) from None
    return out.getbuffer(), [buffer.raw() for buffer in buffers]


def _culprit(value, path, error, depth):
    """(path, (object, exception)) of the innermost part that cannot be pickled."""
    for part, child in _parts(value, path) if depth else ():
        try:
            pickler(io.BytesIO(), [].append).dump(child)
        except Exception as e:
            return _culprit(child, part, e, depth - 1)
    return path, (value, error)


def _parts(value, path):
    """Parts of an object, with what one would write to reach them."""
    if isinstance(value, dict):
        return [(f"{path}[{key!r}]", child) for key, child in list(value.items())[:1000]]
    if isinstance(value, (list, tuple)):
        return [(f"{path}[{i}]", child) for i, child in enumerate(value[:1000])]
    if isinstance(value, types.FunctionType) and value.__closure__:
        names = zip(value.__code__.co_freevars, value.__closure__, strict=True)
        return [(f"{name} (used by {path})", cell.cell_contents) for name, cell in names]
    attributes = getattr(value, "__dict__", None) or {}
    return [(f"{path}.{key}", child) for key, child in list(attributes.items())[:1000]]


def write(write_all, pickled, buffers):
    """Passes the pieces of a p5 file to write_all(bytes-like), in order, without joining them."""
    at = _HEAD.size + _BUFFER.size * len(buffers) + len(pickled)
    head, places = [_HEAD.pack(_MAGIC, 1, len(buffers), len(pickled))], []
    for buffer in buffers:
        at += -at % _ALIGN
        places.append(at)
        head.append(_BUFFER.pack(at, buffer.nbytes))
        at += buffer.nbytes
    at = sum(map(len, head))
    write_all(b"".join(head))
    write_all(pickled)
    at += len(pickled)
    for place, buffer in zip(places, buffers, strict=True):
        write_all(bytes(place - at))
        write_all(buffer)
        at = place + buffer.nbytes


def read(file, name):
    """The object of a p5 file (binary, unbuffered). Each buffer lands where it stays."""
    magic, version, count, length = _HEAD.unpack(_exactly(file, bytearray(_HEAD.size), name))
    if magic != _MAGIC or version != 1:
        raise DipError(f"{name} is not p5 of version 1")
    table = _exactly(file, bytearray(_BUFFER.size * count), name)
    pickled = _exactly(file, bytearray(length), name)
    at = _HEAD.size + len(table) + length
    buffers = []
    for place, size in _BUFFER.iter_unpack(table):
        _exactly(file, bytearray(place - at), name)
        memory = mmap.mmap(-1, size) if size >= _MAPPED else bytearray(size)
        buffers.append(_exactly(file, memory, name))
        at = place + size
    try:
        return pickle.loads(pickled, buffers=buffers)
    except Exception as e:  # unpickling imports what the pickle names
        raise DipError(f"{name} cannot be unpickled here: {type(e).__name__}: {e}") from e


def _exactly(file, memory, name):
    """Fills memory from the file. Returns it."""
    view = memoryview(memory)
    while view:
        count = file.readinto(view)
        if not count:
            raise DipError(f"{name} ends early")
        view = view[count:]
    return memory
