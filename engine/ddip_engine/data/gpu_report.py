"""Reports the memory of a rank's GPU, for `rankK/gpu` and for `events` (after `free`, and when
memory ran out), and frees what libraries cache."""

from __future__ import annotations

import sys

import _ddip
from ddip_engine import patches, state
from ddip_engine.data import gpu, table
from ddip_engine.data.view import export_text
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    import torch
    from ddip_engine.data.view import Export
    from ddip_engine.patches import Row

_LARGEST = 10  # objects that are listed
_DEPTH = 3  # of nested lists and dicts that are searched
_PARTS = 10000  # of one object that are examined


def export() -> Export:
    """Lines `key value`, then `object NAME BYTES`, the largest first."""
    lines = [f"{key} {value}\n" for key, value in (*_library(), *_device())]
    lines += [f"object {name} {size}\n" for size, name in largest(table.names(), size_of)]
    return export_text("".join(lines))


def largest(
    named: Iterable[tuple[str, Any]], measure: Callable[[Any], int]
) -> list[tuple[int, str]]:
    """(bytes, name) of the largest of (name, object), measured by size_of or host_size_of."""
    found = sorted(((measure(value), name) for name, value in named), reverse=True)
    return [each for each in found[:_LARGEST] if each[0]]


def device_bytes() -> list[tuple[str, int]]:
    """(key, bytes) as torch and the device report their memory."""
    return [(key, n) for key, n in (*_library(), *_device()) if isinstance(n, int)]


def peak_bytes() -> int | None:
    """The most that torch has had allocated on this rank's device; None if it has used none."""
    if not gpu.uses_cuda():
        return None
    return _asked(patches.PEAK, gpu.current_device())


def _library() -> Iterator[tuple[str, int]]:
    """What torch has reserved on the device, and how much of that is in use."""
    if not gpu.uses_cuda():
        return
    device = gpu.current_device()
    for key, n in (
        ("allocated_bytes", _asked(patches.ALLOCATED, device)),
        ("reserved_bytes", _asked(patches.RESERVED, device)),
        ("largest_free_block_bytes", _largest_free_block(device)),
    ):
        if n is not None:
            yield key, n


def _asked(row: Row, *args: int) -> Any:
    """What torch's allocator reports; None if it cannot. Its backend cudaMallocAsync has no blocks,
    and one of the program's own may report nothing at all."""
    ask = row.get()
    try:
        return ask(*args) if ask is not None else None
    except RuntimeError:
        return None


def _largest_free_block(device: int) -> int | None:
    if (segments := _asked(patches.SNAPSHOT)) is None:
        return None
    blocks = (block for each in segments if each["device"] == device for block in each["blocks"])
    return max((block["size"] for block in blocks if block["state"] == "inactive"), default=0)


def _device() -> Iterator[tuple[str, int | str]]:
    """The libraries and the memory of the device, if this rank has used one."""
    if not _ddip.device_is_open():
        return
    for name in ("cuda", "nccl"):
        try:
            yield f"{name}_library", gpu.load(name)
        except EngineError as e:
            yield f"{name}_error", str(e)
    device = gpu.current_device() if gpu.uses_cuda() else state.local_rank
    try:
        free, total = _ddip.device_memory(device)
    except OSError as e:
        yield "error", e.strerror or str(e)
        return
    yield "device_free_bytes", free
    yield "device_total_bytes", total


def has_caches() -> bool:
    """Is there a library that may be caching unused GPU memory?"""
    return bool(gpu.uses_cuda() or _cupy_pool())


def empty_caches() -> None:
    """Returns unused memory that libraries cache to the devices."""
    empty = patches.EMPTY_CACHE.get()
    if empty is not None and gpu.uses_cuda():
        empty()
    if pool := _cupy_pool():
        pool.free_all_blocks()


def measured_caches() -> list[tuple[str, int]]:
    """Does the same. Returns (device, bytes) for each that freed some."""
    before = _reserved()
    empty_caches()
    now = _reserved()
    freed = [(place, n - now.get(place, 0)) for place, n in before.items()]
    return [each for each in freed if each[1]]


def _reserved() -> dict[str, int]:
    """What libraries have reserved on devices, in bytes."""
    found = {}
    if gpu.uses_cuda():
        for device in range(gpu.device_count()):
            found[f"cuda:{device}"] = _asked(patches.RESERVED, device) or 0
    if pool := _cupy_pool():
        found["cupy's pool"] = pool.total_bytes()
    return found


def _cupy_pool() -> Any:
    """cupy's memory pool, if it holds memory, otherwise None."""
    find = getattr(sys.modules.get("cupy"), "get_default_memory_pool", None)
    if find is None:
        return None
    try:
        return find() if find().total_bytes() else None
    except RuntimeError:  # there is no driver, or the context is lost
        return None


def size_of(value: Any) -> int:
    """Bytes of GPU memory of an object: an array, a tensor, a module, an optimiser, or the contents
    of lists and dicts. An object counts once, two views of the same memory count twice."""
    return _size(value, _own_size)


def host_size_of(value: Any) -> int:
    """The same for host memory: arrays, tensors and texts."""
    return _size(value, _own_host_size)


def _size(value: Any, own_size: Callable[[Any], int]) -> int:
    left, total = _PARTS, 0
    seen: set[int] = set()
    waiting = [(value, _DEPTH)]
    while waiting and left:
        left -= 1
        value, depth = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        total += own_size(value)
        if depth:
            waiting += [(part, depth - 1) for part in _parts(value)]
    return total


def _own_size(value: Any) -> int:
    try:
        memory = gpu.memory_of(value)
    except (EngineError, KeyError, RuntimeError):  # an object that misreports itself has no size
        return 0
    return memory.nbytes if memory is not None else 0


def _own_host_size(value: Any) -> int:
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    if gpu.is_tensor(value):
        return value.nbytes if value.device.type == "cpu" and value.layout is _strided() else 0
    array = getattr(sys.modules.get("numpy"), "ndarray", ())
    return value.nbytes if isinstance(value, array) else 0


def _strided() -> torch.layout:
    return gpu.torch_module().strided


def _parts(value: Any) -> list[Any]:
    torch: Any = sys.modules.get("torch")
    if type(value) in (list, tuple, set, frozenset):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if not hasattr(torch, "optim"):
        return []
    if isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    return [dict(value.state)] if isinstance(value, torch.optim.Optimizer) else []
