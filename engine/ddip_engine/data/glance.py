"""What the user's frames hold, in few words: numbers, short texts, and what tensors are like.

Runs no code of the user's, and waits for no GPU.
"""

from __future__ import annotations

import functools
import math
import sys

from ddip_engine.data import frames, table, view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType
    from typing import Any, TypeAlias

    import numpy
    import torch
    from ddip_engine.data.frames import FrameLine

    Shown: TypeAlias = tuple[str, str, bool]  # what follows the name, its text, is it odd?

_NAMES = 24
_BYTES = 1000  # of the lines
_TEXT = 20  # characters of a text
_LOOKED_AT = 1 << 14  # elements; torch uses no other threads for so few
_BITS = 64  # of an integer


def lines(found: Sequence[FrameLine]) -> Iterator[tuple[str, str]]:
    """(key, value) pairs of frames, the innermost first: where it is, then for each name `NAME`, a
    tab and its value, those that are not finite first. found: (frame, line) pairs."""
    names: dict[str, tuple[str, bool]] = {}
    for frame, _ in found:
        frames.read(frame, functools.partial(_collect, frame, names=names))
    shown = sorted(names.items(), key=lambda pair: not pair[1][1])[:_NAMES]
    if found:
        yield "where", frames.where(*found[0])
    size = 0
    for name, (text, _) in shown:
        size += len(name) + len(text) + len("local \t\n")
        if size > _BYTES:
            return
        yield "local", f"{name}\t{text}"


def export() -> view.Export:
    """The same of what runs now, as a Tget is answered: lines `key value`."""
    found = "".join(f"{key} {value}\n" for key, value in lines(frames.running()))
    return view.Export(found.encode("utf-8", "backslashreplace"))


def _collect(
    frame: FrameType, inside: Mapping[str, Any], names: dict[str, tuple[str, bool]]
) -> None:
    """Adds what this frame has to {name: (text, is it odd?)}."""
    used = None if frames.is_function(frame) else set(frame.f_code.co_names)
    for name, value in table.named(inside):
        if name in names or (used is not None and name not in used):
            continue
        try:
            for suffix, text, odd in _texts(value):
                names[name + suffix] = text, odd
        except Exception:  # an object that misbehaves
            continue


def _texts(value: Any) -> Iterator[Shown]:
    """(what follows the name, text, is it odd?) for each that is shown of a value."""
    kind, torch, numpy = type(value), sys.modules.get("torch"), sys.modules.get("numpy")
    parameter = getattr(sys.modules.get("torch.nn"), "Parameter", None)
    optimizer = getattr(sys.modules.get("torch.optim"), "Optimizer", ())
    if kind is str and len(value) <= _TEXT:
        yield "", repr(value), False
    elif kind in (bool, int, float):
        yield from _number(value)
    elif kind in (getattr(torch, "Tensor", torch), parameter):
        yield from _tensor(torch, value)
    elif issubclass(kind, optimizer):
        yield from ((".lr", text, odd) for _, text, odd in _texts(value.param_groups[0]["lr"]))
    elif kind is getattr(numpy, "ndarray", None):
        yield from _array(numpy, value)
    elif issubclass(kind, getattr(numpy, "number", ())):
        yield from _number(value.item())


def _number(value: Any) -> Iterator[Shown]:
    if type(value) is not float:
        if value.bit_length() <= _BITS:
            yield "", str(value), False
    else:
        yield "", f"{value:.4g}", not math.isfinite(value)


def _shape(value: torch.Tensor | numpy.ndarray) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"


def _tensor(torch: Any, tensor: torch.Tensor) -> Iterator[Shown]:
    device, floats = tensor.device.type, tensor.is_floating_point()
    if device != "cpu" or tensor.layout is not torch.strided or tensor.is_quantized:
        yield "", f"{_shape(tensor)} {tensor.device}", False
        return
    with torch.no_grad():
        if tensor.numel() == 1 and (floats or not tensor.is_complex()):
            yield from _number(tensor.item())
            return
        few = floats and tensor.numel() <= _LOOKED_AT
        odd = few and int((~tensor.isfinite()).sum())
        is_nan = bool(odd and tensor.isnan().any())
    yield "", _shape(tensor) + _odd(odd, is_nan), bool(odd)


def _array(numpy: Any, array: numpy.ndarray) -> Iterator[Shown]:
    few = array.dtype.kind == "f" and array.size <= _LOOKED_AT
    odd = few and int((~numpy.isfinite(array)).sum())
    is_nan = bool(odd and numpy.isnan(array).any())
    yield "", _shape(array) + _odd(odd, is_nan), bool(odd)


def _odd(count: int, is_nan: bool) -> str:
    return f" {count} {'nan' if is_nan else 'inf'}" if count else ""
