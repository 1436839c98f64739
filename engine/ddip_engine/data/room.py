"""Refuses views that would copy more than there is memory for, on this host or in its cgroup: pkl,
p5 and pt write all of an object, and the rank, which may train, would be killed for it."""

from __future__ import annotations

import sys
from errno import EFBIG

import _ddip
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SMALL = 64 << 20  # bytes that are copied without a look
_LOOKED_AT = 1 << 16  # objects in containers
_CONTAINERS = (list, tuple, dict, set, frozenset)
_PICKLED = 3  # copies of a tensor that torch pickles, at the end of it


def check(name: str, view: str, value: object) -> None:
    """Raises EngineError(EFBIG) if a copy of the arrays and tensors in it has no room."""
    arrays, tensors = _bytes_of(value)
    size = arrays + tensors * (_PICKLED if view == "pkl" else 1)
    if size < _SMALL or size <= (free := _ddip.memory_available()):
        return
    raise EngineError(
        EFBIG,
        f"{name}.{view} would be a copy that takes {size >> 20} MiB, and {free >> 20} MiB are"
        " free: read .npy or .safetensors, which copy only what is read",
    )


def _bytes_of(value: object) -> tuple[int, int]:
    """The bytes of the NumPy arrays, and of the tensors, in it, in containers and modules too."""
    modules = sys.modules
    module = getattr(modules.get("torch.nn"), "Module", ())
    tensor = getattr(modules.get("torch"), "Tensor", ())
    array = getattr(modules.get("numpy"), "ndarray", ())
    arrays = tensors = 0
    waiting: list[Any] = [value]
    seen: set[int] = set()
    while waiting and len(seen) < _LOOKED_AT:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if type(item) in _CONTAINERS:
            waiting += list(item.values()) if type(item) is dict else list(item)
        elif isinstance(item, array):
            arrays += item.nbytes
        elif isinstance(item, tensor):
            tensors += item.element_size() * item.numel()
        elif isinstance(item, module):
            waiting += [*item.parameters(), *item.buffers()]
    return arrays, tensors
