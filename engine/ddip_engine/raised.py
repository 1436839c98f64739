"""An exception of the user's as it may be looked at: its class may override whatever a traceback, a
report or a test of its class reads, and that may raise, return nonsense, or take for ever.
"""

from __future__ import annotations

import builtins
import contextlib
import traceback
import types
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    T = TypeVar("T")
    U = TypeVar("U")
    Of = Callable[[Any], T]  # a field of an exception
    Setter = Callable[[Any, Any], None]
    Made = tuple[type[BaseException], Any, list[Any]]  # what _kind() returns

_DEPTH = 10  # of groups within groups that a traceback shows
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", None)  # does not exist before Python 3.11
_BUILT_IN = {
    id(each)
    for each in vars(builtins).values()
    if isinstance(each, type) and issubclass(each, BaseException)
}
# What no class can override. mypy takes these for the values, not for the descriptors.
trace: Of[TracebackType | None] = BaseException.__traceback__.__get__  # type: ignore[union-attr]
set_trace: Setter = BaseException.__traceback__.__set__  # type: ignore[union-attr]
suppress_context: Setter = BaseException.__suppress_context__.__set__  # type: ignore[attr-defined]
_cause: Of[BaseException | None] = BaseException.__cause__.__get__  # type: ignore[union-attr]
context: Of[BaseException | None] = BaseException.__context__.__get__  # type: ignore[union-attr]
code: Of[Any] = SystemExit.code.__get__  # type: ignore[union-attr]
errno: Of[int | None] = OSError.errno.__get__  # type: ignore[union-attr]
args: Of[tuple[Any, ...]] = BaseException.args.__get__  # type: ignore[attr-defined]
_mro = type.__dict__["__mro__"].__get__
_qualname = type.__dict__["__qualname__"].__get__
_module = type.__dict__["__module__"].__get__
_name = type.__dict__["__name__"].__get__
# exceptions whose own code has been interrupted: it is not called again in this cell
_silent: list[BaseException] = []


def is_a(error: object, kinds: type | tuple[type, ...]) -> bool:
    """isinstance(), of what the exception is, not of what its `__class__` says."""
    return issubclass(type(error), kinds)


def name(error: BaseException) -> str:
    return _name(type(error))


def parts(error: BaseException) -> list[BaseException]:
    """The exceptions that belong to this one: its cause, its context, those in its group."""
    return [each for each in (_cause(error), context(error), *_members(error)) if each is not None]


def origin(error: BaseException) -> BaseException | None:
    """Its cause, else its context, else None."""
    found = _cause(error)
    return found if found is not None else context(error)


def _members(error: BaseException) -> tuple[BaseException, ...]:
    if _GROUP is None or not is_a(error, _GROUP):
        return ()
    return _GROUP.exceptions.__get__(error)


def forget() -> None:
    """The cell has ended."""
    _silent.clear()


def _asked(error: Any, function: Callable[[Any], T], otherwise: U) -> T | U:
    """function(error), which runs code of its class."""
    if any(each is error for each in _silent):
        return otherwise
    try:
        return function(error)
    except KeyboardInterrupt:
        _silent.append(error)
    except BaseException:
        pass  # as the traceback module does
    return otherwise


class _Plain:
    """What stands for an exception. Its text and notes are asked for once, when they are needed."""

    __slots__ = ()

    def __str__(self) -> str:
        keeps = self.__dict__
        if "text" not in keeps:
            keeps["text"] = _asked(keeps["stands_for"], _text, "<exception str() failed>")
        return keeps["text"]

    @property
    def __notes__(self) -> list[str] | None:
        keeps = self.__dict__
        if "notes" not in keeps:
            keeps["notes"] = _asked(keeps["stands_for"], _notes, ["<notes that cannot be read>"])
        return keeps["notes"]


class _PlainGroup(_Plain):
    __slots__ = ()

    @property
    def exceptions(self) -> tuple[BaseException, ...]:
        return self.__dict__["members"]


def _text(value: object) -> str:
    return str.__str__(str(value))  # of a subclass of str, the text alone


def _notes(error: BaseException) -> list[str] | None:
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list | tuple):
        return [_asked(note, _text, "<note str() failed>") for note in notes]
    return None if notes is None else [repr(notes)]


def plain(error: BaseException, bare: bool = False) -> BaseException:
    """An exception with the name, text, notes, traceback, causes and group of this one, that can be
    looked at as any other: it is of the same built-in class. bare: of none that a traceback shows
    in a way of its own."""
    if is_a(error, _Plain) and not bare:
        return error
    error = error.__dict__["stands_for"] if is_a(error, _Plain) else error
    kinds: dict[tuple[int, bool], Made]
    made: dict[int, tuple[BaseException, BaseException]]
    kinds, made, waiting = {}, {}, deque([(error, 0)])
    while waiting:
        each, depth = waiting.popleft()
        if id(each) not in made:
            made[id(each)] = each, _stand_in(each, kinds, bare, depth < _DEPTH)
            waiting += [
                (inner, depth) for inner in (_cause(each), context(each)) if inner is not None
            ]
            waiting += [(inner, depth + 1) for inner in _members(each) if depth < _DEPTH]
    for each, seen in made.values():
        for got, attribute in ((_cause(each), "__cause__"), (context(each), "__context__")):
            setattr(seen, attribute, made[id(got)][1] if got is not None else None)
        suppress_context(
            seen,
            BaseException.__suppress_context__.__get__(each),  # type: ignore[attr-defined]
        )
        if is_a(seen, _PlainGroup):
            seen.__dict__["members"] = tuple(made[id(inner)][1] for inner in _members(each))
    return made[id(error)][1]


def _stand_in(
    error: BaseException, kinds: dict[tuple[int, bool], Made], bare: bool, whole: bool
) -> BaseException:
    """One that has no causes and no members yet. kinds: what stands for a class, by its id."""
    grouped = whole and bool(_members(error))
    key = id(type(error)), grouped
    if key not in kinds:
        kinds[key] = _kind(type(error), grouped, bare)
    kind, base, slots = kinds[key]
    seen = base.__new__(kind, "group", [Exception()]) if grouped else base.__new__(kind)
    seen.args = tuple(each for each in args(error) if type(each) is str)
    seen.__dict__["stands_for"] = error
    set_trace(seen, trace(error))
    for slot in slots:
        with contextlib.suppress(AttributeError, TypeError):  # it is not set, or is for reading
            slot.__set__(seen, slot.__get__(error))
    return seen


def _kind(kind: type[BaseException], grouped: bool, bare: bool) -> Made:
    """The class of what stands for exceptions of this one, the built-in class below it, and the
    fields of that class."""
    base = next(each for each in _mro(kind) if id(each) in _BUILT_IN)
    if grouped:
        base = _GROUP
    elif bare or (_GROUP is not None and issubclass(base, _GROUP)):
        base = Exception
    module = _module(kind)
    names = {
        "__module__": module if type(module) is str else "<unknown>",
        "__qualname__": _qualname(kind),
    }
    said = _name(kind).encode("utf-8", "backslashreplace").decode().replace("\0", "?")
    fields = [each for kind in base.__mro__ for each in vars(kind).values() if not bare]
    slots = [each for each in fields if type(each) is types.MemberDescriptorType]
    return type(said, (_PlainGroup if grouped else _Plain, base), names), base, slots


def shown(error: BaseException, function: Callable[[BaseException], T]) -> T:
    """function() of what stands for an exception, whatever its class or its fields are."""
    try:
        return function(plain(error))
    except BaseException:  # a SyntaxError with odd fields, a hint that asks an object for its names
        return function(plain(error, bare=True))


def _whole(error: BaseException) -> list[str]:
    return traceback.format_exception(type(error), error, error.__traceback__)


def _only(error: BaseException) -> list[str]:
    return traceback.format_exception_only(type(error), error)


def _without_notes(error: BaseException) -> list[str]:
    told = traceback.TracebackException(type(error), error, None, compact=True)
    told.__notes__ = None  # type: ignore[attr-defined]  # since Python 3.11
    return list(told.format_exception_only())


def without_notes(error: BaseException) -> list[str]:
    """The same as only(), but for the notes, which come last."""
    return shown(error, _without_notes)


def lines(error: BaseException) -> list[str]:
    """traceback.format_exception()."""
    return shown(error, _whole)


def only(error: BaseException) -> list[str]:
    """traceback.format_exception_only()."""
    return shown(error, _only)
