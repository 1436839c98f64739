"""Wraps torch's collectives: records which one a rank is in and how many it has completed.

The stall report and the abort use this.
"""

from __future__ import annotations

import functools
import inspect
import sys
from _thread import get_ident  # by name, before a program's gevent puts its own in its place

import _ddip
from ddip_engine import hooks, patches, raised, state
from ddip_engine.groups import flight, revocable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from ddip_engine.patches import Row

# Not every rank makes these calls, so their number says nothing.
_BY_TWO = ("send", "recv", "send_object_list", "recv_object_list", "new_group")
_MAKE = ("new_group", "split_group")
# c10d::OpType, for what Work.wait waits for
_BY_TYPE: dict[int | None, str] = {12: "send", 13: "recv", 14: "recv"}
# What blocks in C++ as a collective does, and what it is called.
_BLOCK = {
    patches.BACKWARD: "backward",
    patches.FORWARD: "forward",
    patches.STORE_GET: "store",
    patches.STORE_WAIT: "store",
}

c10d: Any = None  # torch.distributed.distributed_c10d
api: Any = None  # torch.distributed
_raised = 0  # how many of the default group's collectives have raised in this cell
_is_lost = False  # one of them because a connection is gone
_depth = 0  # of modules' forwards within each other, while these are counted
_outermost = 0  # the id of the module of the first of them, or of the last that was
_interrupts = 0  # that had been raised in cells when it was called
_hooks: tuple[Any, ...] = ()  # that count them


def install(devices_of: Callable[[Any], dict[str, str]]) -> None:
    """Wraps what blocks on other ranks. Torch must have been imported. devices_of: see flight."""
    global api, c10d
    api = sys.modules["torch.distributed"]
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    flight.install(devices_of)
    for name, row in patches.COLLECTIVES.items():
        _count(row, name)
    # `work.wait()` of an asynchronous collective blocks like a collective
    patches.WORK_WAIT.replace(_waited)
    _count_steps()
    for row, name in _BLOCK.items():
        row.replace(functools.partial(_marked, row, name))
    patches.FORWARD.replace(_count_forwards)
    count_modules()


def begin_cell() -> None:
    """Called before each cell."""
    global _raised, _is_lost, _depth
    _raised, _is_lost = 0, False
    _depth = 0


def outcome() -> int:
    """How the default group's collectives have ended in this cell; wire.h has what the bits mean.

    One that raised may have begun, and wait for a rank that never enters it: it would be matched
    with a collective of the next cell. With a connection that is gone no later one works.
    """
    return _ddip.collectives() % (1 << 24) | min(_raised, 63) << 24 | _is_lost << 30


def _note_raised(error: BaseException, is_counted: bool) -> None:
    """A collective of the default group has raised."""
    global _raised, _is_lost
    if raised.is_a(error, Exception):  # an interrupt is known to the daemon
        _raised += is_counted
        _is_lost |= raised.name(error) == "DistBackendError" or (
            raised.is_a(error, RuntimeError) and "gloo/transport" in str(raised.plain(error))
        )


def _count_steps() -> None:
    hook, is_compiling, tick = patches.STEP_HOOK.get(), patches.IS_COMPILING.get(), _ddip.tick
    if hook is None or is_compiling is None:
        return

    def stepped(*_: object) -> None:
        if not is_compiling() and tick(state.OPTIMIZER):  # else a break in the user's graph
            hooks.ticked(state.OPTIMIZER)

    hook(patches.passed_over(stepped))


def _count_forwards(real: Callable[..., Any]) -> Callable[..., Any]:
    tick, grad = _ddip.tick, sys.modules["torch"].is_grad_enabled

    @functools.wraps(real)
    def forward(*args: Any, **kwargs: Any) -> Any:
        is_counted = state.clock != state.FORWARD  # else count_modules() does
        if is_counted and args[0].training and grad() and tick(state.FORWARD):
            hooks.ticked(state.FORWARD)
        return real(*args, **kwargs)

    return forward


def count_modules() -> None:
    """If that is the clock which is set, counts the forwards of all models that are trained: of the
    outermost module that has parameters. That costs each call of a module some time."""
    global _hooks, _depth
    _depth = 0  # no model runs between cells
    before, after = patches.MODULE_BEGINS.get(), patches.MODULE_ENDS.get()
    is_compiling = patches.IS_COMPILING.get()
    wanted = state.clock == state.FORWARD and api is not None and None not in (before, after)
    if wanted == bool(_hooks):
        return
    if not wanted:
        for hook in _hooks:
            hook.remove()
        _hooks = ()
        return
    tick, grad, main = _ddip.tick, sys.modules["torch"].is_grad_enabled, get_ident()

    def begins(module: Any, _: object) -> None:
        global _depth, _outermost, _interrupts
        if is_compiling() or get_ident() != main:
            return
        # an interrupt may have ended it: torch calls no hook then
        doubt = id(module) == _outermost or state.interrupts != _interrupts
        if _depth and doubt and not _is_within(_outermost):
            _depth = 0
        _depth += 1
        if _depth > 1:
            return
        _outermost, _interrupts = id(module), state.interrupts
        if not module.training or not grad():
            return
        if any(p.requires_grad for p in module.parameters()) and tick(state.FORWARD):
            hooks.ticked(state.FORWARD)

    def ends(*_: object) -> None:
        global _depth
        if not is_compiling() and get_ident() == main:
            _depth = max(_depth - 1, 0)

    _hooks = (
        before(patches.passed_over(begins)),
        after(patches.passed_over(ends), always_call=True),
    )


def _is_within(which: int) -> bool:
    """True if a module that is about to run was called by the one with this id, or by what that
    has called."""
    kind = sys.modules["torch"].nn.Module
    frame: FrameType | None
    code, frame, calls = kind.__call__.__code__, sys._getframe(1), 0
    while frame is not None:
        if frame.f_code is code:
            calls += 1  # the first is the call of that module itself
            if calls > 1 and id(frame.f_locals.get("self")) == which:
                return True
        frame = frame.f_back
    return False


def _counted(row: Row, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    within, counts, makes, tick = _ddip.within, name not in _BY_TWO, name in _MAKE, _ddip.tick

    @patches.passed_over
    def called(
        group: Any, is_default: bool | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        call = None
        if group is not None:
            with row:
                call = flight.begin(group, name, args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as e:
            if call:
                flight.failed(call)
            if is_default or not counts:
                _note_raised(e, counts)
            raise
        if makes:
            flight.publish()
        if call:
            with row:
                if is_default:
                    _ddip.collective_done()  # all ranks must make this call
                revocable.used(group)
                flight.end(call)
        return result

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        group = is_default = None
        if counts:
            with row:
                group, is_default = _group_of(args, kwargs)
            if is_default and tick(state.COLLECTIVE):
                hooks.ticked(state.COLLECTIVE)
        return within(name, called, (group, is_default, args, kwargs), {})

    return counted


def _group_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
    """The group that the call is in, None for one without this rank; is it the default one?"""
    member = c10d.GroupMember
    default, kind, group = member.WORLD, c10d.ProcessGroup, kwargs.get("group")
    if group is None:
        group = default
        for each in args:
            if isinstance(each, kind) or each is member.NON_GROUP_MEMBER:
                group = each
    return (group if isinstance(group, kind) else None), group is default


def _kind(work: object) -> str:
    """What to call the wait for it."""
    ask, kind = patches.WORK_TYPE.of(work), None
    if ask is not None:
        with patches.WORK_TYPE:
            kind = ask()
    return _BY_TYPE.get(kind, "wait")


def _waited(real: Callable[..., Any]) -> Callable[..., Any]:
    within = _ddip.within

    @functools.wraps(real)
    def waited(*args: Any, **kwargs: Any) -> Any:
        return within(_kind(args[0]), real, args, kwargs)

    return waited


def _marked(row: Row, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    within = _ddip.within

    @functools.wraps(real)
    def marked(*args: Any, **kwargs: Any) -> Any:
        if c10d.GroupMember.WORLD is None:
            return real(*args, **kwargs)
        try:
            result = within(name, real, args, kwargs)
        except Exception as e:
            if name != "store":
                _note_raised(e, False)
            raise
        with row:
            revocable.used(None)
        return result

    return marked


def _count(row: Row, name: str) -> None:
    """Counts a collective. If torch's own decorator wraps it, replaces the inner function, so that
    the one that others have imported, and that torch.compile knows, stays the same object."""
    public = row.get()
    with row:
        names = public.__code__.co_freevars if inspect.isfunction(public) else ()
        inner = public.__closure__[names.index("func")] if "func" in names else None
        if inner is not None and inspect.isfunction(inner.cell_contents):
            counted = _counted(row, inner.cell_contents, name)
            inner.cell_contents = patches.passed_over(counted)
            return
    row.replace(lambda real: _counted(row, real, name), api)
