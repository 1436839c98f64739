"""Sends functions of the notebook to the ranks, as code.

There their globals are those of the module of the same name; for `__main__` the rank's `__main__`.
"""

from __future__ import annotations

import functools
import linecache
import marshal
import os
import pickle
import sys
import types
from importlib import import_module
from operator import itemgetter, methodcaller

from ddip import p5

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_CACHED = type(functools.lru_cache(len))  # what lru_cache() and cache() make of a function


class _Call:
    """Pickles as the value of function(*args), computed where it is unpickled."""

    def __init__(self, function, *args):
        self._parts = function, args

    def __reduce__(self):
        return self._parts

    def __call__(self):
        """Never called: picklers only check that it is callable."""
        raise TypeError("the value is over there")


def reduce(value: Any, annotated: bool = True) -> Any:
    """The reduce function for p5.pickler(), for objects of a notebook.

    annotated: functions keep their annotations.
    """
    if isinstance(value, types.FunctionType):
        home = None if _is_importable(value) else _home(value)
        return _reduce_function(value, home, annotated) if home else NotImplemented
    if isinstance(value, _CACHED) and not _is_importable(value):  # its cache stays here
        again = _Call(functools.lru_cache, *value.cache_parameters().values())
        return again, (value.__wrapped__,)
    return p5.reduce_tensor(value)


def _is_importable(function):
    """True if the other side can import it by name."""
    name = function.__module__
    found = sys.modules.get(name) if name != "__main__" else None
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _home(function):
    """The name of the module whose globals a function has: a decorator's wrapper only claims to be
    of the module of what it wraps.

    None for a function that exec() made in its own dictionary, as namedtuple() does.
    """
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name)
    own = name == "__main__" or getattr(module, "__dict__", None) is function.__globals__
    return name if own else None


def _namespace(name):
    """The dictionary of a module on the other side."""
    return _Call(vars, _Call(import_module, name))


def _of_types(name):
    return _Call(getattr, _Call(import_module, "types"), name)


def _reduce_function(function, home, annotated):
    """Code with its module's globals on the other side; the rest is state, as it may be cyclic.

    Functions, classes and modules of the notebook that it uses are sent too, for names that are
    not yet defined there.
    """
    space = _namespace(home)
    cells = [(_Cell(), cell) for cell in function.__closure__ or ()]
    args = (
        _Code(function.__code__),
        space,
        function.__name__,
        function.__defaults__,
        tuple(place for place, _ in cells) or None,
    )
    steps = [_Call(setattr, place, "cell_contents", *_contents(cell)) for place, cell in cells]
    steps += _source(function.__code__.co_filename)
    for name, value in _used(function, home).items():
        steps.append(_Call(methodcaller("setdefault", name, value), space))
    state = {
        "__doc__": _Call(itemgetter(-1), (*steps, function.__doc__)),
        "__kwdefaults__": function.__kwdefaults__,
        "__qualname__": function.__qualname__,
        "__module__": function.__module__,
        "__dict__": function.__dict__,
    }
    if annotated:
        state["__annotations__"] = _annotations(function, home, space)
        parameters = getattr(function, "__type_params__", ())  # from Python 3.12 on
        if parameters and _can_travel(parameters):
            state["__type_params__"] = parameters
    return _of_types("FunctionType"), args, (None, state)


def _annotations(function, home, space):
    """Those that can be pickled. For a class of the notebook, the rank's class of that name."""
    own = function.__globals__ if home == "__main__" else {}
    try:
        found = {key: hint for key, hint in function.__annotations__.items() if _can_travel(hint)}
    except Exception:  # from Python 3.14 on this is where they are evaluated
        return {}
    for key, hint in found.items():
        name = hint.__name__ if isinstance(hint, type) and hint.__module__ == "__main__" else None
        if name and own.get(name) is hint:
            found[key] = _Call(methodcaller("setdefault", name, hint), space)
    return found


def _can_travel(annotation):
    """True if it can be pickled, apart from the annotations of functions in it (it may be a class):
    those that cannot are left out, too."""
    try:
        pickled, _ = p5.dump(annotation, functools.partial(reduce, annotated=False))
    except Exception:  # pickling runs methods of arbitrary objects
        return False
    # the standard library's pickle names classes of the notebook, which the rank need not have
    return p5.base() is not pickle.Pickler or b"__main__" not in bytes(pickled)


def _source(file):
    """Makes tracebacks on the other side show the lines of a cell, which are in no file."""
    if os.path.exists(file) or not (lines := linecache.getlines(file)):
        return []
    cache = _Call(getattr, _Call(import_module, "linecache"), "cache")
    return [_Call(methodcaller("setdefault", file, (0, None, lines, file)), cache)]


class _Code:
    """A code object, pickled by marshal; both sides need the same version of Python."""

    def __init__(self, code):
        self._data = marshal.dumps(code)

    def __reduce__(self):
        return marshal.loads, (self._data,)


class _Cell:
    """An empty cell of a closure."""

    def __reduce__(self):
        return _of_types("CellType"), ()


def _contents(cell):
    try:
        return (cell.cell_contents,)
    except ValueError:
        raise pickle.PicklingError("it uses a variable that has no value yet") from None


def _used(function, home):
    """Definitions and modules among the globals that a function of the notebook uses."""
    if home != "__main__":
        return {}
    names, codes = set(), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    kinds = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type, _CACHED)
    space = function.__globals__
    return {
        name: _Call(import_module, value.__name__) if isinstance(value, types.ModuleType) else value
        for name in sorted(names)
        if isinstance(value := space.get(name), kinds) and value is not function
    }
