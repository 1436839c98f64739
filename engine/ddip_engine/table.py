"""The list of a rank's variables: which names are the user's, and one line of facts for each.

Nothing is referenced after a call, no user code runs (no __repr__, no property), and what is slow
to measure is measured again only when the caller has time.
"""

import __future__

import functools
import keyword
import sys
import types
import weakref

from ddip_engine import state

# Functions and classes: listed only where a cell made them, not where it imported them.
_DEFINITIONS = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    functools._lru_cache_wrapper,
)
_NEVER = (types.ModuleType, type(__future__.annotations))
_SCALARS = (int, float, complex, bool, type(None))
_measured = {}  # name -> (weak reference, fields) of objects whose size takes a walk


def is_variable(name, value):
    """True for what a cell made or somebody pushed."""
    if name.startswith("_") or isinstance(value, _NEVER):
        return False
    if name in state.engine_names and state.engine_names[name] is value:
        return False
    if isinstance(value, _DEFINITIONS):
        return getattr(value, "__module__", None) == "__main__"
    return not _from_typing(value)


def _from_typing(value):
    """`List`, `Optional` and their kind, and numpy's functions: imports that are no functions."""
    kind = type(value)
    return kind.__module__ == "typing" or (kind.__module__ == "numpy" and kind.__name__ == "ufunc")


def names():
    """The user's variables, sorted: (name, value) pairs."""
    found = [(k, v) for k, v in list(state.main.__dict__.items()) if is_variable(k, v)]
    found.sort(key=lambda pair: pair[0])
    return found


def text(thorough=True):
    """The table as bytes: name, type, dtype, shape, bytes, device, one line each, tab-separated.

    thorough=False takes the sizes of modules and data frames from the last thorough call.
    """
    lines = []
    for name, value in names():
        try:
            fields = _facts(name, value, thorough)
        except Exception:  # an object that lies about its shape is listed all the same
            fields = ("-", "-", "-", "-")
        lines.append("\t".join((name, type(value).__name__, *fields)) + "\n")
    for gone in _measured.keys() - state.main.__dict__.keys():
        del _measured[gone]
    return "".join(lines).encode("utf-8", "backslashreplace")


def _facts(name, value, thorough):
    """(dtype, shape, bytes, device) as text."""
    if isinstance(value, _SCALARS):
        return ("-", "-", "-", "-")
    if isinstance(value, (str, bytes, bytearray)):
        return ("-", "-", str(len(value)), "-")
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return ("-", str(len(value)), "-", "-")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor_facts(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return (str(value.dtype), _shape(value.shape), str(value.nbytes), "cpu")
    return _measure(name, value, thorough, torch)


def _tensor_facts(tensor):
    dtype = str(tensor.dtype).removeprefix("torch.")
    size = tensor.numel() * tensor.element_size()
    return (dtype, _shape(tensor.shape), str(size), str(tensor.device))


def _shape(shape):
    return ",".join(map(str, shape)) or "()"


def _measure(name, value, thorough, torch):
    """Facts of what has to be walked through: modules and data frames."""
    if torch is not None and isinstance(value, torch.nn.Module):
        fact = _module_facts
    elif hasattr(type(value), "memory_usage") and hasattr(type(value), "iloc"):
        fact = _frame_facts
    else:
        return ("-", "-", "-", "-")
    known = _measured.get(name)
    if known is not None and known[0]() is value and not thorough:
        return known[1]
    fields = fact(value)
    _measured[name] = (weakref.ref(value), fields)
    return fields


def _module_facts(module):
    params = list(module.parameters())
    size = sum(p.numel() * p.element_size() for p in params)
    kinds = {str(p.dtype).removeprefix("torch.") for p in params}
    places = {str(p.device) for p in params}
    return (
        kinds.pop() if len(kinds) == 1 else "-",
        "-",
        str(size),
        places.pop() if len(places) == 1 else "-",
    )


def _frame_facts(frame):
    usage = frame.memory_usage(index=True)
    total = usage if isinstance(usage, int) else int(usage.sum())
    return ("-", _shape(frame.shape), str(total), "cpu")


def clear():
    """Forgets what was measured: the namespace is empty."""
    _measured.clear()


def is_name(name):
    """True for what may be a variable's name."""
    return name.isidentifier() and not keyword.iskeyword(name)
