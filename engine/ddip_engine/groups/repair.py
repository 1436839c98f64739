"""Gives the existing objects a new process group after an abort, and keeps the namespace.

DistributedDataParallel wrappers on the default group are repaired in place. Other objects that hold
a dead group are found and reported by name, with the code that repairs them.
"""

from __future__ import annotations

import functools
import weakref

from ddip_engine import patches
from ddip_engine.data import table
from ddip_engine.groups import dist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from ddip_engine.patches import Row

# (class name in a type's ancestry, advice on how to repair the object).
_HOLDERS = (
    ("FSDPModule", "wrap the model again with fully_shard() on a new mesh"),
    ("FullyShardedDataParallel", "wrap the model again: FullyShardedDataParallel(model)"),
    ("DeviceMesh", "make the mesh again: init_device_mesh(...)"),
    ("ProcessGroup", "make the group again: new_group(...)"),
    ("ZeroRedundancyOptimizer", "make the optimizer again"),
    ("DTensor", "make it again on a new mesh"),
)
_NAMELESS = "a model that no name is bound to"
_STEPS = ("FSDPModule", "FullyShardedDataParallel")  # keep the state of a step in themselves
# All live DistributedDataParallel modules: a search does not find those of before gc.freeze().
# By id: a class need not be hashable.
_wrappers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def install() -> None:
    """Notes each DistributedDataParallel that is made, loaded or copied, if there is torch."""
    for row in (patches.DDP_INIT, patches.DDP_LOADED):
        row.replace(functools.partial(_noted, row))


def _noted(row: Row, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        with row:
            _wrappers[id(self)] = self

    return noted


def rebuild(generation: int, whole: bool) -> str:
    """Gives the ranks working process groups again, under a new generation. whole: all ranks are
    the same processes as before.

    Returns lines, one for each object that still holds a dead group. Waits for the other ranks.
    """
    dist.new_generation(generation)
    if dist.c10d is None:
        return ""
    groups, wrappers = set(dist.groups()), list(_wrappers.values())
    renewed = dist.renew_or_make(whole)
    known = {id(value): name for name, value in table.names()}
    lines = []
    for wrapper in wrappers:
        name = known.get(id(wrapper), _NAMELESS)
        lines += _repair(wrapper, name, renewed)
    return "".join(lines + _holders(groups - set(renewed), renewed))


def renew() -> list[tuple[str, ...]]:
    """Gives all wrappers reducers that know of no step. Returns [(name, reason)] of those which
    could not be given one."""
    if dist.c10d is None:
        return []
    groups, lines = set(dist.groups()), []
    known = {id(value): name for name, value in table.names()}
    for wrapper in list(_wrappers.values()):
        lines += _repair(wrapper, known.get(id(wrapper), _NAMELESS), groups)
    return [tuple(line.strip().split(": ", 1)) for line in lines]


def _repair(wrapper: Any, name: str, renewed: Collection[Any]) -> list[str]:
    """Gives a wrapper a group that works, and a reducer that knows nothing of the last step."""
    group = wrapper.process_group
    if group not in renewed:
        if group.group_desc != "default_pg":
            return [
                f"{name}: DistributedDataParallel on a group of its own, which is gone: "
                "make the group again and wrap the model again\n"
            ]
        group = dist.c10d.GroupMember.WORLD
    if group is None:
        return [
            f"{name}: DistributedDataParallel without a process group: "
            "call init_process_group() and wrap the model again\n"
        ]
    try:
        _make_reducer(wrapper, group)
    except Exception as e:  # torch's internals may refuse because of the model
        return [
            f"{name}: could not be repaired ({type(e).__name__}: {e}): "
            f"wrap it again: {name} = DistributedDataParallel({name}.module)\n"
        ]
    return []


def _make_reducer(wrapper: Any, group: Any) -> None:
    """Gives a wrapper the reducer of a new one, without a collective.

    Torch's own DistributedDataParallel._update_process_group() keeps the buckets, and what a static
    graph has learned. A failed step leaves them different on each rank: a rank may have rebuilt its
    buckets, or run its first backward, while another one has not. Then the next steps add gradients
    of different parameters, or none.
    """
    hooks = list(patches.DDP_HOOKS.of(wrapper, ()))
    if (wait := patches.DDP_RESET.of(wrapper.reducer)) is not None:
        wait()  # until no thread of the user's is in it
    del wait, wrapper.reducer, wrapper.logger  # before there is memory for another one
    if wrapper.static_graph and not patches.DDP_DELAYED.put(wrapper, False):
        raise AttributeError("with static_graph=True")
    # whether buffers are broadcast in the next step: ranks may have ended with different answers
    wrapper.require_forward_param_sync = True
    wrapper.__setstate__({"process_group": group})
    if wrapper.mixed_precision is not None:
        patches.DDP_PRECISION.of(wrapper.reducer)(wrapper.mixed_precision.param_dtype)
    if any(patches.IN_BACKWARD.of(parameter) for parameter in wrapper.parameters()):
        patches.DDP_OPTIMIZER.of(wrapper.reducer)()
    patches.DDP_HOOKS.put(wrapper, [])
    for hook, hook_state in hooks:
        wrapper.register_comm_hook(hook_state, hook)


def _holders(dead: set[Any], renewed: Collection[Any]) -> list[str]:
    """Lines for the user's variables that hold a dead group, or what a step has left half done."""
    lines = []
    for name, value in table.names():
        ancestry = {kind.__name__ for kind in type(value).__mro__}
        if "ProcessGroup" in ancestry and value not in dead:
            continue
        for kind, cure in _HOLDERS:
            if kind not in ancestry:
                continue
            if not renewed or (dead and kind not in _STEPS):
                lines.append(f"{name}: {kind} on a process group that is gone: {cure}\n")
            elif kind in _STEPS:
                lines.append(f"{name}: {kind}, whose step may be half done: {cure}\n")
            break
    return lines
