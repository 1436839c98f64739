"""A rank: the table of messages for the main thread, and how each thread answers a message.

The main thread handles one message at a time, in order; the service threads (service.py) answer
even while a cell runs.
"""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import functools
import gc
import os
import random
import sys
import threading
import time
import warnings
from errno import EINTR, EIO, ENOSYS

import _ddip
from ddip_engine import facts, hooks, interface, patches, raised, service, state
from ddip_engine.cells import cell as cells
from ddip_engine.cells import ddip_module, libraries, run, shell, steer, streams
from ddip_engine.data import clone_load, frames, gpu, gpu_lost, table, values
from ddip_engine.data.view import Incoming, one_line
from ddip_engine.groups import collectives, dist, flight, repair, selftest
from ddip_engine.state import Cancelled, EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn

    Message = tuple[Any, ...]  # its type, its tag, its descriptor or -1, its fields
    Rows = Mapping[str, tuple[Callable[..., Any], str | None]]
    Answer = tuple[Any, ...] | service.WithDescriptor

_path_is_open = False  # user code has run, or objects were pushed
_FIXED_THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


def main(env: dict[str, str], phases: str) -> NoReturn:
    """Runs a rank until the agent ends it. env: variables that replace those of the zygote."""
    _become(env)
    hooks.ticked = steer.ticked
    if shell.available():
        hooks.inspect_name = shell.inspect_name
    streams.install()
    run.install()
    libraries.install()
    ddip_module.install()
    frames.install()
    faulthandler.enable(2)
    faulthandler.register(_ddip.stack_signal(), _ddip.stack_fd(), all_threads=True)
    _ddip.stack_begin(flight.describe)
    _ddip.notify("Nstarted", state.pid, 0, phases, facts.lines())
    patches.tell_to(functools.partial(_ddip.notify, "Npatch"), state.pid)
    service.start(_answer)
    _thread.start_new_thread(_rescue, ())
    while not _serve():
        pass
    _end()


def _serve() -> bool:
    """Answers messages until the end; True then. False after a signal handler that user code has
    left raised here: between cells, nothing that it raises but SystemExit ends the rank."""
    message, sent = None, _ddip.replies()
    try:
        for message in iter(_ddip.next, None):
            _answer(_MAIN, message, _call_main)
            message = None
            sent = _ddip.replies()
            gpu_lost.leave_if_lost()
            dist.idle()
        return True
    except SystemExit:
        raise
    except BaseException as e:
        kind, tag, *_ = message or ("between cells", 0)
        with contextlib.suppress(Exception):  # nothing can be shown: sys.__stderr__ is closed
            _fail(tag if _ddip.replies() == sent else 0, kind, e)
        return False


def _rescue() -> None:
    """Ends NCCL collectives, for which the other threads may be waiting."""
    while (message := _ddip.rescue()) is not None:
        _answer(_RESCUE, message)
        del message


def _call(tag: int, function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _call_main(tag: int, function: Callable[..., Any], *args: Any) -> Any:
    """Functions that can be cancelled get their tag as well."""
    try:
        return function(tag, *args) if function in _CANCELLABLE else function(*args)
    finally:
        _ddip.forget(tag)


def _answer(rows: Rows, message: Message, call: Callable[..., Any] = _call) -> None:
    """Calls the message's function and sends its result, or the reason why it failed."""
    kind, tag, fd, *fields = message
    sent = _ddip.replies()
    try:
        if kind not in rows:
            raise EngineError(ENOSYS, f"this engine does not know {kind}")
        function, reply = rows[kind]
        answer = call(tag, function, fd, *fields)
        if reply is not None:
            _send(reply, tag, answer)
    except EngineError as e:
        _ddip.error(tag, e.errno, cells.bound(str(e)), cells.bound_traceback(e.trace))
    except Cancelled:
        _ddip.error(tag, EINTR, "cancelled: no longer wanted")
    except BaseException as e:  # the rank survives any failure, and reports it
        if _ddip.replies() != sent:
            raise  # a signal handler of the user's has raised just after the answer
        _fail(tag, kind, e)
    finally:
        if fd >= 0:
            os.close(fd)


def _fail(tag: int, kind: str, error: BaseException) -> None:
    text = cells.bound("".join(raised.only(error)).strip())
    trace = cells.bound_traceback("".join(raised.lines(error)))
    if tag:
        _ddip.error(tag, EIO, f"{kind}: {text}", trace)
    else:
        sys.__stderr__.write(  # type: ignore[union-attr]  # descriptor 2 is there
            f"ddip: {kind} on rank {state.rank}: {trace}"
        )


def _send(reply: str, tag: int, answer: Answer) -> None:
    """answer: the reply's fields, as a WithDescriptor if a descriptor goes with them."""
    if isinstance(answer, service.WithDescriptor):
        try:
            _ddip.reply_fd(reply, tag, answer.fd, *answer.fields)
        finally:
            os.close(answer.fd)
        return
    _ddip.reply(reply, tag, *answer)


# ---- becoming a rank


def _become(env: dict[str, str]) -> None:
    """Turns a fork of the zygote into what a fresh process would be."""
    state.pid = os.getpid()
    for name in _FIXED_THREADS:
        if name not in env:
            os.environ.pop(name, None)
    os.environ.update(env)
    state.engine_env.update((k, v) for k, v in env.items() if k not in _FIXED_THREADS)
    state.default_env["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _set_backend_of_figures()
    # Newer Pythons warn when a process with threads forks; the engine's are no fault of a program.
    warnings.filterwarnings("ignore", r".*use of fork\(\) may lead", DeprecationWarning)
    random.seed()
    if sys.modules.get("numpy") is not None:
        sys.modules["numpy"].random.seed()
    if (generator := patches.GENERATOR.get()) is not None:
        generator.seed()  # from the system's entropy
    if (set_threads := patches.SET_THREADS.get()) is not None:
        threads = os.environ["OMP_NUM_THREADS"].partition(",")[0]
        set_threads(int(threads) if threads.isdigit() and int(threads) else 1)


def _set_backend_of_figures() -> None:
    """Makes figures appear inline; a preload of the user's may have imported matplotlib already."""
    chosen = os.environ.get("MPLBACKEND")
    backend = chosen or ("module://matplotlib_inline.backend_inline" if _has_inline() else "Agg")
    os.environ["MPLBACKEND"] = backend
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is not None and not chosen:
        matplotlib.rcParams["backend"] = backend


def _has_inline() -> bool:
    """True if figures can be sent as images: IPython and matplotlib_inline are installed."""
    if not shell.available():
        return False
    from importlib.util import find_spec

    return find_spec("matplotlib_inline") is not None


def _end() -> NoReturn:
    """Runs registered exit functions, drops the user's names (which flushes files), and exits.

    The interpreter's own shutdown would destroy process groups, whose threads may be stuck.
    """
    patches.END_THREADS.get(_join_threads)()
    patches.EXIT_FUNCTIONS.get(lambda: None)()
    for name in [name for name in state.main.__dict__ if not name.startswith("__")]:
        state.main.__dict__.pop(name, None)
    streams.flush()
    os._exit(0)


def _join_threads() -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            thread.join()


# ---- main thread


def _init(
    fd: int, rank: int, size: int, local: int, generation: int, backend: str, env: bytes
) -> tuple[str, bytes]:
    started = time.monotonic()
    given = _items(env)
    state.rank, state.size, state.local_rank = rank, size, local
    state.local_size = int(given.get("LOCAL_WORLD_SIZE", size))
    state.external = given.pop("DDIP_EXTERNAL", "")
    store = _store(given)
    state.host = given.pop("DDIP_HOST", "")
    state.fixed_cwd = given.pop("DDIP_CWD", "")
    settings = given.pop("DDIP_SETTINGS", "").splitlines()
    state.settings_env = dict(line.split("=", 1) for line in settings)
    dist.new_generation(generation)
    launched = _launch_environment(given)
    state.engine_env.update(launched)
    os.environ.update(launched)
    main = state.main.__dict__
    state.first_names.update((k, v) for k, v in main.items() if k.startswith("__"))
    state.name_numbers()
    _ddip.title(f"ddip: rank {rank} of {size}, {os.environ.get('DDIP_GROUP', '')}")
    port = int(os.environ.get("MASTER_PORT") or 0)
    dist.start(backend, os.environ.get("MASTER_ADDR", ""), port, store)
    elapsed_ms = (time.monotonic() - started) * 1000
    return f"process_group_ms {elapsed_ms:.1f}\n", table.text()


def _items(env: bytes) -> dict[str, str]:
    return dict(item.split("=", 1) for item in env.decode().split("\0") if item)


def _store(given: dict[str, str]) -> str:
    """Removes DDIP_STORE from the environment. Returns the path of the store's socket, or ""."""
    name = given.pop("DDIP_STORE", "")
    return name and state.run_path(name)


def _take_place(env: bytes) -> bool:
    """Applies a new environment: the group may have moved to other hosts, and so may its store.
    Returns True if all ranks are the same processes as before."""
    given = _items(env)
    store = _store(given)
    given.pop("DDIP_PEER", "")
    whole = bool(given.pop("DDIP_WHOLE", ""))
    changed = {name: v for name, v in given.items() if state.engine_env.get(name) != v}
    state.engine_env.update(changed)
    os.environ.update(changed)
    state.local_size = int(given.get("LOCAL_WORLD_SIZE", state.local_size))
    if given:
        dist.move(given["MASTER_ADDR"], int(given["MASTER_PORT"]), store)
    return whole


def _launch_environment(given: dict[str, str]) -> dict[str, str]:
    """The variables that torchrun sets; the daemon's own values take precedence."""
    defaults = {
        "RANK": state.rank,
        "LOCAL_RANK": state.local_rank,
        "WORLD_SIZE": state.size,
        "LOCAL_WORLD_SIZE": state.local_size,
        "GROUP_RANK": state.rank // state.local_size,
        "GROUP_WORLD_SIZE": -(-state.size // state.local_size),
        "ROLE_RANK": state.rank,
        "ROLE_WORLD_SIZE": state.size,
        "ROLE_NAME": "default",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "ddip",
        "TORCHELASTIC_ERROR_FILE": state.run_path(f"rank{state.rank}.error.json"),
    }
    # On its own, torch would end a process whose collective hangs or whose CUDA context is lost;
    # the engine aborts the collective, and reports why it ends a process without a context.
    # The last two: after an error of NCCL, its watchdog would wait for a minute, with a lock that
    # each collective needs, for reports that all ranks write; and they ask the store for it.
    name: str | None
    for name in (
        "ASYNC_ERROR_HANDLING",
        "ENABLE_MONITORING",
        "RETHROW_CUDA_ERRORS",
        "DUMP_ON_TIMEOUT",
        "WAIT_TIMEOUT_DUMP_MILSEC",
    ):
        name = f"TORCH_NCCL_{name}"
        defaults[name] = os.environ.get(name, 0)
    peers = [given.get("MASTER_ADDR", ""), given.pop("DDIP_PEER", "")]
    alone = peers[0].startswith("127.")
    if "GLOO_SOCKET_IFNAME" not in os.environ:
        name = "lo" if alone else peers[0] and interface.towards(peers)
        if name:
            defaults["GLOO_SOCKET_IFNAME"] = name
    if alone and "NCCL_SOCKET_IFNAME" not in os.environ:
        defaults["NCCL_SOCKET_IFNAME"] = "lo"  # on its own, NCCL listens on the network
    return {name: str(value) for name, value in defaults.items()} | given


def _run(fd: int, cell: int, generation: int, source: bytes) -> tuple[Any, ...]:
    if generation != state.generation:
        dist.new_generation(generation)
    state.cell = cell
    _open_path()
    dist.begin_cell()
    try:
        ended = run.execute(cell, source)
    finally:
        steer.cell_ended(cell)
        gpu.mark()
    return (*ended, collectives.outcome())


def _open_path() -> None:
    """Lets user code import from the current directory; the engine itself never does."""
    global _path_is_open
    if not _path_is_open and "" not in sys.path:
        sys.path.insert(0, "")
    _path_is_open = True


def _set_autogc(fd: int, on: int) -> None:
    state.autogc = bool(on)


def _set_clock(fd: int, clock: int) -> None:
    state.clock = None if clock == state.ANY else clock
    collectives.count_modules()


def _put(tag: int, fd: int, name: str, view: str, op: str, size: int) -> tuple[()]:
    _open_path()
    try:
        values.put(name, view, op, fd, size, functools.partial(service.cancellable, tag))
    except Cancelled:
        raise EngineError(EINTR, f"{name}: interrupted before the object was made") from None
    finally:
        gpu.mark()  # loading a state dict, or undoing that, runs kernels
    return ()


def _drop(tag: int, objects: list[Any]) -> None:
    """Empties this list. An interrupt ends what the objects' own code does meanwhile."""
    with contextlib.suppress(Cancelled):
        service.cancellable(tag, objects.clear)


def _commit(tag: int, fd: int, keep: int) -> tuple[bytes]:
    _drop(tag, values.commit(keep))
    gpu.mark()
    return (table.text(),)


def _delete(tag: int, fd: int, name: str) -> tuple[bytes]:
    _drop(tag, [values.delete(name)])
    return (table.text(False),)


def _move(fd: int, old: str, new: str) -> tuple[()]:
    values.move(old, new)
    return ()


def _reset(tag: int, fd: int) -> tuple[bytes]:
    """Empties the namespace; the process, its modules and its process group stay."""
    names = state.main.__dict__
    users = [k for k in names if k not in state.first_names and k not in state.engine_names]
    _drop(tag, [names.pop(name) for name in users])
    run.drop_last()
    names.update(state.first_names)
    names.update(state.engine_names)
    shell.reset()
    table.clear()
    state.name_numbers()
    with contextlib.suppress(Cancelled):
        service.cancellable(tag, gc.collect)
    return (table.text(),)


def _clone(tag: int, fd: int, size: int) -> tuple[bytes, bytes, int, bool]:
    """Takes over another rank's namespace."""
    _open_path()
    try:
        call = functools.partial(service.cancellable, tag)
        count, failures, wrapped, old = clone_load.load(Incoming(fd, size).data(), call)
    except Cancelled:
        raise EngineError(EINTR, "interrupted before anything was copied") from None
    finally:
        gpu.mark()
    _drop(tag, old)
    told = "".join(f"{one_line(f'{name}: {why}')}\n" for name, why in failures)
    return table.text(), told.encode("utf-8", "backslashreplace"), count, wrapped


def _rebuild(fd: int, generation: int, env: bytes) -> tuple[str]:
    whole = _take_place(env)
    return (repair.rebuild(generation, whole),)


def _selftest(fd: int, number: int, sizes: str) -> tuple[bytes, int, int]:
    before = _ddip.collectives()
    lines, wrong = selftest.run_all(sizes, functools.partial(run.interruptible, number))
    return lines.encode(), wrong, _ddip.collectives() - before


def _abort(fd: int, what: int, ms: int) -> None:
    dist.abort()


# message -> (function of the descriptor and the fields, its reply; None for a notice)
_MAIN: Rows = {
    "Tinit": (_init, "Rinit"),
    "Trun": (_run, "Rrun"),
    "Tput": (_put, "Rput"),
    "Tcommit": (_commit, "Rcommit"),
    "Tdel": (_delete, "Rdel"),
    "Tmove": (_move, "Rmove"),
    "Treset": (_reset, "Rreset"),
    "Tclone": (_clone, "Rclone"),
    "Trebuild": (_rebuild, "Rrebuild"),
    "Tselftest": (_selftest, "Rselftest"),
    "Nautogc": (_set_autogc, None),
    "Nclock": (_set_clock, None),
}
_CANCELLABLE: tuple[Callable[..., Any], ...] = (_put, _commit, _delete, _reset, _clone)
_RESCUE: Rows = {"Nabort": (_abort, None)}
