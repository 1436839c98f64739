"""Views pkl and p5: pickles of protocol 5, by cloudpickle where it is installed.

p5 keeps the bytes of arrays and tensors beside the pickle, 64-byte aligned:

    "ddip-p5\\n", u32 version 1, u32 number of buffers, u64 length of the pickle,
    for each buffer u64 offset and u64 length, the pickle, the buffers     (little-endian)

Nothing but public functions of torch and numpy is named in it: any Python reads it by
pickle.loads(…, buffers=…).
"""

import io
import pickle
import struct
import sys
from errno import EBADMSG

from ddip_engine.arrays import placed
from ddip_engine.state import Refusal
from ddip_engine.view import export_written, one_line, reason, unsupported

_MAGIC = b"ddip-p5\n"
_HEAD = struct.Struct("<8sIIQ")
_BUFFER = struct.Struct("<QQ")
_ALIGN = 64


def _pickler_class():
    try:
        import cloudpickle
    except ImportError:
        return pickle.Pickler
    return cloudpickle.Pickler


def _out_of_band_pickler(file, buffers):
    """A pickler that hands tensors over as arrays, whose bytes numpy keeps out of the pickle."""
    return _pickler(_reduce_tensor)(file, protocol=5, buffer_callback=buffers.append)


def _pickler(reduce):
    """A class of picklers that ask reduce(value) first."""
    base = _pickler_class()

    class Pickler(base):
        def reducer_override(self, value):
            reduced = reduce(value)
            if reduced is not NotImplemented:
                return reduced
            inherited = getattr(super(), "reducer_override", None)
            return inherited(value) if inherited is not None else NotImplemented

    return Pickler


def _reduce_tensor(value):
    """Rebuilds a tensor from an array that shares its memory; on the CPU, wherever it was."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor or value.layout is not torch.strided:
        return NotImplemented
    if value.is_quantized or value.is_meta:
        return NotImplemented
    if value.requires_grad:
        return torch.Tensor.requires_grad_, (value.detach(),)
    plain = value.cpu().resolve_conj().resolve_neg()
    if plain.numel() and not (
        plain.is_contiguous() or plain.mT.is_contiguous()
        if plain.ndim >= 2
        else plain.is_contiguous()
    ):
        plain = plain.contiguous()
    try:
        return torch.from_numpy, (plain.numpy(),)
    except TypeError:  # a type that numpy does not have: its bytes under another name
        widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        return torch.Tensor.view, (plain.view(widths[plain.element_size()]), value.dtype)


def _reduce_special(value):
    """What torch pickles but does not unpickle everywhere.

    Types that came after its typed storages; tensors of a GPU, which another process may not have.
    """
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor:
        return NotImplemented
    name = str(value.dtype).removeprefix("torch.")
    new = name.startswith("float8") or name in ("uint16", "uint32", "uint64")
    return _reduce_tensor(value) if new or value.is_cuda else NotImplemented


def export_pkl(name, value):
    """A pickle as any Python reads it; tensors as torch pickles them."""
    try:
        kind = _pickler(_reduce_special)
        return export_written(lambda file: kind(file, protocol=5).dump(value))
    except Exception as e:
        raise _unpicklable(name, value, "pkl", e) from e


def export_p5(name, value):
    """The pickle in memory (it is small), the buffers straight into the memfd."""
    buffers, out = [], io.BytesIO()
    try:
        _out_of_band_pickler(out, buffers).dump(value)
    except Exception as e:
        raise _unpicklable(name, value, "p5", e) from e
    return export_written(lambda file: _write_p5(file, out.getbuffer(), buffers))


def _write_p5(file, pickled, buffers):
    raws = [buffer.raw() for buffer in buffers]
    at = _HEAD.size + _BUFFER.size * len(raws) + len(pickled)
    head = _HEAD.pack(_MAGIC, 1, len(raws), len(pickled))
    places = []
    for raw in raws:
        at = -(-at // _ALIGN) * _ALIGN
        places.append(at)
        head += _BUFFER.pack(at, raw.nbytes)
        at += raw.nbytes
    file.write(head)
    file.write(pickled)
    for place, raw in zip(places, raws, strict=True):
        file.seek(place)
        file.write(raw)
    file.truncate(at)


def _unpicklable(name, value, view, error):
    if isinstance(error, (Refusal, MemoryError, OSError)):
        return error
    where = _culprit(value, name, 4)
    return unsupported(name, value, view, f"{one_line(where)} cannot be pickled ({reason(error)})")


def _culprit(value, path, depth):
    """The path of the innermost part that cannot be pickled."""
    for part, child in _children(value, path) if depth else ():
        try:
            _out_of_band_pickler(io.BytesIO(), []).dump(child)
        except Exception:
            return _culprit(child, part, depth - 1)
    return path


def _children(value, path):
    """Some parts of an object, with what one would write to reach them."""
    if isinstance(value, dict):
        pairs = [(f"{path}[{key!r}]", child) for key, child in list(value.items())[:1000]]
    elif isinstance(value, (list, tuple)):
        pairs = [(f"{path}[{i}]", child) for i, child in enumerate(value[:1000])]
    else:
        attributes = getattr(value, "__dict__", None) or {}
        pairs = [(f"{path}.{key}", child) for key, child in list(attributes.items())[:1000]]
    return pairs


def import_pkl(name, data, old):
    """Unpickled here, in the rank: the bytes are trusted as the code of a cell is."""
    return placed(old, _load(data.data(), None))


def import_p5(name, data, old):
    """Arrays and tensors lie over the pushed memory itself, writable, each rank its own."""
    view = data.data()
    if len(view) < _HEAD.size or bytes(view[:8]) != _MAGIC:
        raise Refusal(EBADMSG, f"not p5: want {_MAGIC!r} at the beginning")
    _, version, count, length = _HEAD.unpack_from(view)
    if version != 1:
        raise Refusal(EBADMSG, f"p5 of version {version}, this engine reads version 1")
    start = _HEAD.size + count * _BUFFER.size
    if start + length > len(view):
        raise Refusal(EBADMSG, f"p5 ends early: want {start + length} bytes, have {len(view)}")
    buffers = []
    for i in range(count):
        offset, size = _BUFFER.unpack_from(view, _HEAD.size + i * _BUFFER.size)
        if offset + size > len(view):
            raise Refusal(EBADMSG, f"p5 ends early: buffer {i} wants {offset + size} bytes")
        buffers.append(view[offset : offset + size])
    return placed(old, _load(view[start : start + length], buffers))


def _load(data, buffers):
    try:
        return pickle.loads(data, buffers=buffers)
    except BaseException as e:  # unpickling runs whatever the pickle says
        text = f"cannot be unpickled here: {reason(e)}"
        if isinstance(e, AttributeError) and "__main__" in text:
            text += "; define it on the ranks first, or push it with cloudpickle"
        raise Refusal(EBADMSG, text) from e
