"""Finds the tensors, modules and optimizers of a namespace, by paths."""

from __future__ import annotations

import types

from ddip_engine.data import gpu
from ddip_engine.data.arrays import is_tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import torch
    from torch.distributed.tensor import DTensor


def find(
    space: Mapping[str, Any], shards: bool = False, others: dict[str, str] | None = None
) -> dict[int, tuple[str, Any]]:
    """Maps the ids of the tensors, modules and optimizers in a namespace to (path, object). Paths
    are alike on all ranks: `model.0.weight`. shards: also of this rank's shards of DTensors.
    others: a dict for the other paths of an object, with its path."""
    found: dict[int, tuple[str, Any]] = {}
    seen: dict[int, str] = {}
    waiting = list(sorted(space.items(), reverse=True))
    while waiting:
        path, value = waiting.pop()
        if (first := seen.setdefault(id(value), path)) is not path:
            if others is not None:
                others[path] = first
            continue
        if is_tensor(value) or is_holder(value):
            found[id(value)] = path, value
        if shards and is_sharded_tensor(value):
            local = local_of(value)
            found[id(local)] = local_path(path), local
        try:
            parts = _parts(value)
        except Exception:  # code of a module's class
            continue
        waiting += [(f"{path}.{name}", part) for name, part in reversed(parts)]
    return found


def is_holder(value: object) -> bool:
    """True for a module or an optimizer."""
    torch = gpu.torch_module()
    return torch is not None and isinstance(value, (torch.nn.Module, torch.optim.Optimizer))


def is_kind(value: object, name: str) -> bool:
    """Has its class this name, or one that it inherits from?"""
    return any(kind.__name__ == name for kind in type(value).__mro__)


def is_sharded_tensor(value: object) -> bool:
    """True for a DTensor."""
    return is_tensor(value) and is_kind(value, "DTensor")


def local_of(value: DTensor) -> torch.Tensor:
    """This rank's shard of a DTensor: a new tensor over its bytes."""
    with gpu.torch_module().no_grad():
        local = value.to_local()
        return (local.wait() if is_kind(local, "AsyncCollectiveTensor") else local).detach()


def local_path(path: str) -> str:
    """The path of the shard of a DTensor."""
    return f"{path}.local"


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """(name, object) of what may hold tensors, modules and optimizers."""
    kind = type(value)
    if kind in (list, tuple):
        return list(enumerate(value)) if any(map(_may_hold, value)) else []
    if kind is dict:
        return [(repr(key), part) for key, part in list(value.items()) if _may_hold(part)]
    if is_tensor(value) or isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return []
    torch = gpu.torch_module()
    if torch is not None and isinstance(value, torch.nn.Module):
        tensors = [*value.named_parameters(recurse=False), *value.named_buffers(recurse=False)]
        return tensors + list(value.named_children())
    if torch is not None and isinstance(value, torch.optim.Optimizer):
        params = [p for group in value.param_groups for p in group["params"]]
        states = [value.state.get(p) for p in params]
        return [*enumerate(params), *((f"state.{i}", each) for i, each in enumerate(states))]
    own: Any = getattr(value, "__dict__", None)
    return [pair for pair in list(own.items()) if _may_hold(pair[1])] if type(own) is dict else []


def _may_hold(value: object) -> bool:
    return is_tensor(value) or type(value) in (list, tuple, dict) or hasattr(value, "__dict__")
