"""A rank's part of an object over all ranks, if it stays on its GPU, where NCCL combines it with
the parts of the others (rank_combine.c). What NCCL cannot combine goes through across_ranks.py.
"""

from __future__ import annotations

import _ddip
from ddip_engine import state
from ddip_engine.data import across_ranks, arrays, gpu
from ddip_engine.data.view import Export
from ddip_engine.groups import dist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Smaller parts are combined on the host: each read creates a communicator, which takes some tenths
# of a second, about as long as the host takes for parts of this size.
_NCCL_BYTES = 64 << 20
_FOR_NCCL = "gpu "  # before an OP, see Tget in wire.h


def exporter(op: str) -> Callable[[str, Any], Export]:
    """across_ranks.export() for an OP, except that with `gpu ` before it what NCCL can combine
    stays on the GPU."""
    if not op.startswith(_FOR_NCCL):
        return across_ranks.export
    op = op.removeprefix(_FOR_NCCL)

    def export_or_leave(name: str, value: Any) -> Export:
        return _left_on_gpu(op, value) or across_ranks.export(name, value)

    return export_or_leave


def _left_on_gpu(op: str, value: Any) -> Export | None:
    """The part, or None if it must be brought to the host. A running cell may be in a collective,
    and two collectives can block each other on the GPU."""
    if state.size == 1 or state.running or not dist.uses_nccl():
        return None
    memory = gpu.live(value)
    if memory is None or memory.nbytes < _NCCL_BYTES or memory.order() != "C":
        return None
    if arrays.is_tensor(value):
        kind, dtype = "tensor", str(memory.dtype).removeprefix("torch.")
    else:
        kind, dtype = "array", across_ranks.dtype_text(memory.dtype)
    if not memory.dtype_is_native() or not _ddip.nccl_combines(op, dtype) or not gpu.has_nccl():
        return None
    head = across_ranks.line(kind, memory.itemsize, memory.shape, dtype)
    size = len(head) + memory.nbytes
    return Export(head, -1, size, memory.owner, memory.address, memory.device)
