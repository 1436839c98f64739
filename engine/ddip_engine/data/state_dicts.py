"""Loads state dicts into modules and optimizers: entirely, or not at all if one does not fit."""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from errno import EBADMSG

from ddip_engine.data.arrays import is_tensor
from ddip_engine.data.view import article, refusal_of
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeAlias

    import torch

    Holder: TypeAlias = torch.nn.Module | torch.optim.Optimizer
    Undo: TypeAlias = Callable[[], object]
    Copies: TypeAlias = list[tuple[torch.Tensor, torch.Tensor]]


def check(name: str, holder: Holder, state: Any) -> None:
    """Refuses a state dict that does not fit, before anything is loaded: raises
    EngineError(EBADMSG)."""
    if not isinstance(state, dict):
        text = f"{name} is {article(holder)}: want its state dict, not {article(state)}"
        raise EngineError(EBADMSG, text)
    torch = sys.modules["torch"]
    problems = (
        _optimizer_problems(holder, state)
        if isinstance(holder, torch.optim.Optimizer)
        else _module_problems(holder.state_dict(), state)
    )
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise EngineError(EBADMSG, f"not the state of {name}: {'; '.join(problems[:3])}{more}")


def _module_problems(have: Mapping[str, Any], state: Mapping[str, Any]) -> list[str]:
    problems = [f"{key} is missing" for key in have if key not in state]
    problems += [f"{key} is unexpected" for key in state if key not in have]
    for key, value in have.items():
        other = state.get(key)
        if is_tensor(value) and is_tensor(other) and value.shape != other.shape:
            problems.append(f"{key} is {tuple(other.shape)}, want {tuple(value.shape)}")
    return problems


def _optimizer_problems(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> list[str]:
    if not {"state", "param_groups"} <= state.keys():
        return ["an optimizer's state dict has 'state' and 'param_groups'"]
    want = [len(group["params"]) for group in optimizer.param_groups]
    have = [len(group["params"]) for group in state["param_groups"]]
    if want != have:
        return [f"parameters by group: {have}, want {want}"]
    held, problems = optimizer.state_dict()["state"], []
    for param, fields in state["state"].items():
        for key, new in fields.items():
            old = held.get(param, {}).get(key)
            if is_tensor(old) and is_tensor(new) and old.shape != new.shape:
                problems.append(f"{param}.{key} is {tuple(new.shape)}, want {tuple(old.shape)}")
    return problems


def keep(holder: Holder) -> Undo:
    """Returns a function that restores the holder's current state."""
    torch = sys.modules["torch"]
    kept = _kept_optimizer if isinstance(holder, torch.optim.Optimizer) else _kept_module
    return kept(holder)


def load(name: str, holder: Holder, state: dict[str, Any]) -> None:
    """Calls load_state_dict. If it raises EngineError, the caller must restore the holder."""
    try:
        holder.load_state_dict(state)
    except BaseException as e:  # raised by the object's class, or by a program's hooks
        raise refusal_of(e, f"{name}.load_state_dict", EBADMSG) from None


def _kept_module(module: torch.nn.Module) -> Undo:
    """A function that restores a module's current tensors, with their contents, and attributes.

    What else an attribute refers to (a list that a hook changes in place) is not restored.
    """
    kept = []
    for part in module.modules():
        names = part.__dict__
        # torch keeps parameters, buffers and parts in dicts
        dicts = [each for each in names.values() if type(each) in (dict, OrderedDict)]
        kept += [(each, dict(each)) for each in (names, *dicts)]
    tensors = _copies([*module.parameters(), *module.buffers()])

    def undo() -> None:
        for names, values in kept:
            _set_dict(names, values)
        _put_back(tensors)

    return undo


def _kept_optimizer(optimizer: torch.optim.Optimizer) -> Undo:
    """The same for an optimizer: its groups, and its state for each parameter."""
    groups, states = optimizer.param_groups, optimizer.state
    fields = [each for each in states.values() if isinstance(each, dict)]
    kept = [(each, dict(each)) for each in (optimizer.__dict__, states, *groups, *fields)]
    in_order = list(groups)
    tensors = _copies([value for each in fields for value in each.values()])

    def undo() -> None:
        for names, values in kept:
            _set_dict(names, values)
        groups[:] = in_order
        _put_back(tensors)

    return undo


def _set_dict(names: dict[Any, Any], values: dict[Any, Any]) -> None:
    """Replaces the entries of a dict in place."""
    names.clear()
    names.update(values)


def _copies(values: Iterable[Any]) -> Copies:
    """(tensor, copy) for each tensor that has data of its own."""
    found = {id(value): value for value in values if is_tensor(value)}
    local = [t.to_local() if hasattr(t, "to_local") else t for t in found.values()]  # DTensor
    return [(t, _copy(t.detach())) for t in local if not t.is_meta]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    try:
        return tensor.clone()
    except RuntimeError:  # no memory for it on its device
        return tensor.cpu()


def keep_tensors(values: Iterable[Any]) -> Undo:
    """A function that restores the contents of these tensors."""
    return functools.partial(_put_back, _copies(values))


def _put_back(copies: Copies) -> None:
    with sys.modules["torch"].no_grad():
        for tensor, copy in copies:
            if tensor.shape == copy.shape and tensor.dtype == copy.dtype:
                _write(tensor, copy)
            else:  # a hook gave it other data
                tensor.data = copy


def _write(tensor: torch.Tensor, copy: torch.Tensor) -> None:
    try:
        tensor.copy_(copy)
    except RuntimeError:
        pass  # a tensor that cannot be written to, such as an expanded one, was not changed
