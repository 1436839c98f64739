"""The inside of objects as directories: the entries of an object, by names that files can have.

Entries of a dict are its items; of a list or tuple, its items by their index; of a torch module,
its parameters and buffers by their dotted names; of an optimizer, `param_groups` and `state`,
numbered as in its state_dict(); of a data frame, its columns; of any other object, its own
attributes.

Nothing of the user's code runs: no property, no __getattr__, no iterator. What is not looked for is
not kept.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import types
from collections import Counter
from errno import ENOENT

from ddip_engine.data import arrays
from ddip_engine.data.view import ABSENT, article, export_written
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, BinaryIO, TypeAlias

    import pandas
    import torch
    from ddip_engine.data.view import Export

    Dict: TypeAlias = dict[Any, Any]
    Pairs: TypeAlias = Iterator[tuple[str | None, Any]]

# What the daemon reads as the end of a name: var_views and var_ops in fs/object/varname.c, and `d`.
SUFFIXES = frozenset(
    "json npy safetensors pt pkl p5 csv png dir doc mean sum min max gather cat cuda same d".split()
)
_NAME_BYTES = 255  # limit of a file name
_SHORT = _NAME_BYTES // 4  # characters of a name that is within the limit in any case
_MANY = 10_000  # entries that C code handles at once
_DEPTH = 8  # of a tuple that is a key
_EMPTY = "%"  # the name of an empty key
_LEAVES = (
    str, bytes, bytearray, int, float, complex, type(None), type, types.ModuleType,
    types.FunctionType, types.BuiltinFunctionType, types.MethodType,
)  # fmt: skip
_PLAIN = (str, bytes, int, float, complex, bool, type(None))  # keys whose text is Python's own
_NO_NAME = re.compile(r"[%/\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")
_INDEX = re.compile(r"0|-?[1-9][0-9]{0,17}")
_mro_of_type = type.__dict__["__mro__"].__get__  # not a metaclass's own
_dict_of_type = type.__dict__["__dict__"].__get__
_HOLDS_DICT = (types.GetSetDescriptorType, types.MemberDescriptorType)


class _How:
    """How objects of a kind are looked into.

    pairs(object) yields (name or None, value); find(object, name) is a value or ABSENT; is_data:
    such an object is listed as a directory. Any object can be looked into, but listing all that
    refers to each other could be endless.
    """

    __slots__ = ("find", "is_data", "pairs")

    def __init__(
        self, pairs: Callable[[Any], Pairs], find: Callable[[Any, str], Any], is_data: bool
    ) -> None:
        self.pairs, self.find, self.is_data = pairs, find, is_data


def items(name: str, value: Any, keys: Sequence[str]) -> list[Any]:
    """The object of this name, what the first key is in it, and so on. Raises
    EngineError(ENOENT)."""
    found = [value]
    for key in keys:
        value = item(name, value, key)
        if value is ABSENT:
            text = f"no '{key}' in {name}.d, {article(found[-1])}: ls shows what there is"
            raise EngineError(ENOENT, text)
        name = f"{name}.d/{key}"
        found.append(value)
    return found


def item(name: str, value: Any, key: str) -> Any:
    """What a key is in the object of this name, or ABSENT. Raises EngineError(ENOENT) if there is
    nothing inside."""
    return _how_of(name, value).find(value, key)


def names(name: str, value: Any, keys: Sequence[str]) -> Export:
    """The entries of an object as a view.Export: a line that says what is not listed, the entries
    that can be looked into as `KEY.d`, an empty line, and all entries; one a line."""
    around = items(name, value, keys)
    what = shown(name, keys)
    files, folders, left_out, known = [], [], 0, {}
    for key, entry in _how_of(what, around[-1]).pairs(around[-1]):
        if key is None:
            left_out += 1
            continue
        kind = type(entry)
        if kind not in known:
            how = _how(kind)
            known[kind] = how is not None and how.is_data, kind in _shown_in_part()
        is_data, is_part = known[kind]
        line = key + _whole_view(entry) if is_part else key
        if len(line) > _SHORT and len(line.encode()) > _NAME_BYTES:
            left_out += 1
            continue
        files.append(line)
        if is_data and not any(entry is each for each in around):
            folders.append(key + ".d")
    count = len(folders)
    folders = [name for name in folders if len(name.encode()) <= _NAME_BYTES]
    left_out += count - len(folders)
    which = f"which no name of {_NAME_BYTES} bytes tells apart"
    said = f"not listed: {left_out} of what is in {what}.d, {which}"
    return export_written(
        functools.partial(_write, [said if left_out else "", *folders, "", *files])
    )


def _write(lines: list[str], file: BinaryIO) -> None:
    """In pieces: other threads run between them."""
    for at in range(0, len(lines), _MANY):
        text = "".join([line + "\n" for line in lines[at : at + _MANY]])
        file.write(text.encode("utf-8", "backslashreplace"))


def shown(name: str, keys: Sequence[str]) -> str:
    """The path for messages: `a.d/KEY`."""
    return ".d/".join([name, *keys])


def check(name: str, value: Any, keys: Sequence[str]) -> None:
    """Raises EngineError(ENOENT) unless there is something to look into."""
    _how_of(shown(name, keys), items(name, value, keys)[-1])


# ---- names


def escape(text: str) -> str:
    """The name of a file that stands for this text and no other, whatever it contains."""
    if text.isidentifier():
        return text
    if not text:
        return _EMPTY
    if text in (".", ".."):
        return text.replace(".", "%2E")
    if _NO_NAME.search(text):
        text = _NO_NAME.sub(_escaped, text)
    head, _, last = text.rpartition(".")
    return f"{head}%2E{last}" if head and last in SUFFIXES else text


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def unescape(name: str) -> str | None:
    """The text that the name stands for; None: it stands for none."""
    if name == _EMPTY:
        return ""
    if "%" not in name:
        return name
    data = name.encode("utf-8", "surrogatepass")
    try:
        return _ESCAPE.sub(lambda m: bytes((int(m[1], 16),)), data).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _text_of(key: Any) -> str | None:
    """The text of a key: a string's own, else its repr() if that is Python's; None: it has none."""
    kind = type(key)
    if issubclass(kind, str):
        return str.__str__(key)
    if issubclass(kind, int) and kind is not bool:
        return int.__repr__(key) if int.bit_length(key) < _NAME_BYTES else None
    return repr(key) if _is_plain(key, _DEPTH) else None


def _is_plain(key: Any, depth: int) -> bool:
    """True for what repr() shows without the user's code, in not much more than a name's length."""
    if type(key) is tuple:
        few = depth > 0 and len(key) < _NAME_BYTES
        return few and all(_is_plain(each, depth - 1) for each in key)
    if type(key) in (str, bytes):
        return len(key) < _NAME_BYTES
    return type(key) in _PLAIN and (type(key) is not int or key.bit_length() < _NAME_BYTES)


# ---- kinds of objects


def _items_of(value: Dict) -> list[tuple[Any, Any]]:
    """The items of a dict at one time. Of many, it is not C code that copies them, so that other
    threads run meanwhile, unless the dict changes."""
    if dict.__len__(value) > _MANY:
        with contextlib.suppress(RuntimeError):  # changed size during iteration
            return [pair for pair in dict.items(value)]
    return list(dict.items(value))


def _dict_pairs(value: Dict) -> Pairs:
    for key, entry in _items_of(value):
        if type(key) is str:
            yield escape(key), entry
            continue
        text = _text_of(key)
        if text is None or _is_other(value, key, text):
            yield None, entry
        else:
            yield escape(text), entry


def _is_other(value: Dict, key: object, text: str) -> bool:
    """True if the text is the key of another item."""
    return not issubclass(type(key), str) and dict.__contains__(value, text)


def dict_key(value: Dict, name: str) -> Any:
    """The key of a dict that this name stands for, whether the dict has it or not."""
    text = unescape(name)
    if text is None:
        text = name
    if dict.__contains__(value, text):
        return text
    if _INDEX.fullmatch(text) and dict.__contains__(value, int(text)):
        return int(text)
    others = (key for key, _ in _items_of(value) if type(key) is not str)
    return next((key for key in others if _text_of(key) == text), text)


def _dict_find(value: Dict, name: str) -> Any:
    return ABSENT if unescape(name) is None else dict.get(value, dict_key(value, name), ABSENT)


def _sequence(base: Any) -> _How:
    def pairs(value: Sequence[Any]) -> Pairs:
        for index, entry in enumerate(base.__getitem__(value, slice(None))):
            yield str(index), entry

    def find(value: Sequence[Any], name: str) -> Any:
        try:
            return base.__getitem__(value, int(name)) if _INDEX.fullmatch(name) else ABSENT
        except IndexError:
            return ABSENT

    return _How(pairs, find, True)


def _attributes(value: object) -> Dict:
    """The object's own attributes, as a new dict."""
    found: Dict = {}
    own = None
    for kind in _mro_of_type(type(value)):
        space = _dict_of_type(kind)
        if own is None and type(space.get("__dict__")) in _HOLDS_DICT:
            own = space["__dict__"].__get__(value)
            found.update(dict.items(own))
        if "__slots__" not in space:
            continue
        for name, slot in list(space.items()):
            if type(slot) is types.MemberDescriptorType and name not in found:
                try:
                    found[name] = slot.__get__(value)
                except AttributeError:  # it is not set
                    pass
    return found


def _has_attributes(kind: type) -> bool:
    return any(
        type(space.get("__dict__")) in _HOLDS_DICT or "__slots__" in space
        for space in map(_dict_of_type, _mro_of_type(kind))
    )


def _attribute_pairs(value: object) -> Pairs:
    return _dict_pairs(_attributes(value))


def _attribute_find(value: object, name: str) -> Any:
    return _dict_find(_attributes(value), name)


def _parts(module: torch.nn.Module, which: str) -> Dict:
    """One of the dicts in which a torch module keeps what it consists of."""
    found: Any = _attributes(module).get(which)
    return found if issubclass(type(found), dict) else {}


def _module_pairs(module: torch.nn.Module, prefix: str = "", around: tuple[int, ...] = ()) -> Pairs:
    for which in ("_parameters", "_buffers"):
        for name, entry in list(dict.items(_parts(module, which))):
            if entry is not None and type(name) is str:
                yield escape(prefix + name), entry
    around = (*around, id(module))
    for name, part in list(dict.items(_parts(module, "_modules"))):
        if part is not None and type(name) is str and id(part) not in around:
            yield from _module_pairs(part, f"{prefix}{name}.", around)


def module_of(module: torch.nn.Module, name: str) -> tuple[torch.nn.Module | None, str]:
    """(the module that `a.b.c` is in, or None, and `c`)."""
    *path, last = (unescape(name) or "").split(".")
    for part in path:
        module = dict.get(_parts(module, "_modules"), part)
        if module is None:
            break
    return module, last


def _module_find(module: torch.nn.Module | None, name: str) -> Any:
    """What is listed, and what is not: the modules in it, and other attributes."""
    module, last = module_of(module, name)
    if module is None:
        return ABSENT
    for which in ("_parameters", "_buffers", "_modules"):
        found = dict.get(_parts(module, which), last)
        if found is not None:
            return found
    return dict.get(_attributes(module), last, ABSENT)


def _optimizer_entries(optimizer: torch.optim.Optimizer) -> Dict:
    """The state is a dict by parameters: here by their numbers, as in state_dict()."""
    own = _attributes(optimizer)
    groups: Any = own.get("param_groups")
    states: Any = own.get("state")
    if type(groups) is list and issubclass(type(states), dict):
        by_id = {id(key): entry for key, entry in list(dict.items(states))}
        params = [p for group in groups if type(group) is dict for p in group.get("params", ())]
        own["state"] = {i: by_id[id(p)] for i, p in enumerate(params) if id(p) in by_id}
    return own


def _optimizer_pairs(optimizer: torch.optim.Optimizer) -> Pairs:
    own = _optimizer_entries(optimizer)
    return ((name, own[name]) for name in ("param_groups", "state") if name in own)


def _optimizer_find(optimizer: torch.optim.Optimizer, name: str) -> Any:
    return _dict_find(_optimizer_entries(optimizer), name)


def _columns(frame: pandas.DataFrame) -> tuple[dict[str, Any], int]:
    """(keys of the columns by their names, of those that the frame has once; the number of all)."""
    keys = frame.columns.tolist()
    texts = [_text_of(key) for key in keys]
    count = Counter(texts)
    pairs = zip(texts, keys, strict=True)
    once = {escape(t): key for t, key in pairs if t is not None and count[t] == 1}
    return once, len(keys)


def _plain_frame(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The same data in an object of its own: it is pandas' code that reads it, whatever a subclass
    does, and what pandas caches is dropped with it."""
    return sys.modules["pandas"].DataFrame(frame, copy=False)


def _frame_pairs(frame: pandas.DataFrame) -> Pairs:
    frame = _plain_frame(frame)
    columns, count = _columns(frame)
    for name, key in columns.items():
        yield name, frame[key]
    for _ in range(count - len(columns)):
        yield None, None


def _frame_find(frame: pandas.DataFrame, name: str) -> Any:
    frame = _plain_frame(frame)
    columns, _ = _columns(frame)
    return frame[columns[name]] if name in columns else ABSENT


def is_frame(value: object) -> bool:
    """Is it a data frame of pandas?"""
    kind = getattr(sys.modules.get("pandas"), "DataFrame", None)
    return kind is not None and issubclass(type(value), kind)


def column_key(frame: pandas.DataFrame, name: str) -> Any:
    """The key of the column that this name stands for, whether the frame has it or not."""
    columns, _ = _columns(_plain_frame(frame))
    return columns[name] if name in columns else unescape(name) or name


_DICT = _How(_dict_pairs, _dict_find, True)
_BASES = (dict, _DICT), (list, _sequence(list)), (tuple, _sequence(tuple))
_DATA = _How(_attribute_pairs, _attribute_find, True)
_OTHER = _How(_attribute_pairs, _attribute_find, False)

# For libraries that are loaded: a class, and how its objects are looked into; None: not at all
_LIBRARIES: tuple[tuple[str, str, _How | None], ...] = (
    ("torch", "Tensor", None),
    ("numpy", "ndarray", None),
    ("numpy", "generic", None),
    ("cupy", "ndarray", None),
    ("pandas", "Series", None),
    ("pandas", "Index", None),
    ("pandas", "DataFrame", _How(_frame_pairs, _frame_find, True)),
    ("torch.nn", "Module", _How(_module_pairs, _module_find, True)),
    ("torch.optim", "Optimizer", _How(_optimizer_pairs, _optimizer_find, True)),
    ("argparse", "Namespace", _DATA),
)


def _how(kind: type) -> _How | None:
    """How to look into the objects of a type; None: there is nothing inside."""
    if issubclass(kind, _LEAVES):
        return None
    for module, name, how in _LIBRARIES:
        known = getattr(sys.modules.get(module), name, None)
        if isinstance(known, type) and issubclass(kind, known):
            return how
    for base, how in _BASES:
        if issubclass(kind, base):
            return how
    if not _has_attributes(kind):
        return None
    fields = any("__dataclass_fields__" in _dict_of_type(each) for each in _mro_of_type(kind))
    return _DATA if fields or issubclass(kind, types.SimpleNamespace) else _OTHER


def _how_of(name: str, value: object) -> _How:
    how = _how(type(value))
    if how is None:
        raise EngineError(ENOENT, f"{name} is {article(value)}: it has nothing inside")
    return how


# ---- views


def _shown_in_part() -> tuple[type, ...]:
    """The types whose text can leave something out."""
    series = getattr(sys.modules.get("pandas"), "Series", None)
    return arrays.types() if series is None else (*arrays.types(), series)


def _whole_view(value: Any) -> str:
    """The view, with its dot, by which such an object is listed: one that shows all of it."""
    view = arrays.whole_view(value) if type(value) in arrays.types() else "csv"
    return f".{view}" if view else ""
