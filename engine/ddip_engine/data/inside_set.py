"""Sets what is inside an object: NAME.d/KEY is written.

A tensor of a module or an optimizer is overwritten in place, so that whoever refers to it sees the
change. An item of a dict or list, a column of a data frame and an attribute that exists are
replaced, by the object's own code. A dict and a data frame also take new keys.
"""

from __future__ import annotations

import functools
import sys
from errno import EINVAL, ENOENT, EOPNOTSUPP

from ddip_engine.data import arrays, inside, state_dicts
from ddip_engine.data.view import ABSENT, article, refusal_of
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    import torch
    from ddip_engine.data.state_dicts import Undo

    Change: TypeAlias = Callable[[Any, list[Undo]], None]


def prepare(name: str, value: Any, keys: Sequence[str]) -> tuple[Any, Change]:
    """(what the last key is in the object before it, a function that sets it). Raises EngineError.

    set(value, undo) appends to undo a function that undoes what it does next.
    """
    *around, key = keys
    holders = inside.items(name, value, around)
    holder, where = holders[-1], inside.shown(name, around)
    old = inside.item(where, holder, key)
    what = inside.shown(name, keys)
    if arrays.is_tensor(old) and any(_keeps_tensors(each) for each in holders):
        return old, functools.partial(_overwrite, what, old)
    if isinstance(holder, dict) and not _is_made_up(holders):
        return old, functools.partial(_item, what, holder, inside.dict_key(holder, key), old)
    if isinstance(holder, list) and old is not ABSENT:
        return old, functools.partial(_item, what, holder, int(key), old)
    if inside.is_frame(holder):
        return old, functools.partial(_item, what, holder, inside.column_key(holder, key), old)
    if _is_made_up(holders) or _is_torch(holder, "optim", "Optimizer"):
        state = f"{name}.pt" if len(around) < 2 else inside.shown(name, around[:-1]) + ".pt"
        raise EngineError(EOPNOTSUPP, f"{what} can't be set: write the optimizer's state, {state}")
    if old is ABSENT:
        raise EngineError(ENOENT, f"no '{key}' in {where}.d, {article(holder)}")
    if isinstance(holder, tuple):
        raise EngineError(EOPNOTSUPP, f"{what} can't be set: {where} is {article(holder)}")
    attribute: str | None
    if _is_torch(holder, "nn", "Module"):
        holder, attribute = inside.module_of(holder, key)
    else:
        attribute = inside.unescape(key)
    return old, functools.partial(_set, what, setattr, None, holder, attribute, old)


def _is_torch(value: object, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(f"torch.{module}"), name, None)
    return kind is not None and isinstance(value, kind)


def _keeps_tensors(value: object) -> bool:
    """Do others refer to the tensors of such an object, as an optimizer to those of a module?"""
    return _is_torch(value, "nn", "Module") or _is_torch(value, "optim", "Optimizer")


def _is_made_up(holders: list[Any]) -> bool:
    """True for the state of an optimizer, which inside.items() numbers in a dict of its own."""
    around: Any = holders[-2] if len(holders) > 1 else None
    return _is_torch(around, "optim", "Optimizer") and holders[-1] is not around.param_groups


def _item(what: str, holder: Any, key: Any, old: Any, value: Any, undo: list[Undo]) -> None:
    kind = type(holder)
    remove = kind.pop if inside.is_frame(holder) else kind.__delitem__
    _set(what, kind.__setitem__, remove, holder, key, old, value, undo)


def _set(
    what: str,
    setter: Callable[[Any, Any, Any], object],
    remove: Callable[[Any, Any], object] | None,
    holder: Any,
    key: Any,
    old: Any,
    value: Any,
    undo: list[Undo],
) -> None:
    back = (remove, holder, key) if old is ABSENT else (setter, holder, key, old)
    undo.append(functools.partial(_undo, *back))
    try:
        setter(holder, key, value)
    except Exception as e:  # the object's own code may refuse it, after it has set it
        raise refusal_of(e, what, EOPNOTSUPP) from None


def _undo(function: Callable[..., object], *args: Any) -> None:
    try:
        function(*args)
    except Exception:
        pass  # the object's own code: it took the value, and does not take the former one back


def _overwrite(what: str, tensor: torch.Tensor, value: Any, undo: list[Undo]) -> None:
    torch = sys.modules["torch"]
    try:
        new = value if arrays.is_tensor(value) else torch.tensor(value)
    except Exception as e:
        raise refusal_of(e, what, EINVAL) from None
    if new.shape != tensor.shape:
        shapes = f"{tuple(tensor.shape)}, not {tuple(new.shape)}"
        raise EngineError(EINVAL, f"{what} is a tensor of shape {shapes}")
    undo.append(state_dicts.keep_tensors([tensor]))
    try:
        with torch.no_grad():
            tensor.copy_(new)
    except Exception as e:
        raise refusal_of(e, what, EOPNOTSUPP) from None
