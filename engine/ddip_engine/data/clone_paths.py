"""Finds the tensors, modules and optimizers of a namespace, by paths."""

import types

from ddip_engine.data import gpu
from ddip_engine.data.arrays import is_tensor


def find(space, shards=False, others=None):
    """Maps the ids of the tensors, modules and optimizers in a namespace to (path, object). Paths
    are alike on all ranks: `model.0.weight`. shards: also of this rank's shards of DTensors.
    others: a dict for the other paths of an object, with its path."""
    found, seen = {}, {}
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


def is_holder(value):
    """True for a module or an optimizer."""
    torch = gpu.torch_module()
    return torch is not None and isinstance(value, (torch.nn.Module, torch.optim.Optimizer))


def is_kind(value, name):
    """Has its class this name, or one that it inherits from?"""
    return any(kind.__name__ == name for kind in type(value).__mro__)


def is_sharded_tensor(value):
    """True for a DTensor."""
    return is_tensor(value) and is_kind(value, "DTensor")


def local_of(value):
    """This rank's shard of a DTensor: a new tensor over its bytes."""
    with gpu.torch_module().no_grad():
        local = value.to_local()
        return (local.wait() if is_kind(local, "AsyncCollectiveTensor") else local).detach()


def local_path(path):
    """The path of the shard of a DTensor."""
    return f"{path}.local"


def _parts(value):
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
        own = [*value.named_parameters(recurse=False), *value.named_buffers(recurse=False)]
        return own + list(value.named_children())
    if torch is not None and isinstance(value, torch.optim.Optimizer):
        params = [p for group in value.param_groups for p in group["params"]]
        states = [value.state.get(p) for p in params]
        return [*enumerate(params), *((f"state.{i}", each) for i, each in enumerate(states))]
    own = getattr(value, "__dict__", None)
    return [pair for pair in list(own.items()) if _may_hold(pair[1])] if type(own) is dict else []


def _may_hold(value):
    return is_tensor(value) or type(value) in (list, tuple, dict) or hasattr(value, "__dict__")
