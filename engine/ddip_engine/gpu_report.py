"""What a rank says of the memory of its GPU: `rankK/gpu`, and `events` after `free`."""

import sys

import _ddip
from ddip_engine import gpu, state, table
from ddip_engine.state import EngineError
from ddip_engine.view import export_text

_LARGEST = 10  # objects that are listed
_DEPTH = 3  # of lists and dicts that are looked into
_PARTS = 10000  # of one object that are looked at


def export():
    """Lines `key value`, then `object NAME BYTES`, the largest first."""
    lines = [f"{key} {value}\n" for key, value in (*_library(), *_device())]
    found = sorted(((size_of(value), name) for name, value in table.names()), reverse=True)
    lines += [f"object {name} {size}\n" for size, name in found[:_LARGEST] if size]
    return export_text("".join(lines))


def _library():
    """What torch has taken from the device, and how much of that is in use."""
    torch = sys.modules.get("torch")
    if not hasattr(torch, "optim") or not torch.cuda.is_initialized():
        return
    yield "allocated_bytes", torch.cuda.memory_allocated()
    yield "reserved_bytes", torch.cuda.memory_reserved()
    blocks = (block for each in torch.cuda.memory_snapshot() for block in each["blocks"])
    free = [block["size"] for block in blocks if block["state"] == "inactive"]
    yield "largest_free_block_bytes", max(free, default=0)


def _device():
    """What the device has, if this rank has used one."""
    if not _ddip.device_is_open():
        return
    for name in ("cuda", "nccl"):
        try:
            yield f"{name}_library", gpu.load(name)
        except EngineError as e:
            yield f"{name}_error", str(e)
    torch = sys.modules.get("torch")
    used = hasattr(torch, "optim") and torch.cuda.is_initialized()
    device = torch.cuda.current_device() if used else state.local_rank
    try:
        free, total = _ddip.device_memory(device)
    except OSError as e:
        yield "error", e.strerror
        return
    yield "device_free_bytes", free
    yield "device_total_bytes", total


def size_of(value):
    """Bytes of GPUs that an object has: an array, a tensor, a module, an optimiser, or what is in
    lists and dicts. An object counts once, two views of one memory twice."""
    left, seen, total = _PARTS, set(), 0
    waiting = [(value, _DEPTH)]
    while waiting and left:
        left -= 1
        value, depth = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        total += _own_size(value)
        if depth:
            waiting += [(part, depth - 1) for part in _parts(value)]
    return total


def _own_size(value):
    try:
        memory = gpu.memory_of(value)
    except (EngineError, KeyError, RuntimeError):  # what lies about itself has no size
        return 0
    return memory.nbytes if memory is not None else 0


def _parts(value):
    torch = sys.modules.get("torch")
    if type(value) in (list, tuple, set, frozenset):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if not hasattr(torch, "optim"):
        return []
    if isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    return [dict(value.state)] if isinstance(value, torch.optim.Optimizer) else []
