"""The p5 format: a pickle of protocol 5, followed by its large buffers, 64-byte aligned.

    "ddip-p5\\n", u32 version 1, u32 number of buffers, u64 length of the pickle,
    for each buffer u64 offset and u64 length, the pickle, the buffers     (little-endian)

The pickle names only public functions of torch and numpy, so any Python can read it with
pickle.loads(…, buffers=…). The engine embeds this file, so it may import only the standard
library.
"""

from __future__ import annotations

import io
import mmap
import pickle
import struct
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from _typeshed import SupportsWrite

    class Readable(Protocol):
        def readinto(self, memory: memoryview, /) -> int | None: ...


_MAGIC = b"ddip-p5\n"
_VERSION = 1
_HEAD = struct.Struct("<8sIIQ")
_BUFFER = struct.Struct("<QQ")
_ALIGN = 64
_MAPPED = 64 << 10  # buffers from this size on get mapped memory, which need not be cleared
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # the default is shared with forked children
_DEPTH = 4  # how deep to search for the part that cannot be pickled
_PARTS = 1000  # how many parts of an object to try


class Malformed(ValueError):
    """The bytes are not valid p5; the text says why."""


# ---- pickling


def base() -> type[pickle.Pickler]:
    """The base class for picklers: cloudpickle's if it is installed."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.Pickler
    return cloudpickle.Pickler


def pickler(
    file: SupportsWrite[bytes],
    reduce: Callable[[Any], Any],
    buffer_callback: Callable[[Any], Any] | None = None,
) -> pickle.Pickler:
    """A pickler that calls reduce(value) first, which may return NotImplemented."""
    parent: Any = base()

    class Pickler(parent):
        def reducer_override(self, value):
            reduced = reduce(value)
            if reduced is not NotImplemented:
                return reduced
            inherited = getattr(super(), "reducer_override", None)
            return inherited(value) if inherited is not None else NotImplemented

    return Pickler(file, protocol=5, buffer_callback=buffer_callback)


def reduce_tensor(value: Any) -> Any:
    """Reduces a tensor to an array over its memory, whose bytes numpy keeps out of the pickle."""
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
    except RuntimeError:
        if "numpy" in sys.modules:
            raise
        return NotImplemented
    except TypeError:  # numpy lacks this dtype: the same bytes as an integer type
        widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        return torch.Tensor.view, (plain.view(widths[plain.element_size()]), value.dtype)


def dump(
    value: Any, reduce: Callable[[Any], Any] = reduce_tensor
) -> tuple[memoryview, list[memoryview]]:
    """(pickle, buffers) of an object; the buffers are not copied. Raises what pickling raises."""
    out = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    pickler(out, reduce, buffers.append).dump(value)
    return out.getbuffer(), [buffer.raw() for buffer in buffers]


def culprit(
    value: Any,
    path: str,
    error: Exception,
    reduce: Callable[[Any], Any] = reduce_tensor,
    depth: int = _DEPTH,
) -> tuple[str, Any, Exception]:
    """(path, object, exception) of the innermost part of an object that cannot be pickled.

    path: what the object is called; error: what pickling it raised.
    """
    for part, child in parts_of(value, path) if depth else ():
        try:
            pickler(io.BytesIO(), reduce, [].append).dump(child)
        except Exception as e:  # pickling runs methods of arbitrary objects
            return culprit(child, part, e, reduce, depth - 1)
    return path, value, error


def parts_of(value: Any, path: str) -> list[tuple[str, Any]]:
    """[(expression that reaches a part, part)] of an object; path: the object's expression."""
    if isinstance(value, dict):
        return [(f"{path}[{key!r}]", child) for key, child in list(value.items())[:_PARTS]]
    if isinstance(value, (list, tuple)):
        return [(f"{path}[{i}]", child) for i, child in enumerate(value[:_PARTS])]
    if isinstance(value, types.FunctionType) and value.__closure__:
        names = zip(value.__code__.co_freevars, value.__closure__, strict=True)
        try:
            return [(f"{name} (used by {path})", cell.cell_contents) for name, cell in names]
        except ValueError:  # a variable without a value
            return []
    attributes = getattr(value, "__dict__", None) or {}
    return [(f"{path}.{key}", child) for key, child in list(attributes.items())[:_PARTS]]


# ---- bytes


def write(
    write_all: Callable[[bytes | memoryview], object],
    pickled: bytes | memoryview,
    buffers: Sequence[memoryview],
) -> None:
    """Passes the pieces of a p5 file to write_all(bytes-like), in order, without joining them."""
    start = at = _HEAD.size + _BUFFER.size * len(buffers) + len(pickled)
    head, places = [_HEAD.pack(_MAGIC, _VERSION, len(buffers), len(pickled))], []
    for buffer in buffers:
        at += -at % _ALIGN
        places.append(at)
        head.append(_BUFFER.pack(at, buffer.nbytes))
        at += buffer.nbytes
    write_all(b"".join(head))
    write_all(pickled)
    at = start
    for place, buffer in zip(places, buffers, strict=True):
        write_all(bytes(place - at))
        write_all(buffer)
        at = place + buffer.nbytes


def _check_head(head):
    """Returns (number of buffers, length of the pickle). Raises Malformed."""
    if len(head) < _HEAD.size or bytes(head[: len(_MAGIC)]) != _MAGIC:
        raise Malformed(f"not p5: want {_MAGIC!r} at the beginning")
    _, version, count, length = _HEAD.unpack_from(head)
    if version != _VERSION:
        raise Malformed(f"p5 of version {version}, this reads version {_VERSION}")
    return count, length


def split(view: memoryview) -> tuple[memoryview, list[memoryview]]:
    """(pickle, buffers) of a p5 in memory, as slices of that view. Raises Malformed."""
    count, length = _check_head(view)
    start = _HEAD.size + count * _BUFFER.size
    if start + length > len(view):
        raise Malformed(f"p5 ends early: want {start + length} bytes, have {len(view)}")
    buffers = []
    for i in range(count):
        offset, size = _BUFFER.unpack_from(view, _HEAD.size + i * _BUFFER.size)
        if offset + size > len(view):
            raise Malformed(f"p5 ends early: buffer {i} wants {offset + size} bytes")
        buffers.append(view[offset : offset + size])
    return view[start : start + length], buffers


def read(file: Readable) -> tuple[bytearray, list[bytearray | mmap.mmap]]:
    """(pickle, buffers) of a p5 file (binary, unbuffered). Each buffer is read right into place.

    Raises Malformed or OSError.
    """
    count, length = _check_head(_exactly(file, bytearray(_HEAD.size)))
    table = _exactly(file, bytearray(_BUFFER.size * count))
    pickled = _exactly(file, bytearray(length))
    at = _HEAD.size + len(table) + length
    buffers = []
    for place, size in _BUFFER.iter_unpack(table):
        if place < at:
            raise Malformed("p5 has a buffer that overlaps what is before it")
        _exactly(file, bytearray(place - at))
        memory = mmap.mmap(-1, size, flags=_PRIVATE) if size >= _MAPPED else bytearray(size)
        buffers.append(_exactly(file, memory))
        at = place + size
    return pickled, buffers


def _exactly(file, memory):
    """Fills memory from the file. Returns it."""
    view = memoryview(memory)
    while view:
        count = file.readinto(view)
        if not count:
            raise Malformed("p5 ends early")
        view = view[count:]
    return memory
