"""Digests that distinguish values, for the OP `same` if the view is text: text omits most of a long
array, and everything that a module holds.

The daemon compares the ranks' fingerprints, then asks one rank for the text.
"""

from __future__ import annotations

import collections
import sys

from ddip_engine.data import arrays, gpu, texts
from ddip_engine.data.view import Export, Limited, check_size, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from hashlib import blake2b
    from typing import Any

    import numpy

_SIMPLE = frozenset((int, float, complex, bool, str, bytes, type(None)))  # their text says it all
_PIECE = 16 << 20  # in bytes, added at once: a cancelled request ends after at most one


def export(name: str, value: Any) -> Export:
    """A digest of the value: of the elements of arrays and tensors, of the state of modules, of the
    text of anything else."""
    import hashlib  # here, since most ranks never need it

    check_size(name, value)
    digest = hashlib.blake2b()
    _add(digest, name, value, set())
    return Export(digest.digest())


def _add(digest: blake2b, name: str, value: Any, around: set[int]) -> None:
    """around: the ids of the enclosing containers."""
    _add_text(digest, type_name(type(value)))
    if id(value) in around:
        return
    data = _elements(value)
    if data is not None:
        for item in data:
            _add_bytes(digest, item)
        return
    if isinstance(value, (set, frozenset)) or _is_unordered(value):
        _add_unordered(digest, name, value, {*around, id(value)})
        return
    inside = _inside(value)
    if inside is None or arrays.holds_state(value):
        _add_text(digest, repr(value) if around else texts.plain(name, value))
    if hasattr(type(value), "to_csv"):
        value.to_csv(Limited(_Digested(digest), name, "csv"))
    if inside is not None:
        _add_text(digest, str(len(inside)))
        for item in inside:
            _add(digest, name, item, {*around, id(value)})


def _is_unordered(value: object) -> bool:
    """True for a dict to whose == the order is nothing."""
    return isinstance(value, dict) and not isinstance(value, collections.OrderedDict)


def _add_unordered(digest: blake2b, name: str, value: Any, around: set[int]) -> None:
    """Adds the members of a set or a dict, in an order that does not depend on their hashes."""
    import hashlib

    digests = []
    for item in dict.items(value) if isinstance(value, dict) else value:
        own = hashlib.blake2b()
        _add(own, name, item, around)
        digests.append(own.digest())
    for each in [str(len(digests)).encode(), *sorted(digests)]:
        _add_bytes(digest, each)


class _Digested:
    """A binary file that only adds what is written to the digest."""

    def __init__(self, digest: blake2b) -> None:
        self.write = digest.update


def _inside(value: Any) -> list[Any] | None:
    """What a container, an object, a module or an optimizer holds; None if its text says it all.

    Not the state_dict() of the last two: for a sharded one, that is a collective.
    """
    if isinstance(value, (list, tuple, dict)):
        parts: Iterable[Any] = value
        if isinstance(value, dict):
            parts = [part for item in list(dict.items(value)) for part in item]
        return None if _SIMPLE.issuperset(map(type, parts)) else list(parts)
    if hasattr(value, "param_groups") and arrays.holds_state(value):
        return [value.state, value.param_groups]
    if arrays.holds_state(value):
        return [dict(value.named_parameters()), dict(value.named_buffers())]
    attributes = _attributes(value)
    return None if attributes is None else [attributes]


def _attributes(value: object) -> dict[str, Any] | None:
    """The attributes of an object whose text is only its address, or the text of its attributes."""
    kind = type(value)
    is_address = kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__
    is_known = is_address or hasattr(kind, "__dataclass_fields__")
    return getattr(value, "__dict__", None) if is_known else None


def _elements(value: Any) -> tuple[bytes | memoryview, ...] | None:
    """dtype and shape, then the bytes, of an array or a tensor whose elements are plain bytes; None
    for anything else."""
    numpy = sys.modules.get("numpy")
    if arrays.is_tensor(value):
        if not arrays.is_dense(value):
            return None
        plain = gpu.host(gpu.plain(value)).contiguous()
        return f"{plain.dtype} {tuple(plain.shape)}".encode(), arrays.raw(plain)
    value = gpu.host(value)
    if numpy is None or not isinstance(value, numpy.ndarray) or value.dtype.hasobject:
        return None
    masked = isinstance(value, numpy.ma.MaskedArray)
    parts = [value.filled(), numpy.ma.getmaskarray(value)] if masked else [value]
    return f"{value.dtype} {value.shape}".encode(), *(_raw(numpy, part) for part in parts)


def _raw(numpy: Any, array: numpy.ndarray) -> bytes | memoryview:
    array = numpy.ascontiguousarray(array)
    return array.reshape(-1).view(numpy.uint8).data if array.nbytes else b""


def _add_text(digest: blake2b, text: str) -> None:
    _add_bytes(digest, text.encode("utf-8", "surrogatepass"))


def _add_bytes(digest: blake2b, data: bytes | memoryview) -> None:
    """Adds the length first, so that no bytes can be taken for those of another item."""
    digest.update(len(data).to_bytes(8, "little"))
    for begin in range(0, len(data), _PIECE):
        digest.update(data[begin : begin + _PIECE])
