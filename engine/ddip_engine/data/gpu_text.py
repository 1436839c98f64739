"""What print shows of objects on GPUs; only the edges of a long one are copied."""

from __future__ import annotations

import itertools
import mmap
import sys

from ddip_engine import patches
from ddip_engine.data import gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_MAP_NORESERVE = 0x4000
_EDGE_RUNS = 4096  # limit of pieces that are copied one by one


def image(value: Any) -> Any:
    """What print shows of an object, on the host: everything but the edges of a large one is zero
    and takes no memory."""
    memory = gpu.memory_of(value)
    if memory is None or memory.finish or (gpu.is_tensor(value) and not gpu.opens()):
        return gpu.host(value)
    threshold, kept = _elision()
    if not memory.shape or memory.nbytes <= threshold * memory.itemsize:
        return gpu.host(value)
    edges = list(itertools.islice(_edges(memory, kept), _EDGE_RUNS + 1))
    if len(edges) > _EDGE_RUNS:
        return gpu.host(value)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    data = mmap.mmap(-1, memory.nbytes, flags=flags)
    address = gpu.address_of(data)
    for offset, to, size in edges:
        gpu.copy(memory, offset, address + to, size)
    if gpu.is_torch(memory):
        flat = sys.modules["torch"].frombuffer(data, dtype=memory.dtype)
        return flat.reshape(memory.shape)
    import numpy

    return numpy.ndarray(memory.shape, memory.dtype, data)


def _elision() -> tuple[int, int]:
    """(most elements that print shows in full, how many it looks at on each end of an axis)."""
    numpy = sys.modules.get("numpy")
    options = patches.PRINT_OPTIONS.get()
    threshold, items = getattr(options, "threshold", 0), getattr(options, "edgeitems", 0)
    if numpy is not None:
        own = numpy.get_printoptions()
        threshold, items = max(threshold, own["threshold"]), max(items, own["edgeitems"])
    return threshold, items + 1


def _edges(memory: gpu.Memory, kept: int) -> Iterator[tuple[int, int, int]]:
    """(offset, offset in C order, bytes) of the elements at the ends of all axes."""
    packed = gpu.packed(memory.shape, memory.itemsize)
    ends = [list(_ends(n, kept)) for n in memory.shape]
    if memory.strides[-1] == memory.itemsize:  # adjacent elements at once
        n = memory.shape[-1]
        ends[-1] = [0] if n <= 2 * kept else [0, n - kept]
        size = memory.itemsize * (n if n <= 2 * kept else kept)
    else:
        size = memory.itemsize
    for index in itertools.product(*ends):
        offset = sum(i * step for i, step in zip(index, memory.strides, strict=True))
        yield offset, sum(i * step for i, step in zip(index, packed, strict=True)), size


def _ends(n: int, kept: int) -> Iterable[int]:
    return range(n) if n <= 2 * kept else (*range(kept), *range(n - kept, n))


def text(value: Any) -> str | None:
    """str() of an object on a GPU, from its image; None if it is not on one."""
    if gpu.memory_of(value) is None:
        return None
    shown, torch = image(value), gpu.torch_module()
    if not gpu.is_tensor(value):
        return f"{shown}"
    parameter, contents_of = type(value) is not torch.Tensor, patches.TENSOR_STR.get()
    if (value.ndim == 0 and not parameter) or contents_of is None:
        return f"{shown}"
    contents = contents_of(shown, len("tensor("))
    head = "Parameter containing:\n" if parameter else ""
    return head + torch.Tensor.__repr__(value, tensor_contents=contents)
