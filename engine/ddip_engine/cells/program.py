"""Runs a program in the ranks as torchrun does: its directory, environment and arguments, its code
as `__main__`, and the end of a process, as far as possible in a process that lives on.

A cell whose first line is `# ddip run: JSON` is a program (cell.py parses that line). What the
program changed in its surroundings is restored when it is done; its variables stay.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
from importlib.machinery import BuiltinImporter, SourceFileLoader

from ddip_engine import patches, raised, state
from ddip_engine.cells import beside, colour, program_end, shell, streams
from ddip_engine.cells import cell as cells
from ddip_engine.groups import dist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, NoReturn, TypeVar

    from ddip_engine.cells.cell import Cell, Ended, Program
    from ddip_engine.patches import Row

    T = TypeVar("T")
    AtExit = tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]
    # what os.execve() takes
    Path = str | bytes | os.PathLike[Any]
    Argv = tuple[Any, ...] | list[Any]
    Env = Mapping[Any, Any]

_MAIN_NAMES = (
    "__file__", "__spec__", "__package__", "__loader__", "__cached__", "__doc__", "__annotations__",
)  # fmt: skip
# These describe this host, and are not taken from the caller, who may be on another one.
_OF_HOST = ("HOSTNAME", "SLURMD_NODENAME", "SLURM_NODEID")
# What their exit functions do for a program, program_end.py does; they stop the modules for good.
_OF_PROCESS = ("weakref", "multiprocessing.util")
_NOT_SENT = "with a program go the modules beside it that its import statements name"
_HOOKS = ("excepthook", "unraisablehook", "displayhook")
_real_register, _real_unregister = atexit.register, atexit.unregister
_real_execve = os.execve
_running: _Surroundings | None = None  # of the running program


def run_cell(cell: Cell) -> Ended:
    """Runs the program to its end. Returns cell.Ended."""
    cell.in_code = False  # it has not begun
    around = _running
    assert around is not None  # surroundings() has set it
    ended = _execute(cell, around.program)
    _report(ended, around)
    for step in program_end.STEPS:
        try:
            with cell.code():
                cell.raise_held()  # the step may wait for threads without end
                step(around)
        except BaseException as e:  # like Python's own shutdown: reports it and continues
            program_end.complain("at the end of the program", e)
            if raised.is_a(e, KeyboardInterrupt) and ended.error is None:
                ended = cells.Ended(e)
    return ended


def _execute(cell: Cell, program: Program) -> Ended:
    names = state.main.__dict__
    try:
        with cell.code():
            cell.raise_held()
            if program.module:
                _run_module(program.module)
            else:
                cells.remember_source(cell.file, cell.source)
                exec(compile(cell.source, cell.file, "exec", 0, True), names)
    except (SyntaxError, ValueError) as e:
        # no frame but this one: none of it ran
        outside = raised.trace(e).tb_next is None  # type: ignore[union-attr]
        return cells.Ended(e, syntax=outside and not program.module)
    except BaseException as e:
        return cells.Ended(e)
    finally:
        if program.module:
            cell.file = names.get("__file__") or cell.file
    return cells.Ended()


def _run_module(name: str) -> None:
    if (run := patches.RUN_MODULE.get()) is not None:
        run(name)
    else:  # in a namespace of its own
        runpy.run_module(name, run_name="__main__", alter_sys=True)


def _report(ended: Ended, around: _Surroundings) -> None:
    """Shows how the program failed, through its own sys.excepthook if it has one."""
    error = ended.error
    if error is None:
        return
    if raised.is_a(error, SystemExit):
        code = raised.code(error)
        if code is not None and not raised.is_a(code, int):
            print(cells.message(code), file=sys.stderr or sys.__stderr__)
        return
    if state.host and raised.is_a(error, ModuleNotFoundError) and hasattr(error, "add_note"):
        error.add_note(f"It is not on host {state.host}: {_NOT_SENT}")
    cells.trim(error, around.cell)
    if sys.excepthook is not around.hooks["excepthook"]:
        try:
            with around.cell.code():
                around.cell.raise_held()
                sys.excepthook(type(error), error, raised.trace(error))
            return
        except BaseException as e:  # then it is shown as usual
            program_end.complain("in sys.excepthook", e)
    streams.display("error", **around.cell.explain(_described, error))


def _described(error: BaseException) -> Mapping[str, object]:
    coloured = {"traceback": colour.render(error)} if shell.available() else {}
    return cells.describe(error) | coloured


# ---- its surroundings


class _Surroundings:
    """What is around a running program, and what was there before it."""

    def __init__(self, cell: Cell) -> None:
        assert cell.program is not None
        self.cell, self.program = cell, cell.program
        self.cwd = _directory()  # None: it was removed and can't be restored
        self.environ = dict(os.environ)
        self.argv, self.path = sys.argv, list(sys.path)
        names = state.main.__dict__
        self.names = {name: names[name] for name in _MAIN_NAMES if name in names}
        self.hooks = {name: getattr(sys, name) for name in _HOOKS}
        self.streams = streams.current()
        self.descriptors = streams.descriptors()
        self.umask = _umask()
        self.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self.timers = [each for each in program_end.TIMERS if signal.getitimer(each) != (0, 0)]
        self.shell: shell.Hidden | None = None  # IPython's, while it is hidden
        # the engine's in the namespace, while they are hidden
        self.engine_names: dict[str, Any] = {}
        # (row, what was there) of functions that are replaced
        self.replaced: list[tuple[Row, Any]] = []
        self.group: dict[str, Any] | None = None  # the engine's process group, while it is hidden
        self.at_exit: list[AtExit] = []  # (function, args, kwargs) that the program registered
        self.threads = set(threading.enumerate())
        self.finalizers: set[Any] = set(patches.FINALIZERS.get(()))
        self.children = set(program_end.children())
        self.resources = set(program_end.resources())


def _directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _umask() -> int:
    """Reads it: os.umask() has to change it for a moment, for all threads."""
    with open("/proc/self/status", "rb") as status:
        found = re.search(rb"^Umask:\s*(\d+)", status.read(), re.M)
    if found:
        return int(found[1], 8)
    mask = os.umask(0o077)  # not every kernel tells it
    os.umask(mask)
    return mask


@contextlib.contextmanager
def surroundings(cell: Cell) -> Iterator[None]:
    """Sets a program's directory, environment, arguments and hooks while it runs."""
    global _running
    _running = around = _Surroundings(cell)
    try:
        _enter(around)
        yield
    finally:
        _leave(around)
        _running = None


def _enter(around: _Surroundings) -> None:
    program = around.program
    copies = beside.take(program)
    if copies is not None and program.is_file():
        around.cell.file = os.path.join(copies, os.path.basename(program.argv[0]))
    _change_directory(state.fixed_cwd or program.cwd)
    _set_environment(environment(program.env) | program.launch)
    _set_threads()
    _set_names(program, around.cell.file)
    sys.argv = list(program.argv)
    if program.module:
        sys.argv.insert(0, "-m")
        folder = copies or (program.cwd if state.fixed_cwd else os.getcwd())
    elif program.is_file():
        folder = os.path.dirname(os.path.realpath(around.cell.file))
        if copies or state.fixed_cwd:
            sys.argv[0] = around.cell.file  # not relative to the caller's directory
    else:
        folder = ""
    forget_modules_beside(folder or os.getcwd())
    _set_path(folder)
    for row, ours in _REPLACED.items():
        around.replaced.append((row, _replace(row, ours)))
    terminals = [k for k, rank in program.terminal.items() if rank == state.rank]
    streams.begin_program(terminals, not program.gets_input(state.rank))
    around.shell = shell.hide()
    if not program.keep:
        around.engine_names = state.take(state.engine_names)
        around.group = dist.hide_default()


def _replace(row: Row, function: Callable[..., Any]) -> Any:
    """Puts this one in its place. Returns what was there; None: it is missing."""
    return row.replace(lambda _: function)


def _change_directory(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as e:
        text = f" on host {state.host} (`cwd DIR` in ctl sets the directory of programs)"
        raise OSError(e.errno, f"{e.strerror}{text if state.host else ''}", path) from None


def _leave(around: _Surroundings) -> None:
    dist.unhide_default(around.group)
    shell.unhide(around.shell)
    streams.restore_descriptors(around.descriptors)
    streams.restore(around.streams)
    streams.end_program()
    os.umask(around.umask)
    signal.pthread_sigmask(signal.SIG_SETMASK, around.blocked)
    for row, real in around.replaced:
        if real is not None:
            _replace(row, real)
    _replace_names(around.names)
    state.give_back(state.main, around.engine_names)
    sys.argv = around.argv
    sys.path[:] = around.path
    for name, hook in around.hooks.items():
        setattr(sys, name, hook)
    _set_environment(around.environ)
    _set_threads()
    try:
        if around.cwd is not None:
            os.chdir(around.cwd)
    except OSError as e:
        print(f"ddip: the directory {around.cwd} cannot be entered again: {e}", file=sys.stderr)


def _set_names(program: Program, file: str) -> None:
    """Gives `__main__` the names that Python gives it; runpy replaces those of a module."""
    names: dict[str, Any] = {"__spec__": None, "__package__": None, "__doc__": None}
    if sys.version_info < (3, 14):  # since then, they are made when they are asked for
        names["__annotations__"] = {}
    if not program.is_file():
        names["__loader__"] = BuiltinImporter
    else:
        names.update(__file__=file, __cached__=None, __loader__=SourceFileLoader("__main__", file))
    _replace_names(names)


def _replace_names(names: Mapping[str, Any]) -> None:
    """Of the names that Python gives `__main__`, only these stay there."""
    main = state.main.__dict__
    for name in _MAIN_NAMES:
        main.pop(name, None)
    main.update(names)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that was started with the given one. The group's settings, the
    variables that the engine set, and the names of the host take precedence; the number of threads
    is the caller's, or else torchrun's."""
    env = dict(given)
    env.update((name, os.environ[name]) for name in _OF_HOST if name in env and name in os.environ)
    env.update(state.settings_env)
    env.update(state.engine_env)
    for name, value in state.default_env.items():
        env.setdefault(name, value)
    return env


def _set_environment(env: Mapping[str, str]) -> None:
    for name in os.environ.keys() - env.keys():
        del os.environ[name]
    for name, value in env.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _set_threads() -> None:
    """Sets torch's number of threads from the environment, as if torch were imported now."""
    get, set_to = patches.THREADS.get(), patches.SET_THREADS.get()
    count = os.environ.get("OMP_NUM_THREADS", "1").partition(",")[0]
    if set_to is None or not count.isdigit() or not int(count):
        return
    if get is None or get() != int(count):  # some builds warn if it is set again
        set_to(int(count))


def _set_path(folder: str) -> None:
    """Sets sys.path as Python does: the program's folder, PYTHONPATH, the installation's own."""
    rest = [each for each in sys.path if each]
    given = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    given = [os.path.abspath(each) for each in given]
    sys.path[:] = [folder, *(each for each in given if each not in rest), *rest]


def forget_modules_beside(folder: str) -> None:
    """Drops the modules that were imported from this folder, and their submodules: they may have
    been edited since, or belong to another program and have the same name."""
    folder = os.path.realpath(folder)
    beside = {name for name, module in list(sys.modules.items()) if _lies_in(folder, name, module)}
    for name in list(sys.modules):
        if name.partition(".")[0] in beside:
            del sys.modules[name]
    if beside:
        importlib.invalidate_caches()


def _lies_in(folder: str, name: str, module: object) -> bool:
    """True if this is a module in Python, and is FOLDER/NAME.py or FOLDER/NAME/."""
    if "." in name or name == "__main__":
        return False
    file = getattr(module, "__file__", None)
    if file is None:  # a package without __init__.py
        places = [os.path.dirname(each) for each in getattr(module, "__path__", ())]
    elif not str(file).endswith((".py", ".pyc")):
        return False
    else:
        place = os.path.dirname(file)
        places = [os.path.dirname(place) if hasattr(module, "__path__") else place]
    return any(os.path.realpath(place) == folder for place in places)


# ---- functions that a program calls, in the rank's own process only


def _own() -> _Surroundings | None:
    """Of the program that runs in this process."""
    return _running if os.getpid() == state.pid else None


def _register(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Callable[..., T]:
    """atexit.register: the program's functions run at its end."""
    around = _own()
    if around is None or getattr(function, "__module__", None) in _OF_PROCESS:
        return _real_register(function, *args, **kwargs)
    if not callable(function):
        raise TypeError("the first argument must be callable")
    around.at_exit.append((function, args, kwargs))
    return function


def _unregister(function: Callable[..., object]) -> None:
    """atexit.unregister, also for what was registered before the program."""
    if (around := _running) is not None:
        around.at_exit = [each for each in around.at_exit if each[0] != function]
    _real_unregister(function)


def _execv(path: Path, argv: Argv) -> NoReturn:
    _execve(path, argv, os.environ)


def _execve(path: Path | int, argv: Argv, env: Env) -> NoReturn:
    """os.execve: runs the other program as a child, and exits with its status."""
    if _own() is None or isinstance(path, int):
        _real_execve(path, argv, env)
    streams.flush()
    status = None
    with subprocess.Popen(list(argv), executable=path, env=dict(env)) as child:
        while status is None:
            with contextlib.suppress(KeyboardInterrupt):  # the child gets the signal as well
                status = child.wait()
    os._exit(status if status >= 0 else 128 - status)


_REPLACED: dict[Row, Callable[..., Any]] = {
    patches.AT_EXIT: _register,
    patches.NOT_AT_EXIT: _unregister,
    patches.EXECV: _execv,
    patches.EXECVE: _execve,
}


def end_child() -> None:
    """Runs the inherited exit functions in a child that user code forked and that returned here."""
    if (around := _running) is not None:
        program_end.end_functions(around)
