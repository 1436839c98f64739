"""The list of a rank's variables: which names are the user's, and one line of facts for each.

A call leaves no references behind and runs no user code (no __repr__, no property). What is slow to
measure is measured again only if the caller has time.
"""

from __future__ import annotations
import __future__

import functools
import keyword
import re
import sys
import types
import weakref
from operator import itemgetter

import _ddip
from ddip_engine import state
from ddip_engine.data.view import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypeAlias

    import numpy
    import torch

    Fields: TypeAlias = tuple[str, str, str, str]  # dtype, shape, bytes, device
    Facts: TypeAlias = Callable[[str, Any, bool], Fields]
    How: TypeAlias = Facts | str
    # see _listing(): what it is of, the names, the variables
    Listed: TypeAlias = tuple[tuple[bytes, int] | None, tuple[Any, ...], Sequence[tuple[str, How]]]

# Functions and classes: listed only if a cell defined them, not if it imported them.
_DEFINITIONS = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    type(functools.lru_cache(len)),
)
_NEVER = (types.ModuleType, type(__future__.annotations))
_SCALARS = (int, float, complex, bool, type(None))
_TEXTS = (str, bytes, bytearray)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_UNKNOWN = ("-", "-", "-", "-")
MAIN = "__main__"  # can be read like a variable: the namespace itself
_NAME_BYTES = 255  # limit of a file name
_TABLE_BYTES = 8 << 20  # limit of the table, some 200,000 names; later ones are not listed
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # what would break a line or a column
_module_of_type = type.__dict__["__module__"].__get__  # not a metaclass's own
# id of a type -> (weak reference, how), since objects are many and types are few
_kinds: dict[int, tuple[weakref.ref[type], How | None]] = {}
_listed: Listed = None, (), ()
# name -> (weak reference, fields) of objects that must be walked for their size
_measured: dict[str, tuple[weakref.ref[Any], Fields]] = {}


@functools.lru_cache(maxsize=1 << 12)
def is_name(name: str) -> bool:
    """True for a valid variable name that can also be the name of a file."""
    if not name.isidentifier() or keyword.iskeyword(name):
        return False
    return len(name) <= _NAME_BYTES // 4 or len(name.encode()) <= _NAME_BYTES  # UTF-8: 4 at most


def names() -> list[tuple[str, Any]]:
    """The user's variables, sorted: (name, value) pairs."""
    return listed(state.main.__dict__)


def listed(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The same of any namespace."""
    return [(name, value) for name, value in named(namespace) if _how(name, value)]


def named(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What may be a variable by its name alone; a namespace can have keys that are not names."""
    found = [
        pair
        for pair in list(namespace.items())
        if type(pair[0]) is str and pair[0][:1] != "_" and is_name(pair[0])
    ]
    found.sort(key=itemgetter(0))
    return found


def _how(name: str, value: Any) -> How | None:
    """How to find the facts of a variable; None for what neither a cell nor a push made."""
    kind = type(value)
    known = _kinds.get(id(kind))
    how = known[1] if known is not None and known[0]() is kind else _learn(kind)
    if how is _definition_facts and not _is_defined_here(value):
        return None
    if name in state.engine_names and state.engine_names[name] is value:
        return None
    return how


def _is_defined_here(value: Any) -> bool:
    """True for a function or class that a cell made."""
    if issubclass(type(value), type):
        return _module_of_type(value) == "__main__"
    if type(value) is types.MethodType:
        value = value.__func__
        if type(value) is not types.FunctionType:  # any callable may be bound
            return False
    return getattr(value, "__module__", None) == "__main__"


def _learn(kind: type) -> How | None:
    """Finds the _how_of_kind() of a type, and caches it for as long as the type exists."""
    key, how = id(kind), _how_of_kind(kind)
    _kinds[key] = weakref.ref(kind, lambda gone: _forget(key, gone)), how
    return how


def _forget(key: int, gone: weakref.ref[type]) -> None:
    """A type no longer exists; another one may already have its id."""
    global _listed
    _listed = None, (), ()
    if _kinds.get(key, (None,))[0] is gone:
        del _kinds[key]


def _how_of_kind(kind: type) -> How | None:
    """A function of (name, value, thorough) that returns the fields of an object; their text if all
    objects of the type have the same ones; None if none of them is a variable."""
    if issubclass(kind, _NEVER) or _is_from_typing(kind):
        return None
    if issubclass(kind, _DEFINITIONS):
        return _definition_facts
    if issubclass(kind, _SCALARS):
        return _line_end(kind, _UNKNOWN)
    for base in (*_TEXTS, *_CONTAINERS):
        if issubclass(kind, base):
            return _length_facts(base)
    for module, name, facts in _LIBRARIES:
        known = getattr(sys.modules.get(module), name, None)
        if isinstance(known, type) and issubclass(kind, known):
            return facts
    return _line_end(kind, _UNKNOWN)


def _is_from_typing(kind: type) -> bool:
    """`List`, `Optional` and the like, and NumPy's ufuncs: imports that are not functions."""
    module, name = _module_of_type(kind), type_name(kind)
    return module == "typing" or (module == "numpy" and name == "ufunc")


def text(thorough: bool = True) -> bytes:
    """The table as bytes: name, type, dtype, shape, bytes, device, one line for each variable,
    tab-separated, in the order of the names' bytes.

    thorough=False reuses the sizes of modules and data frames that were measured last.
    """
    lines, space = [], state.main.__dict__.copy()
    for name, how in _listing(space):
        if isinstance(how, str):
            lines.append(name + how)
        else:
            value = space[name]
            lines.append(name + _line_end(type(value), _facts(how, name, value, thorough)))
    for gone in [name for name in list(_measured) if name not in state.main.__dict__]:
        _measured.pop(gone, None)
    return _cut("".join(lines).encode("utf-8", "backslashreplace"))


def _listing(space: dict[str, Any]) -> Sequence[tuple[str, How]]:
    """The variables of this copy of the namespace, sorted: (name, how) pairs. Kept as long as each
    name refers to the same object, of the same type; the names are kept, too, so that no other can
    have the address of one."""
    global _listed
    which = _ddip.identities(space), len(state.engine_names)
    if _listed[0] != which:
        pairs = [(name, _how(name, value)) for name, value in named(space)]
        _listed = which, tuple(space), [(name, how) for name, how in pairs if how is not None]
    return _listed[2]


def _cut(table: bytes) -> bytes:
    """The first lines of the table, as many as may be sent."""
    if len(table) <= _TABLE_BYTES:
        return table
    return table[: table.rindex(b"\n", 0, _TABLE_BYTES) + 1]


def _facts(how: Facts, name: str, value: Any, thorough: bool) -> Fields:
    """(dtype, shape, bytes, device) as text."""
    try:
        return how(name, value, thorough)
    except Exception:  # an object that misreports its shape is still listed
        return _UNKNOWN


def _line_end(kind: type, fields: Fields) -> str:
    columns: Iterable[str] = (type_name(kind), *map(str, fields))
    if not "".join(columns).isprintable():  # much faster than to look for a break
        columns = (_BREAKS.sub("?", column) for column in columns)
    return "\t" + "\t".join(columns) + "\n"


def _definition_facts(name: str, value: object, thorough: bool) -> Fields:
    return _UNKNOWN


def _length_facts(base: Any) -> Facts:
    """The length: of texts as bytes, of containers as shape; found without a subclass's code."""

    def facts(name: str, value: Any, thorough: bool) -> Fields:
        length = str(base.__len__(value))
        return ("-", "-", length, "-") if base in _TEXTS else ("-", length, "-", "-")

    return facts


@functools.lru_cache(maxsize=1 << 8)
def _dtype_name(dtype: torch.dtype | numpy.dtype) -> str:
    """Cached, since NumPy takes 5 µs for it."""
    return str(dtype).removeprefix("torch.")


def _tensor_facts(name: str, tensor: torch.Tensor, thorough: bool) -> Fields:
    size = tensor.numel() * tensor.element_size()
    return (_dtype_name(tensor.dtype), _shape(tensor.shape), str(size), str(tensor.device))


def _array_facts(name: str, array: numpy.ndarray, thorough: bool, place: str = "cpu") -> Fields:
    return (_dtype_name(array.dtype), _shape(array.shape), str(array.nbytes), place)


def _cupy_facts(name: str, array: Any, thorough: bool) -> Fields:
    return _array_facts(name, array, thorough, f"cuda:{array.device.id}")


def _shape(shape: Iterable[int]) -> str:
    return ",".join(map(str, shape)) or "()"


def _measure(fact: Callable[[Any], Fields]) -> Facts:
    """Caches the facts of objects that must be walked: modules and data frames."""

    def facts(name: str, value: Any, thorough: bool) -> Fields:
        known = _measured.get(name)
        if known is not None and known[0]() is value and not thorough:
            return known[1]
        fields = fact(value)
        _measured[name] = (weakref.ref(value), fields)
        return fields

    return facts


def _module_facts(module: torch.nn.Module) -> Fields:
    params = list(module.parameters())
    size = sum(p.numel() * p.element_size() for p in params)
    kinds = {_dtype_name(p.dtype) for p in params}
    places = {str(p.device) for p in params}
    return (
        kinds.pop() if len(kinds) == 1 else "-",
        "-",
        str(size),
        places.pop() if len(places) == 1 else "-",
    )


def _frame_facts(frame: Any) -> Fields:
    usage = frame.memory_usage(index=True)
    total = usage if isinstance(usage, int) else int(usage.sum())
    return ("-", _shape(frame.shape), str(total), "cpu")


# For libraries that are loaded: a class, and how the facts of its objects are found
_LIBRARIES: tuple[tuple[str, str, Facts], ...] = (
    ("torch", "Tensor", _tensor_facts),
    ("numpy", "ndarray", _array_facts),
    ("numpy", "generic", _array_facts),
    ("cupy", "ndarray", _cupy_facts),
    ("torch.nn", "Module", _measure(_module_facts)),
    ("pandas", "DataFrame", _measure(_frame_facts)),
    ("pandas", "Series", _measure(_frame_facts)),
)


def clear() -> None:
    """Forgets what was measured: the namespace is empty."""
    _measured.clear()
