"""One object over all ranks: a rank's part, the object assembled from all parts, and the split.

The daemon asks each rank for its part (export): a line `KIND ITEMSIZE SHAPE DTYPE` followed by the
bytes, in C order and native byte order. KIND is tensor, array or object; for an object, the bytes
are a pickle and DTYPE is the name of its type. The daemon computes with the bytes of arrays and
tensors (those of objects it concatenates) and sends the result to rank 0, which makes the view from
it (assemble). First it may ask for a view of nothing but the result's size (`blank`): if that is a
head and then the bytes (ends_with), it reads no numbers until somebody reads the view. What is
written to NAME.cat or NAME.gather goes to every rank, which takes its part.
"""

from __future__ import annotations

import ast
import io
import numbers
import pickle
import re
import sys
from errno import EBADMSG, EINVAL, EOPNOTSUPP

from ddip_engine.data import arrays, gpu, pickles
from ddip_engine.data.view import Export, article, export_memory, refusal_of, type_name
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeAlias

    import numpy
    import torch

    # makes one object of a name, an OP and the objects of all ranks
    Combine: TypeAlias = Callable[[str, str, list[Any]], Any]

_NAMED = "biufc"  # kinds of NumPy dtypes that their name describes fully


def export(name: str, value: Any) -> Export:
    """Returns this rank's part as a view.Export; the bytes are the object's own if possible. Raises
    EngineError."""
    if arrays.is_tensor(value):
        return _tensor_part(name, value)
    value = gpu.host(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        array = numpy.asarray(value)
        if not array.dtype.hasobject and not isinstance(value, numpy.ma.MaskedArray):
            return _array_part(array)
    return _object_part(name, value)


def line(kind: str, itemsize: int, shape: Iterable[int], dtype: str) -> bytes:
    """The first line of a part."""
    return f"{kind} {itemsize} {','.join(map(str, shape)) or '-'} {dtype}\n".encode()


def _tensor_part(name: str, value: torch.Tensor) -> Export:
    if hasattr(value, "full_tensor"):
        use = f"take {name}.full_tensor() or {name}.to_local() in a cell"
        raise EngineError(EOPNOTSUPP, f"{name} is a DTensor: {use}")
    if value.layout is not sys.modules["torch"].strided or value.is_quantized or value.is_meta:
        raise EngineError(EOPNOTSUPP, f"{name} is no dense tensor: make it one in a cell")
    plain = gpu.host(gpu.plain(value)).contiguous()
    dtype = str(plain.dtype).removeprefix("torch.")
    head = line("tensor", plain.element_size(), plain.shape, dtype)
    size, keep = plain.numel() * plain.element_size(), (plain.untyped_storage(), plain)
    return export_memory(head, plain.data_ptr(), size, keep, lambda: bytes(arrays.raw(plain)))


def _array_part(array: numpy.ndarray) -> Export:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    head = line("array", array.dtype.itemsize, array.shape, dtype_text(array.dtype))
    address = array.__array_interface__["data"][0]
    return export_memory(head, address, array.nbytes, array, array.tobytes)


def dtype_text(dtype: numpy.dtype) -> str:
    """The text for a NumPy dtype in that line."""
    from numpy import void
    from numpy.lib import format as npy

    if dtype.kind in _NAMED or (dtype.kind == "V" and dtype.type is not void):
        return dtype.name
    return repr(npy.dtype_to_descr(dtype))


def _dtype_of(text: str) -> numpy.dtype:
    import numpy
    from numpy.lib import format as npy

    quoted = text[0] in "'[("
    return npy.descr_to_dtype(ast.literal_eval(text)) if quoted else numpy.dtype(text)


def _object_part(name: str, value: Any) -> Export:
    """A pickle; only rank 0 reads it."""
    export = pickles.export_pkl(name, value)
    head = line("object", 1, (export.size,), type_name(type(value)))
    return Export(head + export.head, fd=export.fd, size=len(head) + export.size)


def assemble(name: str, asked: str, data: memoryview) -> Any:
    """The object over these bytes; asked, from the daemon, is `OP KIND ITEMSIZE SHAPE DTYPE`. An
    array or a tensor uses them in place, and must not be written to. Raises EngineError."""
    op, kind, _, shape, dtype = asked.split(" ", 4)
    if kind == "object":
        return _of_objects(name, op, data)
    dims = tuple(map(int, shape.split(","))) if shape != "-" else ()
    if kind == "tensor":
        torch = sys.modules["torch"]
        if not len(data):
            return torch.empty(dims, dtype=getattr(torch, dtype), device="cpu")
        flat = torch.frombuffer(data, dtype=torch.uint8)
        return flat.view(getattr(torch, dtype)).reshape(dims)
    import numpy

    return numpy.ndarray(dims, _dtype_of(dtype), buffer=data)


def ends_with(exported: Export, value: Any, size: int) -> bool:
    """True if the export is a head and then exactly the bytes that assemble() made value of."""
    if exported.keep is None or exported.size - len(exported.head) != size:
        return False
    tensor = arrays.is_tensor(value)
    address = value.data_ptr() if tensor else value.__array_interface__["data"][0]
    return exported.address == address


def named(error: EngineError, name: str, asked: str) -> EngineError:
    """The refusal of a view of that object. What it says to read instead is over the ranks, too."""
    op = asked.partition(" ")[0]
    text = re.sub(rf"\b{re.escape(name)}\.(?=\w)", lambda _: f"{name}.{op}.", str(error))
    return EngineError(error.errno, text, error.trace)


# ---- numbers, lists and other objects without a buffer


def _of_objects(name: str, op: str, data: memoryview) -> Any:
    values, file = [], io.BytesIO(data)
    while file.tell() < len(data):
        try:
            values.append(pickle.load(file))
        except Exception as e:  # raised by the object's class
            text = f"{name}: rank {len(values)}'s object can't be unpickled on rank 0"
            raise refusal_of(e, text, EOPNOTSUPP) from None
    return _OBJECT_OPS[op](name, op, values)


def _numbers(name: str, op: str, values: list[Any]) -> list[Any]:
    for rank, value in enumerate(values):
        if not isinstance(value, numbers.Number):
            kind = f" of {value.dtype}" if hasattr(value, "__array_interface__") else ""
            what = f"{name} is {article(value)}{kind} on rank {rank}"
            use = f"read {name}.gather or {name}.same"
            known = "numbers, and plain arrays and tensors of them"
            raise EngineError(EOPNOTSUPP, f"{what}: {op} is for {known}; {use}")
    return values


def _extreme(pick: Callable[[list[Any]], Any]) -> Combine:
    def choose(name: str, op: str, values: list[Any]) -> Any:
        if any(isinstance(value, complex) for value in _numbers(name, op, values)):
            raise EngineError(EOPNOTSUPP, f"{name}: complex numbers have no order")
        lost = [value for value in values if value != value]  # NaN wins, as in NumPy
        return lost[0] if lost else pick(values)

    return choose


def _sum(name: str, op: str, values: list[Any]) -> Any:
    return sum(_numbers(name, op, values))


def _mean(name: str, op: str, values: list[Any]) -> Any:
    return sum(_numbers(name, op, values)) / len(values)


def _joined(name: str, op: str, values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= {list, tuple}:
        return sum(values, kinds.pop()())
    join = _joiner(values)
    if join is None:
        found = ", ".join(sorted(type_name(kind) for kind in kinds))
        what = "cat joins arrays, tensors, lists, tuples, data frames"
        raise EngineError(EOPNOTSUPP, f"{name} is {found}: {what}; read {name}.gather")
    try:
        return join(values)
    except Exception as e:  # shapes that do not fit, or code of the elements
        raise refusal_of(e, f"{name}.cat", EOPNOTSUPP) from None


def _joiner(values: list[Any]) -> Callable[[list[Any]], Any] | None:
    """What joins arrays without plain elements, or data frames, on axis 0; None for others."""
    numpy = sys.modules.get("numpy")
    pandas: Any = sys.modules.get("pandas")
    if numpy is not None and all(isinstance(value, numpy.ndarray) for value in values):
        masked = any(isinstance(value, numpy.ma.MaskedArray) for value in values)
        return numpy.ma.concatenate if masked else numpy.concatenate
    for kind in "DataFrame", "Series":
        if hasattr(pandas, kind) and all(isinstance(x, getattr(pandas, kind)) for x in values):
            return pandas.concat
    return None


_OBJECT_OPS = {
    "mean": _mean,
    "sum": _sum,
    "min": _extreme(min),
    "max": _extreme(max),
    "gather": lambda name, op, values: values,
    "cat": _joined,
}


# ---- writing: each rank takes its part


def scatter(name: str, value: Any, op: str, old: Any, rank: int, size: int) -> Any:
    """This rank's part of what was written to name.cat (axis 0 split) or name.gather (item K).
    Raises EngineError.

    A part of an array or a tensor is a copy: a view would keep the bytes of all parts alive.
    """
    length = _length(name, value, op)
    if op == "gather":
        if length != size:
            raise EngineError(EINVAL, f"{name}.gather: {length} items for {size} ranks")
        part_of = value[rank]
    else:
        each, more = divmod(length, size)
        begin = rank * each + min(rank, more)
        part_of = _slice(value, begin, begin + each + (rank < more))
    if arrays.is_tensor(value):
        return arrays.like(old, part_of.detach().clone(), name)
    return part_of.copy() if hasattr(part_of, "__array_interface__") else part_of


def _slice(value: Any, begin: int, end: int) -> Any:
    return value.iloc[begin:end] if hasattr(value, "iloc") else value[begin:end]


def _length(name: str, value: Any, op: str) -> int:
    """The extent of axis 0."""
    sequence = isinstance(value, (list, tuple)) or hasattr(value, "shape")
    framed = hasattr(value, "iloc") and op == "gather"
    if not sequence or framed or getattr(value, "shape", None) == ():
        raise EngineError(EBADMSG, f"{name}.{op}: {article(value)} has no parts for the ranks")
    return len(value)
