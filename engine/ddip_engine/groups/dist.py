"""The default process group: the engine's own, with init_process_group() and
destroy_process_group() in user code behaving as under torchrun.

install() patches torch in the zygote, before anything imports from it. rendezvous.py determines
where ranks meet, collectives.py counts their collectives, and repair.py repairs the objects that
hold a dead group.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import os
import signal
import sys
import time
from datetime import timedelta
from errno import EIO, EOPNOTSUPP

import _ddip
from ddip_engine import known_bad, patches, state
from ddip_engine.data import gpu
from ddip_engine.groups import collectives, communicator, flight, rendezvous, renewal, revocable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_IDLE_S = 0.25  # this long after a group's destruction its threads are idle
_TIMEOUT = timedelta(minutes=30)  # what torch documents for all backends but NCCL
_AGAIN = f"{sys.executable} -m pip install --force-reinstall torch installs it again"
# A program may block these and wait for them by sigwait(): neither faults, which are of one thread,
# nor interrupts, nor what is the engine's.
_WAITED_FOR = set(range(1, signal.SIGRTMIN)) & signal.valid_signals() - {
    signal.SIGINT, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV,
    signal.SIGSYS, signal.SIGTRAP,
}  # fmt: skip
_RETIRED_MAX = 32  # each keeps threads and sockets
# Torch's tables of its groups, in `_world`.
_TABLES = (
    "pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag", "tags_to_pg",
    "pg_coalesce_state",
)  # fmt: skip

api: Any = None  # torch.distributed; None: no torch, or torch without it
c10d: Any = None  # torch.distributed.distributed_c10d
_real_init: Any = None
_real_destroy: Any = None
_backend = "none"  # of the engine's group, as the daemon requested it
# the cell in which user code adopted or made the default group; None: not yet
_adopted_in: int | None = None
_custom_group = False  # made from arguments that no later call can be compared with
_hidden: dict[str, Any] | None = None  # what hide_default() removed; None: nothing
# (time, destroyed group): its threads may still want the GIL
_retired_groups: collections.deque[tuple[float, Any]] = collections.deque()
_accelerate_stale = False
_versions_told = False


def install() -> str:
    """Replaces torch's rendezvous and wraps what user code calls; does nothing without torch.

    Returns lines for `status`: whether gloo's writes to a dead peer and its listeners are guarded.
    """
    global api, c10d, _real_init, _real_destroy
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None:
        return ""
    names = ("init_process_group", "destroy_process_group")
    api, c10d = sys.modules["torch.distributed"], module
    _real_init, _real_destroy = (getattr(api, n, None) or getattr(c10d, n) for n in names)
    patches.INIT.replace(lambda real: functools.wraps(real)(_init_process_group), api)
    patches.DESTROY.replace(lambda real: functools.wraps(real)(_destroy_process_group), api)
    rendezvous.install()
    revocable.install(c10d, _nccl_groups)
    collectives.install(devices_of)
    os.register_at_fork(after_in_child=_in_child)
    mended = _ddip.mend_gloo()
    return f"gloo_send_guard {mended & 1}\ngloo_accept_guard {mended >> 1}\n"


@contextlib.contextmanager
def _hook_kept() -> Iterator[None]:
    """Each init wraps sys.excepthook again: undoes that, as the rank reports exceptions itself."""
    hook = sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = hook


@patches.passed_over
def _begin(*args: Any, **kwargs: Any) -> None:
    """Torch's own init. One that failed half way has left its group's name in tables, so that the
    next one would refuse it, and has counted it: the names of keys, which contain the count, would
    not be those of the other ranks.
    """
    if c10d.GroupMember.WORLD is None and (world := patches.WORLD.get()) is not None:
        world.group_count = 0
        with patches.WORLD:
            if any(_tables().values()):
                _retired_groups.extend((time.monotonic(), group) for group in groups())
                _forget_groups()
        flight.forget()
    if not rendezvous.has_handlers() and (asked := _asked(args, kwargs)):
        asked["timeout"] = asked["timeout"] or _default_timeout(asked["backend"])
        args, kwargs = (), rendezvous.with_store(asked)
    with _hook_kept():
        _real_init(*args, **kwargs)


def _init_process_group(*args: Any, **kwargs: Any) -> Any:
    """Adopts the existing group if the call asks for nothing else, otherwise replaces it.

    A cell can adopt a group only once: a second call in the same cell gets torch's own error.
    """
    if os.getpid() != state.pid:
        return _real_init(*args, **kwargs)
    try:
        return _ddip.within("init_process_group", _adopt_or_replace, args, kwargs)
    finally:
        flight.publish()


@patches.passed_over
def _adopt_or_replace(*args: Any, **kwargs: Any) -> None:
    global _adopted_in, _custom_group
    asked, adopts = None, False
    with patches.INIT:
        unhide_default(_hidden)
        asked = _asked(args, kwargs)
        adopts = bool(asked) and _may_adopt() and _compatible(asked)
        if adopts:
            _adopt(asked)
    if adopts:
        return
    if asked != {} and _may_adopt():
        _destroy_process_group()
    _begin(*args, **kwargs)
    _adopted_in = state.cell
    _custom_group = _is_special(asked or {})


def _may_adopt() -> bool:
    return c10d.GroupMember.WORLD is not None and _adopted_in != state.cell


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the call by name; none if it is not a valid one, as torch will say."""
    try:
        call = inspect.signature(_real_init).bind(*args, **kwargs)
    except TypeError:
        return {}
    call.apply_defaults()
    return call.arguments


def _is_special(asked: dict[str, Any]) -> bool:
    """True if the call has arguments that need a separate group: a store, an address, options, or
    with gloo a timeout, which its send and recv have for good."""
    method, timeout = asked.get("init_method"), asked.get("timeout")
    own = timeout is not None and timeout != _default_timeout(None)
    return (
        (own and "gloo" in _devices(asked.get("backend")).values())
        or asked.get("store") is not None
        or asked.get("pg_options") is not None
        or asked.get("device_id") is not None
        or bool(asked.get("_ranks"))
        or not (method is None or method.startswith("env://"))
    )


def _compatible(asked: dict[str, Any]) -> bool:
    """True if the existing default group is what the call asks for."""
    if _custom_group or _is_special(asked):
        return False
    rank: Any  # a number, or its text
    size: Any
    try:
        _, rank, size = rendezvous.numbers(asked.get("init_method") or "env://")
    except ValueError:  # torch will say what is wrong with it
        return False
    rank = rank if rank is not None else os.environ.get("RANK", state.rank)
    size = size if size is not None else os.environ.get("WORLD_SIZE", state.size)
    if asked.get("rank", -1) != -1:
        rank = asked["rank"]
    if asked.get("world_size", -1) != -1:
        size = asked["world_size"]
    world = c10d.GroupMember.WORLD
    if (int(rank), int(size)) != (world.rank(), world.size()):
        return False
    return _devices(asked.get("backend")) == devices_of(world)


def _devices(backend: str | None) -> dict[str, str]:
    """Maps devices to backends; backend names alone cannot be compared ("undefined")."""
    config = c10d.BackendConfig(c10d.Backend(backend or "undefined"))
    return dict(config.get_device_backend_map())


def devices_of(group: Any) -> dict[str, str]:
    """Maps devices to the backends that serve them in this group."""
    config = patches.BACKEND_CONFIG.get()
    return _devices(group.name() if config is None else config(group))


def groups() -> list[Any]:
    """All process groups of torch, in the order of their creation."""
    world = c10d.GroupMember.WORLD
    return list(patches.PG_MAP.get([] if world is None else [world]))


def _nccl_groups() -> list[Any]:
    return [group for group in groups() if "nccl" in devices_of(group).values()]


def has_own_nccl() -> bool:
    """True if NCCL serves the group without torch, through the engine's own communicator."""
    return c10d is None and _backend == "nccl"


def uses_nccl() -> bool:
    """True if NCCL serves the group, with or without torch; each rank then has a GPU."""
    if c10d is None or c10d.GroupMember.WORLD is None:
        return has_own_nccl()
    return device_of_default() == ("cuda", "nccl")


def device_of_default() -> tuple[str, str]:
    """("cuda" or "cpu", backend) that the default group uses; the GPU if it has both."""
    devices = devices_of(c10d.GroupMember.WORLD)
    if devices.get("cuda") == "nccl" and gpu.has_cuda():
        return "cuda", "nccl"
    return "cpu", devices.get("cpu", "gloo")


def _adopt(asked: dict[str, Any]) -> None:
    global _adopted_in
    world = c10d.GroupMember.WORLD
    timeout = asked.get("timeout")
    if timeout is None:
        name = patches.BACKEND_NAME.get()
        timeout = _default_timeout(name and name(world))
    _set_timeout(timeout, world)
    _adopted_in = state.cell


def _default_timeout(backend: str | None) -> timedelta:
    of_nccl = patches.NCCL_TIMEOUT.get() if backend == "nccl" else None
    return of_nccl or patches.TIMEOUT.get(_TIMEOUT)


def _set_timeout(timeout: timedelta, group: Any) -> None:
    official = getattr(api, "set_timeout", None)  # from torch 2.14 on
    with patches.SET_TIMEOUT:
        if official is not None:
            patches.quietly(official, timeout, group)
        else:
            patches.SET_TIMEOUT.call(timeout, group)


def _destroy_process_group(group: Any = None) -> Any:
    """Keeps the destroyed objects alive: their destructor joins threads that may want the GIL."""
    global _adopted_in, _custom_group, _accelerate_stale
    if os.getpid() != state.pid:
        return _real_destroy(group)
    whole = True
    with patches.DESTROY:
        whole = group is None or group == c10d.GroupMember.WORLD
        now = time.monotonic()
        _retired_groups.extend((now, pg) for pg in groups() if whole or pg == group)
    with revocable.claimed():
        _real_destroy(group)
    if whole:
        _adopted_in, _custom_group, _accelerate_stale = None, False, True
    return None


def start(backend: str, address: str, port: int, path: str) -> None:
    """Makes the default group of a new rank; backend "none": only what a later user init needs."""
    global _backend
    _backend = backend
    rendezvous.start(address, port, path)
    if c10d is None and backend not in ("none", "nccl"):
        text = f"backend {backend}: {sys.executable} has no torch.distributed; install torch there"
        if state.torch_error:
            text = f"backend {backend}: {sys.executable} cannot import torch ({state.torch_error})"
            text += f"; {_AGAIN}"
        raise state.EngineError(EOPNOTSUPP, f"{text}, or say backend none")
    version = patches.VERSION.get()
    if backend != "none" and version is not None and (old := known_bad.too_old(version)):
        text = f"{old}; {sys.executable} -m pip install -U torch brings it, or say backend none"
        raise state.EngineError(EOPNOTSUPP, text)
    if "torch" in sys.modules and gpu.has_cuda():
        if (choose := patches.SET_DEVICE.get()) is not None:
            choose(gpu.own_device())
    elif "torch" in sys.modules:
        # Accelerate joins a group on the CPU only if this is set, as its own launcher does
        state.default_env["ACCELERATE_USE_CPU"] = "true"
        os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    flight.keep_few()
    try:
        make_default()
    except (AttributeError, ImportError, NameError, TypeError) as e:  # torch lacks something
        text = f"torch {version or '?'} cannot make the process group ({type(e).__name__}: {e})"
        text += f"; {_AGAIN}, or say backend none"
        raise state.EngineError(EOPNOTSUPP, text) from e


def move(address: str, port: int, path: str) -> None:
    """The store is now at this address. C++ may still hold clients of one at the old address."""
    if rendezvous.is_at(address, port, path):
        return
    now = time.monotonic()
    _retired_groups.extend((now, client) for client in rendezvous.drop_clients())
    rendezvous.start(address, port, path)


@contextlib.contextmanager
def _threads_apart() -> Iterator[None]:
    """No thread that begins within takes a signal which a program later blocks in its own threads:
    under torchrun it begins without those of a process group."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)  # may raise once it has
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@_threads_apart()
def make_default() -> None:
    """Makes the engine's default group, if it should have one; waits for the other ranks.

    With external ranks, which may join at any time, a cell's first init_process_group() makes it.
    """
    global _adopted_in, _custom_group
    if state.external:
        rendezvous.forget_external()
        return
    if _backend == "none" or c10d is None:
        return
    _begin(_backend, "env://", rank=state.rank, world_size=state.size)
    _adopted_in, _custom_group = None, False
    if uses_nccl() and state.size > 1:
        _connect()


def renew_or_make(whole: bool) -> list[Any]:
    """Gives the ranks a default group that works, after an abort. whole: all ranks were there
    before. Returns the groups that stay, in the same objects; without any, it is a new one."""
    global _adopted_in
    renewed = []
    if whole and not state.external and _backend != "none":
        world = c10d.GroupMember.WORLD
        may = world is not None and not _custom_group and world.size() == state.size
        with _threads_apart():
            renewed = renewal.renew(c10d, devices_of, may)
    if renewed:
        _adopted_in = None
        patches.note_way("rebuild", "ProcessGroup.reconfigure")
        return renewed
    drop_default()
    make_default()
    reset_accelerate()
    if c10d.GroupMember.WORLD is not None:
        patches.note_way("rebuild", "init_process_group")
    return []


def _connect() -> None:
    """Makes torch's NCCL communicator, which torch would make in the first collective.

    A rank that makes one waits for all others, and cannot be freed. In a cell, a rank that failed
    before its first collective would leave them waiting. Never run on a GPU.
    """
    _tell_known_bad()
    try:
        one = sys.modules["torch"].ones(1, device="cuda")
        c10d.all_reduce(one)
        total = one.item()
    except RuntimeError as e:  # torch's DistBackendError is one
        text = f"NCCL does not connect the ranks ({e}); `backend gloo` works without it"
        raise state.EngineError(EIO, text) from e
    if total != state.size:
        text = f"NCCL is wrong: the sum of ones over {state.size} ranks is {total:g}"
        raise state.EngineError(EIO, f"{text}; `backend gloo` works without it")


def _tell_known_bad() -> None:
    """Reports versions that are known to fail with NCCL, once: a group has one set of them."""
    global _versions_told
    ask, build = patches.NCCL_VERSION.get(), sys.modules["torch"].version
    if _versions_told or state.rank or ask is None or getattr(build, "hip", None):
        return
    _versions_told = True
    for name, version in (("torch", patches.VERSION.get("")), ("NCCL", ask())):
        if why := known_bad.about(name, version):
            _ddip.notify("Nknownbad", why)


def begin_cell() -> None:
    """Called before each cell, once state has its number."""
    rendezvous.begin_cell()
    flight.begin_cell()
    collectives.begin_cell()
    if _accelerate_stale:
        reset_accelerate()
    if len(_retired_groups) > _RETIRED_MAX:
        # A loop of init and destroy: gives the oldest threads the time that idle() would.
        time.sleep(max(0.0, _retired_groups[0][0] + _IDLE_S - time.monotonic()))
        idle()


def new_generation(generation: int) -> None:
    """Begins a generation, in which no key of an older one is seen again."""
    state.generation = generation
    communicator.new_generation()
    state.cell = 0  # the last cell may have run on some ranks only: the keys must agree
    rendezvous.begin_cell()


def drop_default() -> bool:
    """Destroys the default group, whoever made it. Returns False if there is none.

    What holds a group of new_group() must learn that it is gone: none may go on working because
    all of its ranks happen to live.
    """
    if c10d is None or c10d.GroupMember.WORLD is None:
        return False
    abort()
    _ddip.disconnect()
    _destroy_process_group()
    return True


def abort() -> None:
    """Frees a rank from NCCL collectives. Gloo has no call for that: C shuts down its sockets. C
    also ends NCCL's collectives if Python does not get here: see revocable.py.

    A group of one rank waits for no other, and no new group would be made for it.
    """
    world = c10d.GroupMember.WORLD if c10d is not None else None
    if world is None or world.size() == 1:
        return
    backends = revocable.backends()
    if not backends:
        return
    with revocable.claimed():
        # As one group of NCCL calls, like torch's own _abort_process_group. If torch aborts in a
        # thread of its own, to which that group does not apply, nothing depends on it.
        begin, end = (row.of(backends[0]) for row in (patches.GROUP_START, patches.GROUP_END))
        together = begin is not None and end is not None
        if together:
            begin()
        failures = [each for each in map(_abort, reversed(backends)) if each is not None]
        if together:
            end()
    if failures:
        raise failures[0]


def _abort(backend: Any) -> Exception | None:
    """Returns what the abort raises, or None, so that the others are aborted all the same."""
    try:
        backend.abort()
    except Exception as e:
        return e
    return None


def reset_accelerate() -> None:
    """Resets Accelerate's shared state, which outlives the group that it was made with."""
    global _accelerate_stale
    _accelerate_stale = False
    patches.ACCELERATE.call(True)  # the state of its processes, too


def idle() -> None:
    """Releases destroyed groups whose threads are idle. Called between messages."""
    now = time.monotonic()
    if not _retired_groups or now - _retired_groups[0][0] < _IDLE_S or _loops_busy():
        return
    while _retired_groups and now - _retired_groups[0][0] >= _IDLE_S:
        _retired_groups.popleft()


def _loops_busy() -> bool:
    """True if a worker thread of gloo is running: it may want the GIL soon."""
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/stat", encoding="utf-8", errors="replace") as f:
                name, _, rest = f.read().partition("(")[2].rpartition(")")
            if name.startswith("pt_gloo") and rest.split()[0] != "S":
                return True
    except OSError:  # a thread has just exited, or there are no descriptors: asks again later
        return True
    return False


def _in_child() -> None:
    """A forked child must not use its parent's sockets; it keeps only a group of the user's."""
    # not destroyed: a thread of the parent may hold their locks
    _retired_groups.extend((0.0, client) for client in rendezvous.drop_clients())
    if _adopted_in is None and c10d.GroupMember.WORLD is not None:
        _retired_groups.extend((0.0, pg) for pg in groups())
        with patches.WORLD:
            _forget_groups()


def _tables() -> dict[str, Any]:
    """Torch's tables of its groups by name, empty if they cannot be hidden."""
    world = patches.WORLD.get()
    rows = (patches.UPDATE_DEFAULT, patches.UNREGISTER, patches.REGISTER)
    if world is None or any(row.get() is None for row in rows):
        return {}
    found = {name: getattr(world, name, None) for name in _TABLES}
    return {name: table for name, table in found.items() if table is not None}


def _forget_groups() -> None:
    """Makes torch forget all groups; the objects live on while something refers to them."""
    if not (tables := _tables()):
        return
    patches.UPDATE_DEFAULT.get()(None)
    patches.UNREGISTER.get()()
    for table in tables.values():
        table.clear()
    patches.WORLD.get().group_count = 0


def hide_default() -> dict[str, Any] | None:
    """A program finds no process group, as in a new process, until it calls init_process_group().

    Returns the argument for unhide_default(), or None if there is no group.
    """
    global _hidden
    if c10d is None or (default := c10d.GroupMember.WORLD) is None or not (tables := _tables()):
        return None
    with patches.WORLD:
        count = patches.WORLD.get().group_count
        _hidden = {name: dict(table) for name, table in tables.items()}
        _hidden.update(default=default, count=count)
        _forget_groups()
    return _hidden


def unhide_default(hidden: dict[str, Any] | None) -> None:
    """Restores the hidden groups if they are still hidden and no other default group was made."""
    global _hidden
    if hidden is None or hidden is not _hidden:
        return
    _hidden = None
    if c10d.GroupMember.WORLD is not None:
        _retired_groups.extend((time.monotonic(), pg) for pg in hidden["pg_map"])
        return
    for name, table in _tables().items():
        table.update(hidden[name])
    patches.WORLD.get().group_count = hidden["count"]
    for pg, name in hidden["pg_names"].items():
        patches.REGISTER.get()(name, pg)
    patches.UPDATE_DEFAULT.get()(hidden["default"])
