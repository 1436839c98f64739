"""What this rank has of sharded objects (DTensor, fully_shard()), for namespaces that are saved.

A DTensor is its form and this rank's shard. It comes into the one that has the same place and form
here; unless it is a parameter it is made of its shard where there is none, on a mesh of this rank.
Nothing here waits for other ranks, so what is made by collectives must be there when it is loaded:
modules with sharded parameters, and meshes.
"""

from __future__ import annotations

import importlib
import pickle
from errno import EOPNOTSUPP

from ddip_engine import patches
from ddip_engine.data import clone_load, clone_paths, gpu
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeAlias

    import torch
    from ddip_engine.data.clone import Pickling
    from ddip_engine.data.clone_load import Rest
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

    Facts: TypeAlias = tuple[str, list[Any], tuple[str, ...] | None]  # of a mesh, see mesh()
    # of a DTensor, see _FORM
    Form: TypeAlias = tuple[Facts, bytes, tuple[int, ...], tuple[int, ...], torch.dtype]
    There: TypeAlias = tuple[DTensor | None, DeviceMesh | None, Form]  # see place()

_FLAT = "FullyShardedDataParallel"
_OF_FSDP = ("_is_fsdp_managed_module", "_fsdp_use_orig_params")  # marks of modules
_STATE_KEY = "__composable_api_state_key"  # how names begin under which torch keeps its own
_FIRST = "make the sharded module first, and load then"
_AGAIN = "make the module as it was when it was saved, and load then"
_AT_REST = "at a step of the optimizer, or after reshard()"
_FORM = ("mesh", "placements", "shape", "strides", "dtype")


# ---- save


def reduce(pickler: Pickling, value: Any) -> Any:
    """The reduction of what is sharded, or NotImplemented."""
    if clone_paths.is_kind(value, "DeviceMesh"):
        pickler.note_sharded()
        return mesh, _facts(value)
    if clone_paths.is_kind(value, _FLAT):
        text = f"sharded by {_FLAT}, whose flat parameters can't be saved: use fully_shard()"
        raise EngineError(EOPNOTSUPP, f"{text}, or save its state_dict() in a cell")
    if clone_paths.is_sharded_tensor(value):
        return _reduce_tensor(pickler, value)
    return _reduce_module(pickler, value) if _is_sharded_module(value) else NotImplemented


class _Place:
    """Where a DTensor belongs."""

    def __init__(self, *fields: Any) -> None:
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        return place, self.fields


def _reduce_tensor(pickler: Pickling, value: DTensor) -> tuple[Any, ...]:
    local, path = clone_paths.local_of(value), pickler.paths.get(id(value))
    if path is not None:
        pickler.paths[id(local)] = clone_paths.local_path(path)  # the memo keeps it
    pickler.note_sharded()
    leaf = value.is_leaf
    wants = leaf and value.requires_grad
    rest = value.grad if leaf else None, wants, value.__dict__ or None
    made = _Place(path, _is_parameter(value), _form(value)), local
    return tensor, made, rest, None, None, fill_tensor


def _reduce_module(pickler: Pickling, value: torch.nn.Module) -> tuple[Any, ...]:
    if why := _busy(value):
        raise EngineError(EOPNOTSUPP, f"{why}: save {_AT_REST}")
    _, _, fields, *_ = value.__reduce_ex__(5)
    own = {name: part for name, part in fields.items() if not _is_of_torch(name)}
    pickler.note_sharded()
    place = pickler.paths.get(id(value)), type(value).__name__
    return module, place, own, None, None, fill_module


def _is_of_torch(name: str) -> bool:
    """Hooks, and what torch keeps for sharding, stay those that are there."""
    hooks = "_hook" in name and name in gpu.torch_module().nn.Module().__dict__
    return hooks or name in _OF_FSDP or name.startswith(_STATE_KEY)


def _is_sharded_module(value: object) -> bool:
    if not isinstance(value, gpu.torch_module().nn.Module):
        return False
    own = value.parameters(recurse=False)
    return _OF_FSDP[0] in value.__dict__ or any(map(clone_paths.is_sharded_tensor, own))


def _busy(module: torch.nn.Module) -> str:
    """Why its shards are not what it goes on with; "" if they are."""
    state_of = None
    if clone_paths.is_kind(module, "FSDPModule"):
        state_of = patches.FSDP_STATE.of(module)
    if state_of is None:
        return ""
    if (groups := patches.FSDP_GROUPS.of(state_of())) is None:
        groups = [patches.FSDP_GROUP.of(state_of())]
    groups = [group for group in groups if group is not None]
    passes = [patches.FSDP_PASS.of(each) for each in (state_of(), *groups)]
    if any(each is not None and each.name != "IDLE" for each in passes):
        return "it is within a forward or backward pass"
    if all(group.is_sharded for group in groups):
        return ""
    return "its parameters are gathered since a forward pass"


def _is_parameter(value: object) -> bool:
    return isinstance(value, gpu.torch_module().nn.Parameter)


def _form(value: DTensor) -> Form:
    shape, strides = tuple(value.shape), tuple(value.stride())
    placements = pickle.dumps(tuple(value.placements), 5)  # shared with no other name
    return _facts(value.device_mesh), placements, shape, strides, value.dtype


def _facts(mesh: DeviceMesh) -> Facts:
    return mesh.device_type, mesh.mesh.tolist(), mesh.mesh_dim_names


# ---- load: what the pickles call


def mesh(kind: str, ranks: list[Any], names: Iterable[str] | None) -> DeviceMesh:
    """The mesh of this rank that has these facts."""
    names = names and tuple(names)
    for each in clone_load.loading().meshes():
        if _facts(each) == (kind, ranks, names):
            return each
    text = f"no mesh over ranks {ranks} ({kind}{', ' + ','.join(names) if names else ''}) is here"
    raise clone_load.Refused(f"{text}: make what is sharded on it first, and load then")


def place(path: str | None, is_parameter: bool, form: Form) -> There:
    """(the DTensor that is at this place, a mesh for a new one, its form)."""
    loading = clone_load.loading()
    here = loading.at(path)
    if clone_paths.is_sharded_tensor(here) and _is_parameter(here) == is_parameter:
        if (has := _form(here)) == form:
            return loading.keep(here), None, form
        if is_parameter:
            raise clone_load.Refused(f"{path}: {_difference(form, has)}: {_AGAIN}")
    if is_parameter and here is not None:
        raise clone_load.Refused(f"{path} is not sharded here: {_AGAIN}")
    if is_parameter:
        raise clone_load.Refused(f"{path or 'a sharded parameter'} is not here: {_FIRST}")
    return None, mesh(*form[0]), form


def _difference(was: Form, here: Form) -> str:
    for what, one, other in zip(_FORM, was, here, strict=True):
        if one != other:
            if type(one) is bytes:
                one, other = pickle.loads(one), pickle.loads(other)
            return f"its {what} was {one}, and is {other} here"
    return ""


def tensor(there: There, local: torch.Tensor) -> DTensor:
    """A DTensor: the one that is there, or a new one of this shard."""
    old, mesh, (_, placements, shape, strides, _) = there
    if old is None:
        kind = importlib.import_module("torch.distributed.tensor").DTensor
        known = {"run_check": False, "shape": gpu.torch_module().Size(shape), "stride": strides}
        return kind.from_local(local, mesh, pickle.loads(placements), **known)
    if not clone_load.loading().keeps(local):  # its bytes are laid out another way
        clone_load.loading().later(_copy, old, local)
    return old


def _copy(made: DTensor, local: torch.Tensor) -> None:
    with gpu.torch_module().no_grad():
        clone_paths.local_of(made).copy_(local)


def fill_tensor(made: DTensor, rest: Rest) -> None:
    """Sets the gradient and the attributes of a DTensor."""
    loading = clone_load.loading()
    if loading.keeps(made):  # what refers to it needs all of its module
        loading.later(clone_load.update_tensor, made, *rest)
        return
    made.requires_grad_(rest[1])
    clone_load.fill_tensor(made, rest)


def module(path: str | None, kind: str) -> torch.nn.Module:
    """The module with sharded parameters that is at this place."""
    loading = clone_load.loading()
    here = loading.at(path)
    if here is None:
        raise clone_load.Refused(f"{path or kind} is not here: {_FIRST}")
    if type(here).__name__ != kind:
        has = type(here).__name__
        raise clone_load.Refused(f"{path} was a {kind}, and is a {has} here: {_AGAIN}")
    if why := _busy(here):
        raise clone_load.Refused(f"{why}: load {_AT_REST}")
    return loading.keep(here)


def fill_module(made: torch.nn.Module, fields: dict[str, Any]) -> None:
    """Gives a module what its sharded parameters do not have: buffers and attributes."""
    for what in ("_parameters", "_modules"):
        was, here = fields[what], made.__dict__[what]
        if was.keys() != here.keys():
            names = f"{_listed(was)}, and is {_listed(here)} here"
            raise clone_load.Refused(f"what it has was {names}: {_AGAIN}")
    for name, part in fields["_parameters"].items():
        if part is not made.__dict__["_parameters"][name]:
            raise clone_load.Refused(f"its parameter {name} has another form here: {_AGAIN}")
    clone_load.loading().later(_update_module, made, fields)


def _listed(names: Iterable[str]) -> str:
    return ",".join(names) or "nothing"


def _update_module(made: torch.nn.Module, fields: dict[str, Any]) -> None:
    parts = ("_parameters", "_buffers", "_modules")
    made.__dict__.update((name, part) for name, part in fields.items() if name not in parts)
    for what in parts:
        made.__dict__[what].update(fields[what])
