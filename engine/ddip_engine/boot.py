"""The start of every engine process: the zygote that imports and forks, the cold rank, the store.

Imports are timed; one that fails is reported, and the process does without that module.
"""

from __future__ import annotations

import _thread
import errno
import gc
import importlib
import os
import site
import socket
import sys
import time

import _ddip
from ddip_engine import patches, state
from ddip_engine.groups import rendezvous, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Any, NoReturn

_RANK, _STORE, _SUCCESSOR = range(3)  # what _ddip.zygote() returns in a forked child

# Lets torch.cuda.is_available() ask NVML. In the zygote it must not start CUDA, which would not
# survive the fork. In a rank it must: NVML also answers where CUDA cannot start.
_NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"

# What a first start waits for: (module, name of its phase).
_FIRST = (
    ("torch", "import_torch_ms"),
    ("torch.distributed", "import_distributed_ms"),
    ("numpy", "import_numpy_ms"),
    ("IPython.core.interactiveshell", "import_ipython_ms"),
)
# What the first DistributedDataParallel() of a process imports, and what most programs import.
_LATER = (
    ("torch.nn.parallel.distributed", "import_ddp_ms"),
    ("torch._dynamo", "import_dynamo_ms"),
    ("torch.optim", "import_optim_ms"),
    ("torch.utils.data", "import_data_ms"),
    ("cloudpickle", "import_cloudpickle_ms"),
)


def _why(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or ['no text'])[0]}"


class _Phases:
    """Lines that report what was done and how long it took, for `status`."""

    def __init__(self) -> None:
        self.text = ""

    def measure(self, name: str, function: Callable[..., object], *args: object) -> str:
        """Calls the function. Returns "", or why it failed, which becomes a line, not fatal."""
        started = time.monotonic()
        try:
            function(*args)
        except (Exception, SystemExit) as e:  # a package may raise anything while it is imported
            why = _why(e)
            self.text += f"{name.removesuffix('_ms')}_error {why}\n"
            return why
        self.text += f"{name} {(time.monotonic() - started) * 1000:.0f}\n"
        return ""


def main(role: str) -> None:
    """role "zygote" forks ranks until told to end; "rank" and "store" become one and never fork."""
    phases = _Phases()
    gc.disable()  # imports make little garbage, and repeated collections cost CPU time
    state.fresh_main()
    sys.argv = [""]
    if role == "rank":
        _import_all(phases, _FIRST)
        _prepare(phases)
        gc.freeze()
        _become_rank({}, phases.text)
    if role == "store":
        _import_all(phases, _FIRST[:2])
        _ddip.mend_gloo()  # a forked one has the zygote's
        _serve_store({})
    if role != "zygote":
        return
    given = os.environ.get(_NVML_CHECK)
    os.environ.setdefault(_NVML_CHECK, "1")
    kind, env = _zygote(phases)
    if given is None:
        del os.environ[_NVML_CHECK]
    if kind == _STORE:
        _serve_store(env)
    elif kind == _RANK:
        _become_rank(env, "")


def _zygote(phases: _Phases) -> tuple[int | None, dict[str, str]]:
    """Serves forks. Returns (kind, env) in a child that is an engine; (None, {}) to exit."""
    _import_all(phases, _FIRST)
    _prepare(phases)
    if os.environ.get("DDIP_EAGER") == "1":
        _import_later(phases)
    while True:
        _ready(phases.text)
        forked = _ddip.zygote()
        if forked is None:
            return None, {}
        kind, _, env = forked
        if kind != _SUCCESSOR:
            return kind, env
        phases = _Phases()
        _import_later(phases)


def _import_later(phases: _Phases) -> None:
    _import_all(phases, _LATER)
    _warm_shell(phases)
    names = os.environ.get("DDIP_PRELOAD", "").split()
    failed = [f"{name}: {why}\n" for name in names if (why := _preload(phases, name))]
    if names:
        gc.collect()  # a user's module may leave garbage of any size
        _ddip.notify("Npreload", 0, "".join(failed))


class _Broken:
    """A finder by which each import of torch raises what the first one did. One that failed half
    way cannot be tried again in this process: torch's C++ registers its classes once, or aborts."""

    def __init__(self, error: BaseException) -> None:
        self._error, self._trace = error, error.__traceback__
        while self._trace is not None and _is_importing(self._trace.tb_frame):
            self._trace = self._trace.tb_next

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            raise self._error.with_traceback(self._trace)


def _is_importing(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in ("ddip_engine", "importlib")


def _import_all(phases: _Phases, modules: Iterable[tuple[str, str]]) -> None:
    for name, phase in modules:
        if not name.startswith("torch.") or "torch" in sys.modules:
            phases.measure(phase, _import, name)


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except BaseException as e:
        if name == "torch":
            state.torch_error = "" if getattr(e, "name", "") == name else _why(e)
            if "torch._C" in sys.modules:
                sys.meta_path.insert(0, _Broken(e))
        raise


def _preload(phases: _Phases, name: str) -> str:
    """Imports a module of the user's choice. If it starts threads, every rank starts cold.

    Returns "", or what the user should know.
    """
    before = len(os.listdir("/proc/self/task"))
    why = phases.measure(f"preload_{name}_ms", importlib.import_module, name)
    threads = len(os.listdir("/proc/self/task")) - before
    if threads > 0:
        threaded = f"starts {threads} threads: ranks will start cold"
        phases.text += f"preload_{name}_error {threaded}\n"
        why = f"{why}; {threaded}" if why else threaded
    return why


def _prepare(phases: _Phases) -> None:
    """Does once what every rank would do first: wraps torch and makes the shell."""
    from ddip_engine import rank
    from ddip_engine.cells import shell

    assert rank  # imported for the children
    phases.measure("patches_ms", _patch, phases)
    if "IPython" in sys.modules:
        phases.measure("ipython_shell_ms", shell.make)


def _patch(phases: _Phases) -> None:
    from ddip_engine.groups import dist, repair

    patches.check()
    phases.text += dist.install()
    repair.install()


def _warm_shell(phases: _Phases) -> None:
    from ddip_engine.cells import shell

    if shell.available():
        phases.measure("traceback_ms", shell.warm)


def _ready(phases: str) -> None:
    """Reports that this zygote can fork, and which paths make it stale when they change."""
    # Excludes what exists now from later collections. A collection before it would take a tenth of
    # the time of the imports, and find 7 MB, which the ranks share.
    gc.freeze()
    torch = patches.VERSION.get("unknown") if "torch" in sys.modules else "none"
    python = f"{sys.version.split()[0]} {sys.executable} torch {torch}"
    paths = [*site.getsitepackages(), os.path.join(sys.prefix, "pyvenv.cfg")]
    if site.ENABLE_USER_SITE:
        paths.append(site.getusersitepackages())
    found = "".join(f"{path}\0" for path in paths if os.path.exists(path))
    _ddip.notify("Nready", phases, python, os.fsencode(found))


def _become_rank(env: dict[str, str], phases: str) -> None:
    from ddip_engine import rank

    gc.enable()
    rank.main(env, phases)


def _serve_store(env: dict[str, str]) -> None:
    """Serves the stores of a group, in a process that runs no user code, until told to end."""
    gc.enable()
    os.environ.update(env)
    name = os.environ.get("DDIP_STORE")
    if name:
        path = os.path.join(os.environ["DDIP_RUN_DIR"], name)
        _thread.start_new_thread(store.Server(store.listen(path)).serve, ())
    kind = rendezvous.tcp_store_type()
    if kind is None:
        _ddip.notify("Nstarted", os.getpid(), 0, "", "")  # no torch: nothing connects to a TCPStore
        _wait_for_the_end()
    address = os.environ.get("DDIP_STORE_ADDR", "127.0.0.1")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # On its own, a TCPStore listens on every interface. The port, if set, is that of a store that
    # died, whose clients can thus reconnect.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, int(os.environ.get("DDIP_STORE_PORT", "0"))))
    listener.listen(1024)
    port = listener.getsockname()[1]
    _need_way(family, address, port)
    started = time.monotonic()
    tcp_store = _tcp_store(kind, address, port, listener.detach())
    elapsed_ms = (time.monotonic() - started) * 1000
    _ddip.notify("Nstarted", os.getpid(), tcp_store.port, f"store_ms {elapsed_ms:.0f}\n", "")
    _wait_for_the_end()
    del tcp_store


def _need_way(family: int, address: str, port: int) -> None:
    """Ends the process where nobody can connect to it, as where the loopback interface is down: a
    TCPStore, which connects to itself, would try for minutes."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, port))
        except OSError as e:
            lo = "; is the interface lo up?" if address.startswith("127.") else ""
            why = f"nobody can connect to {address}: {e.strerror}{lo}"
            _ddip.notify("Nstarted", os.getpid(), 0, "", why)
            sys.exit(1)


def _tcp_store(kind: Any, address: str, port: int, fd: int) -> Any:
    """A TCPStore that serves this listening socket. The libuv backend of torch before 2.8 cannot
    take one, and raises before it takes the descriptor: torch's other backend then serves it."""
    given = {"is_master": True, "wait_for_workers": False, "master_listen_fd": fd}
    try:
        return kind(address, port, **given)
    except NotImplementedError:
        return kind(address, port, **given, use_libuv=False)


def _wait_for_the_end() -> NoReturn:
    """Answers any request with an error until told to end, then exits."""
    while (message := _ddip.next()) is not None:
        kind, tag, fd, *_ = message
        if fd >= 0:
            os.close(fd)
        _ddip.error(tag, errno.EOPNOTSUPP, f"a store does not know {kind}")
    os._exit(0)
