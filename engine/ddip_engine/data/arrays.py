"""Views of arrays and tensors: npy, safetensors, pt; state dicts into modules and optimizers."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import io
import json
import math
import struct
import sys
from errno import EBADMSG, EOPNOTSUPP

from ddip_engine.data import gpu, gpu_write
from ddip_engine.data.view import (
    article,
    export_memory,
    export_written,
    reason,
    refusal_of,
    unsupported,
)
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any, BinaryIO, TypeAlias, TypeGuard

    import numpy
    import torch
    from ddip_engine.data.view import Export, Incoming

    # offset of the data, shape, in Fortran order?, dtype
    NpyHead: TypeAlias = tuple[int, tuple[int, ...], bool, numpy.dtype]
    Tensors: TypeAlias = dict[str, torch.Tensor]
    Metadata: TypeAlias = dict[str, str]  # of safetensors
    Holder: TypeAlias = torch.nn.Module | torch.optim.Optimizer  # of a state dict

_NPY_HEAD = 12 + (64 << 10)  # in bytes: the longest version 1.0 header, and a newer one's length
_NPY_SMALL = 512  # in bytes: up to this length, parsed headers are cached

# safetensors' type names -> torch's; the last ones exist only in newer versions of torch
_SAFE_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


_SAFE_ALIGN = 16  # in bytes: the size of the largest element
_NO_TORCH = "which this environment does not have"


def _torch() -> Any:
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "optim") else None  # else a cell is importing it


def types() -> tuple[type, ...]:
    """The array and tensor types of the libraries that are loaded."""
    torch, numpy = _torch(), sys.modules.get("numpy")
    kinds = [getattr(torch, "Tensor", None), getattr(numpy, "ndarray", None)]
    kinds.append(getattr(getattr(torch, "nn", None), "Parameter", None))
    return tuple(kind for kind in kinds if kind is not None)


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """True for a torch tensor, parameters included."""
    torch = _torch()
    return torch is not None and isinstance(value, torch.Tensor)


def holds_state(value: object) -> TypeGuard[Holder]:
    """True for an object with a state dict: a module or an optimizer."""
    torch = _torch()
    kinds = () if torch is None else (torch.nn.Module, torch.optim.Optimizer)
    return isinstance(value, kinds)


def whole_view(value: Any) -> str:
    """The view that has all of an array or a tensor: npy, or safetensors if NumPy lacks its type;
    an empty text: neither."""
    if not is_tensor(value):
        return "" if value.dtype.hasobject else "npy"
    return _whole_view_of(value.dtype) if is_dense(value) else ""


@functools.lru_cache(maxsize=1 << 6)
def _whole_view_of(dtype: torch.dtype | numpy.dtype) -> str:
    name, numpy = str(dtype).removeprefix("torch."), sys.modules.get("numpy")
    if numpy is not None and name in (*numpy.sctypeDict, "bool"):
        return "npy"
    return "safetensors" if name in _SAFE_TYPES.values() else ""


# ---- npy


def as_array(name: str, value: Any, view: str = "npy") -> tuple[numpy.ndarray, object]:
    """(array, owner of its memory) for an array, tensor or number; memory on the CPU is used in
    place. Raises EngineError."""
    numpy = _numpy(name)
    if is_tensor(value):
        return _tensor_as_array(name, value, view)
    value = gpu.host(value)
    if isinstance(value, (numpy.ndarray, numpy.generic, int, float, complex)):
        array = numpy.asarray(value)
        if array.dtype.hasobject:
            use = f"NumPy would have to pickle it: read {name}.pkl"
            raise unsupported(name, value, view, use)
        if isinstance(value, numpy.ma.MaskedArray):
            raise unsupported(name, value, view, f"its mask would be lost: read {name}.pkl")
        return array, array
    views = ("safetensors", "pt") if holds_state(value) else ("json", "pkl")
    use = " or ".join(f"{name}.{each}" for each in views)
    raise unsupported(name, value, view, f"want an array, a tensor or a number; read {use}")


def _tensor_as_array(name: str, tensor: torch.Tensor, view: str) -> tuple[numpy.ndarray, object]:
    _check_dense(name, tensor, view)
    plain = gpu.host(gpu.plain(tensor))
    try:
        return plain.numpy(), plain.untyped_storage()
    except TypeError:
        raise _no_numpy_type(name, tensor, view) from None


def _check_dense(name: str, tensor: torch.Tensor, view: str) -> None:
    if hasattr(tensor, "full_tensor"):
        raise unsupported(
            name, tensor, view, f"take {name}.full_tensor() or {name}.to_local() in a cell"
        )
    if not is_dense(tensor):
        raise unsupported(name, tensor, view, f"it is no dense tensor: read {name}.pt")


def is_dense(tensor: torch.Tensor) -> bool:
    """True if the bytes of a tensor are its elements and nothing else."""
    layout = tensor.layout is _torch().strided and not hasattr(tensor, "full_tensor")
    return layout and not (tensor.is_quantized or tensor.is_meta or tensor.is_nested)


def _no_numpy_type(name: str, tensor: torch.Tensor, view: str) -> EngineError:
    kind = str(tensor.dtype).removeprefix("torch.")
    use = f"NumPy has no {kind}: read {name}.safetensors, {name}.pt or {name}.pkl"
    return unsupported(name, tensor, view, use)


def _npy_header(name: str, array: object, fields: dict[str, Any]) -> bytes:
    from numpy.lib import format as npy

    out = io.BytesIO()
    try:
        npy.write_array_header_1_0(out, fields)
    except UnicodeEncodeError:
        raise unsupported(
            name, array, "npy", f"field names beyond Latin-1: read {name}.pkl"
        ) from None
    except ValueError:  # too long for version 1.0
        out = io.BytesIO()
        npy.write_array_header_2_0(out, fields)
    return out.getvalue()


def export_npy(name: str, value: Any) -> Export:
    """NumPy's header and the live bytes; an array with gaps is copied. Raises EngineError."""
    _numpy(name)  # raises with advice if NumPy is missing
    from numpy.lib import format as npy

    found = gpu.live(value)
    if found is not None:
        return _export_gpu_npy(name, value, found)
    array, owner = as_array(name, value)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = owner = array.copy(order="C")
    order = "C" if array.flags.c_contiguous else "F"
    address = array.__array_interface__["data"][0]
    head = _npy_header(name, array, npy.header_data_from_array_1_0(array))
    keep = (owner, array)
    return export_memory(head, address, array.nbytes, keep, lambda: array.tobytes(order))


def _export_gpu_npy(name: str, value: Any, found: gpu.Memory) -> Export:
    from numpy.lib import format as npy

    dtype = found.dtype
    if is_tensor(value):
        try:
            dtype = _torch().empty(0, dtype=dtype, device="cpu").numpy().dtype
        except TypeError:
            raise _no_numpy_type(name, value, "npy") from None
    descr = npy.dtype_to_descr(dtype)
    fields = {"descr": descr, "fortran_order": found.order() == "F", "shape": found.shape}
    head = _npy_header(name, value, fields)
    return export_gpu(head, found)


def export_gpu(head: bytes, found: gpu.Memory) -> Export:
    """A head followed by live GPU memory."""
    copy = functools.partial(gpu.read, found)
    return export_memory(head, found.address, found.nbytes, found, copy, found.device)


def import_npy(name: str, data: Incoming, old: Any) -> Any:
    """A writable array over the pushed memory; a tensor if the name holds one. Raises
    EngineError."""
    numpy = _numpy(name)
    view = data.data()
    try:
        found = _parse_npy_header(view)
        if found is None:
            return like(old, _load_npy(numpy, data), name)
        start, shape, fortran, dtype = found
        if dtype.hasobject:
            raise EngineError(EBADMSG, f"an object array is a pickle: write it to {name}.pkl")
        want = start + math.prod(shape) * dtype.itemsize
        if want != len(view):
            raise EngineError(EBADMSG, f".npy of {len(view)} bytes: its header says {want}")
        order = "F" if fortran else "C"
        array = numpy.ndarray(shape, dtype, buffer=view, offset=start, order=order)
    except Exception as e:  # NumPy parses the header as Python: it may raise anything
        raise refusal_of(e, "not .npy", EBADMSG) from None
    return like(old, array, name)


def _numpy(name: str) -> Any:
    try:
        import numpy
    except ImportError as e:
        use = f"npy needs NumPy, which this environment does not have: use {name}.json"
        raise EngineError(EOPNOTSUPP, use) from e
    return numpy


def _parse_npy_header(view: memoryview) -> NpyHead | None:
    """(offset of the data, shape, in Fortran order?, dtype); None for another version."""
    length = int.from_bytes(view[8:10], "little")
    if view[6:8] == b"\1\0" and length <= _NPY_SMALL:  # version 1.0
        return _parse_small_npy_header(bytes(view[: 10 + length]))
    return _parse_npy_head(view)


@functools.lru_cache(maxsize=1 << 8)
def _parse_small_npy_header(head: bytes) -> NpyHead | None:
    """Cached: pushes tend to repeat their shapes, and parsing a header as Python is slow."""
    return _parse_npy_head(head)


def _parse_npy_head(view: bytes | memoryview) -> NpyHead | None:
    from numpy.lib import format as npy

    file = io.BytesIO(view[:_NPY_HEAD])
    version = npy.read_magic(file)
    if version == (1, 0):
        return _read_npy_header(npy.read_array_header_1_0, file)
    if version != (2, 0):
        return None
    (length,) = struct.unpack("<I", file.read(4))
    file = io.BytesIO(view[: _NPY_HEAD + length])
    npy.read_magic(file)
    return _read_npy_header(npy.read_array_header_2_0, file)


def _read_npy_header(read: Callable[..., Any], file: io.BytesIO) -> NpyHead:
    # NumPy's limit is meant for untrusted files
    limit = {"max_header_size": len(file.getbuffer())} if _takes_limit(read) else {}
    try:
        shape, fortran, dtype = read(file, **limit)
    except MemoryError as e:  # the stack of Python's parser, for a header that is nested deeply
        raise EngineError(EBADMSG, f"not .npy: its header cannot be read ({reason(e)})") from None
    return file.tell(), shape, fortran, dtype


@functools.cache
def _takes_limit(read: Callable[..., Any]) -> bool:
    """True since NumPy 1.23.4."""
    return "max_header_size" in inspect.signature(read).parameters


def _load_npy(numpy: Any, data: Incoming) -> numpy.ndarray:
    """Leaves rare versions of the format to NumPy itself."""
    file = data.file()
    array = numpy.load(file, allow_pickle=False)
    if file.tell() != data.size:
        raise EngineError(EBADMSG, f".npy of {data.size} bytes: its header says {file.tell()}")
    return array


def like(old: Any, new: Any, name: str) -> Any:
    """Converts new to what the name holds: a tensor, its device, a Parameter, requires_grad. Raises
    EngineError."""
    torch = _torch()
    if not is_tensor(old):
        return _placed_array(old, new)
    if not is_tensor(new):
        new = new.astype(new.dtype.newbyteorder("="), copy=False)
        try:
            new = torch.from_numpy(new)
        except TypeError as e:
            text = f"{name} holds a tensor, and torch has no {new.dtype}: del {name} first"
            raise EngineError(EBADMSG, text) from e
    new = gpu_write.tensor_on(new.detach(), old.device)
    wants = old.requires_grad and (new.is_floating_point() or new.is_complex())
    if isinstance(old, torch.nn.Parameter):
        return torch.nn.Parameter(new, requires_grad=wants)
    return new.requires_grad_(wants)


def placed(old: Any, new: Any) -> Any:
    """Puts new where old is, if that is a GPU: an array or a tensor, or each in a dict by its key.
    Raises EngineError.

    A dict is changed in place: it has just been decoded, and may contain itself.
    """
    if is_tensor(new):
        return _placed_tensor(old, new)
    if type(new) is not dict:
        return _placed_array(old, new)
    waiting, seen = [(old, new)], set()
    while waiting:
        held, fresh = waiting.pop()
        if type(fresh) is not dict or not isinstance(held, dict) or id(fresh) in seen:
            continue
        seen.add(id(fresh))
        for key, value in list(fresh.items()):
            if is_tensor(value):
                fresh[key] = _placed_tensor(held.get(key), value)
            elif type(value) is not dict:
                fresh[key] = _placed_array(held.get(key), value)
            else:
                waiting.append((held.get(key), value))
    return new


def _placed_array(old: Any, new: Any) -> Any:
    """Converts an array to old's type if old is a GPU array of a library other than torch."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(new) is not numpy.ndarray or is_tensor(old):
        return new
    return new if gpu.memory_of(old) is None else gpu_write.array_like(old, new)


def _placed_tensor(old: Any, new: torch.Tensor) -> torch.Tensor:
    torch = _torch()
    if not is_tensor(old) or not old.is_cuda or new.device == old.device:
        return new
    moved = gpu_write.tensor_on(new.detach(), old.device)
    if isinstance(new, torch.nn.Parameter):
        return torch.nn.Parameter(moved, requires_grad=new.requires_grad)
    return moved.requires_grad_(new.requires_grad)


# ---- safetensors


def export_safetensors(name: str, value: Any) -> Export:
    """One tensor as live memory, several through a memfd; for a module or optimizer, its state.
    Raises EngineError."""
    tensors, metadata = _named_tensors(name, value)
    head, plains = _safe_header(name, value, tensors, metadata)
    if is_tensor(value):
        (plain,) = plains
        found = gpu.live(plain)
        if found is not None and found.order() == "C":
            return export_gpu(head, found)
        plain = gpu.host(plain).contiguous()
        keep, size = (plain.untyped_storage(), plain), plain.numel() * plain.element_size()
        return export_memory(head, plain.data_ptr(), size, keep, lambda: bytes(raw(plain)))

    def write(file: BinaryIO) -> None:
        file.write(head)
        for plain in plains:
            file.write(raw(gpu.host(plain).contiguous()))

    return export_written(write)


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor of any type, which they keep alive. Tensor.numpy() would
    need NumPy, which torch does not."""
    memory = ctypes.c_ubyte * (tensor.numel() * tensor.element_size())
    found = memory.from_address(tensor.data_ptr())
    found.owner = tensor
    return memoryview(found).cast("B")


def _named_tensors(name: str, value: Any) -> tuple[Tensors, Metadata]:
    torch = _torch()
    if is_tensor(value):
        return {name: value}, {}
    if holds_state(value):
        state = value.state_dict()
        if isinstance(value, torch.optim.Optimizer):
            return _flatten_optimizer(state)
        for key, field in state.items():
            if not is_tensor(field):  # half a state is useless
                use = f"{key} is {article(field)}, no tensor: read {name}.pt"
                raise unsupported(name, value, "safetensors", use)
        return state, {}
    if isinstance(value, dict) and value and all(map(is_tensor, value.values())):
        return {str(k): v for k, v in value.items()}, {}
    use = f"want a tensor, a dict of tensors, a module or an optimizer; read {name}.pkl"
    raise unsupported(name, value, "safetensors", use)


def _safe_header(
    name: str, value: Any, tensors: Tensors, metadata: Metadata
) -> tuple[bytes, list[torch.Tensor]]:
    """(8-byte length and JSON, the tensors in file order)."""
    torch = _torch()
    kinds = {getattr(torch, v): k for k, v in _SAFE_TYPES.items() if hasattr(torch, v)}
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    plains, at = [], 0
    for key, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        if tensor.dtype not in kinds or tensor.layout is not torch.strided or tensor.is_meta:
            use = f"{key} is {tensor.dtype}, {tensor.layout}: read {name}.pt"
            raise unsupported(name, value, "safetensors", use)
        if hasattr(tensor, "full_tensor"):
            raise unsupported(
                name, value, "safetensors", f"{key} is a DTensor: gather it in a cell"
            )
        plain = gpu.plain(tensor)
        size = plain.numel() * plain.element_size()
        entries[key] = {
            "dtype": kinds[plain.dtype],
            "shape": list(plain.shape),
            "data_offsets": [at, at + size],
        }
        plains.append(plain)
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, plains


def _flatten_optimizer(state: dict[str, Any]) -> tuple[Tensors, Metadata]:
    """Tensors as state.<parameter>.<key>; everything else goes into the metadata as JSON."""
    tensors: Tensors = {}
    rest: dict[str, dict[str, Any]] = {}
    for param, fields in state["state"].items():
        for key, field in fields.items():
            if is_tensor(field):
                tensors[f"state.{param}.{key}"] = field
            else:
                rest.setdefault(str(param), {})[key] = field
    return tensors, {"param_groups": json.dumps(state["param_groups"]), "state": json.dumps(rest)}


def _unflatten_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Tensors, metadata: Metadata
) -> dict[str, Any]:
    if "param_groups" not in metadata:
        raise EngineError(EBADMSG, "no optimizer's state: its metadata has no param_groups")
    state = {int(k): dict(v) for k, v in json.loads(metadata.get("state", "{}")).items()}
    for key, tensor in tensors.items():
        _, param, field = key.split(".", 2)
        state.setdefault(int(param), {})[field] = tensor
    groups = json.loads(metadata["param_groups"])
    for group, held in zip(groups, optimizer.param_groups, strict=False):
        tuples = [key for key in group if isinstance(held.get(key), tuple)]
        group.update({key: tuple(group[key]) for key in tuples})  # JSON turned them into lists
    return {"state": state, "param_groups": groups}


def import_safetensors(name: str, data: Incoming, old: Any) -> Any:
    """A tensor if the only key is the name, else a dict; a state dict if old has one. They use the
    pushed memory. Raises EngineError."""
    torch = _torch()
    if torch is None:
        raise EngineError(EOPNOTSUPP, f"safetensors need torch, {_NO_TORCH}")
    try:
        tensors, metadata = _parse_safetensors(torch, data.data())
        if isinstance(old, torch.optim.Optimizer):
            return _unflatten_optimizer(old, tensors, metadata)
    except Exception as e:  # the header may be any JSON
        raise refusal_of(e, "not safetensors", EBADMSG) from None
    if list(tensors) == [name] and not holds_state(old):
        return like(old, tensors[name], name)
    return placed(old, tensors)


def _parse_safetensors(torch: Any, view: memoryview) -> tuple[Tensors, Metadata]:
    (length,) = struct.unpack_from("<Q", view)
    if 8 + length > len(view):
        raise ValueError(f"header of {length} bytes in a file of {len(view)}")
    entries = json.loads(bytes(view[8 : 8 + length]))
    metadata = entries.pop("__metadata__", {})
    data = view[8 + length :]
    said = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if said != len(data):
        raise ValueError(f"{len(data)} bytes of tensors, the header says {said}")
    tensors = {key: _parse_tensor(torch, key, entry, data) for key, entry in entries.items()}
    return tensors, metadata


def _parse_tensor(torch: Any, key: str, entry: dict[str, Any], data: memoryview) -> torch.Tensor:
    """A tensor over its bytes, or over a copy if they are misaligned."""
    empty = torch.empty(0, dtype=getattr(torch, _SAFE_TYPES[entry["dtype"]]))
    begin, end = entry["data_offsets"]
    shape = entry["shape"]
    if not 0 <= begin <= end <= len(data):
        raise ValueError(f"{key} wants bytes {begin} to {end}, there are {len(data)}")
    if end - begin != math.prod(shape) * empty.element_size() or min(shape, default=0) < 0:
        raise ValueError(f"{key} of shape {shape} has {end - begin} bytes")
    if begin == end:
        return empty.reshape(shape)
    flat = torch.frombuffer(data[begin:end], dtype=torch.uint8)
    flat = flat.clone() if flat.data_ptr() % _SAFE_ALIGN else flat
    return flat.view(empty.dtype).reshape(shape)


# ---- pt


def export_pt(name: str, value: Any) -> Export:
    """torch.save; for a module or optimizer its state dict, which weights_only can load."""
    torch = _torch()
    if torch is None:
        raise unsupported(name, value, "pt", f"there is no torch here: read {name}.pkl")
    thing = value.state_dict() if holds_state(value) else value
    return export_written(lambda file: torch.save(thing, file))


def _arrays_allowed(torch: Any) -> AbstractContextManager[Any]:
    """Lets torch.load make NumPy arrays and scalars, which torch.save writes, and nothing else."""
    numpy = sys.modules.get("numpy")
    allow = getattr(torch.serialization, "safe_globals", None)  # since torch 2.5
    if numpy is None or allow is None:
        return contextlib.nullcontext()
    remake, (number, _) = numpy.empty(0).__reduce__()[0], numpy.float64().__reduce__()
    kinds = {type(numpy.dtype(code)) for code in numpy.typecodes["All"]}
    return allow([remake, number, numpy.ndarray, numpy.dtype, *kinds])


def import_pt(name: str, data: Incoming, old: Any) -> Any:
    """torch.load(weights_only=True) onto the CPU, then converted to what the name holds."""
    torch = _torch()
    if torch is None:
        raise EngineError(EOPNOTSUPP, f"pt needs torch, {_NO_TORCH}")
    try:
        with _arrays_allowed(torch):
            value = torch.load(data.file(), map_location="cpu", weights_only=True)
    except Exception as e:
        raise refusal_of(e, "torch.load(weights_only=True)", EBADMSG) from None
    return like(old, value, name) if is_tensor(value) else placed(old, value)
