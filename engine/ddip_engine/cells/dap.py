"""Breakpoints that a front end sets in the cells of this rank: pydevd, which debugpy brings.

pydevd speaks the Debug Adapter Protocol (https://microsoft.github.io/debug-adapter-protocol) by
itself. debugpy's adapter would listen on a port, which every user of the machine can connect to. So
the rank connects to a Unix socket of the notebook's, in a directory that only its user can enter:
nothing listens here, and none of this is imported before a front end has asked for it.

Only the main thread stops, and only in code of cells and what that calls. A child that a cell forks
is not debugged.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import socket
import sys
import threading

import _ddip
from ddip_engine import patches, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from threading import Thread
    from typing import Any

    from ddip_engine.cells.cell import Cell

_STOPS, _GOES_ON = 3, 0  # of Ninput
_RUN, _NO_STEP = 1, -1  # pydevd's STATE_RUN, and what its pydev_step_cmd is then
_STEP_IN = 144  # its CMD_STEP_INTO_MY_CODE
_OURS = "<ddip_engine"  # how the file names of the engine's code begin
_RULES = [{"module": name, "include": False} for name in ("ddip_engine", "IPython")]
_HAS_MONITORING = hasattr(sys, "monitoring")  # since Python 3.12, in place of sys.settrace()
_EVENTS = ("PY_START", "PY_RESUME", "PY_RETURN", "PY_UNWIND", "RAISE", "LINE", "JUMP")

_debugger: Any = None  # pydevd's PyDB
_link: _Link | None = None  # the connection to the front end; None: there is none
_pydevd: Any = None  # what it offers to whoever speaks for a front end
_other: object = None  # the tool of the user's, of which was told that it is in the place of pydevd
_steps: Cell | None = None  # the one whose code has ended within a step
# text of a cell -> the file name under which the front end knows it, which pydevd must be told
_new: dict[str, str] = {}


class _Link(socket.socket):
    """The connection to the front end. At its end nobody could let a stopped rank go on."""

    def recv(self, *args: Any) -> bytes:
        """As that of a socket; an error counts as the end."""
        global _link
        try:
            data = super().recv(*args)
        except OSError:
            data = b""
        if not data and self is _link:
            _link = None
            _pydevd.request_disconnect(_debugger, resume_threads=True)
        return data


class _Names:
    """Takes from the front end's messages what pydevd has no use for, and adds what it needs."""

    def after_receive(self, message: dict[str, Any]) -> None:
        """Called by pydevd with each message from the front end, which it may change."""
        arguments = message.get("arguments") or {}
        if "ddipCells" in arguments:
            _new.update(arguments.pop("ddipCells"))
        elif message.get("command") == "attach":
            arguments["rules"] = _RULES

    def before_send(self, message: dict[str, Any]) -> None:
        """Nothing."""


def connect(path: str) -> None:
    """Connects to the front end's socket; called in a cell. Raises ImportError without debugpy,
    ConnectionError if the socket cannot be reached, as from another host."""
    global _debugger, _link
    link = _Link(socket.AF_UNIX)
    try:
        link.connect(path)
    except OSError as e:
        link.close()
        raise ConnectionError(f"the notebook cannot be reached from here: {e.strerror}") from None
    if _debugger is None:
        _debugger = _make()
        os.register_at_fork(after_in_child=_in_child)
    _new.clear()
    old, _link = _link, link
    if old is not None:  # another notebook's, whose breakpoints end
        _pydevd.remove_all_breakpoints(_debugger, "*")
        _pydevd.remove_all_exception_breakpoints(_debugger)
    _debugger.initialize_network(link, terminate_on_socket_close=False)
    if old is not None:  # it learns so that it is connected no more
        with contextlib.suppress(OSError):
            old.shutdown(socket.SHUT_RDWR)


def _make() -> Any:
    """A PyDB that neither listens nor ends the process."""
    global _pydevd
    hook, environ = sys.breakpointhook, dict(os.environ)
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # it would warn of frozen modules
    try:
        from debugpy.server import api as debugpy
    finally:
        sys.breakpointhook = hook  # breakpoint() is pdb's, whether somebody is connected or not
        for name in os.environ.keys() - environ.keys():
            if name.startswith("PYDEVD_"):
                del os.environ[name]
    api = patches.DEBUGGER_API.get()
    if api is None:
        raise ImportError("this debugpy is not known")

    class Debugger(debugpy.pydevd.PyDB):
        """Stops the main thread only, and tells the daemon that it is stopped."""

        def do_wait_suspend(self, thread: Thread, *args: Any, **kwargs: Any) -> None:
            if thread is not threading.main_thread():
                return
            _ddip.notify("Ninput", _STOPS)
            try:
                super().do_wait_suspend(thread, *args, **kwargs)
            finally:
                _ddip.notify("Ninput", _GOES_ON)

        def set_suspend(self, thread: Thread, *args: Any, **kwargs: Any) -> None:
            """Since Python 3.12 pydevd sees all threads, also the one that answers the mount."""
            if thread is threading.main_thread():
                super().set_suspend(thread, *args, **kwargs)

    _pydevd, made = api(), Debugger()
    _pydevd.set_dont_trace_start_end_patterns(made, (_OURS,), ())
    made.add_dap_messages_listener(_Names())
    made.ready_to_run = True
    made.start_auxiliary_daemon_threads()
    return made


def _in_child() -> None:
    _unhook()
    sys.settrace(None)


def _hook() -> None:
    """The interpreter calls pydevd from now on. Python 3.12 has one hook for all threads, and a
    mark on each thread whether pydevd heeds it."""
    if _HAS_MONITORING:
        _debugger.enable_tracing(apply_to_all_threads=True)
    _debugger.enable_tracing()


def _unhook() -> None:
    """It calls pydevd no more, not even to hear that nothing is wanted: each call would cost."""
    if not _HAS_MONITORING:
        return
    monitoring = sys.monitoring  # type: ignore[attr-defined]  # see above
    tool = monitoring.DEBUGGER_ID
    if monitoring.get_tool(tool) == "pydevd":
        monitoring.set_events(tool, 0)
        for event in _EVENTS:  # functions with a breakpoint have events of their own
            monitoring.register_callback(tool, getattr(monitoring.events, event), None)
        monitoring.free_tool_id(tool)


def _users_tool() -> object:
    """What the user has put where pydevd goes, such as a tracer; None if there is nothing."""
    if _HAS_MONITORING:
        monitoring = sys.monitoring  # type: ignore[attr-defined]  # see above
        name = monitoring.get_tool(monitoring.DEBUGGER_ID)
        return None if name == "pydevd" else name
    trace = sys.gettrace()
    module = getattr(trace, "__module__", None) or type(trace).__module__
    return None if str(module).startswith("_pydevd") else trace


def _gives_way() -> bool:
    """True if the user has such a tool, of which is told once. It would see nothing any more."""
    global _other
    tool = _users_tool()
    if tool is not None and tool is not _other:
        way = "sys.monitoring.free_tool_id()" if _HAS_MONITORING else "sys.settrace(None)"
        print(
            f"{tool} traces rank {state.rank}: no breakpoint stops here before {way}",
            file=sys.stderr,
        )
    _other = tool
    return tool is not None


def begin(cell: Cell) -> None:
    """Before the code of a cell: its breakpoints hold from now on. Its last expression is code of
    its own, where a step goes on."""
    global _steps
    if _debugger is None:
        return
    step, _steps = _STEP_IN if cell is _steps else _NO_STEP, None
    _unhook()
    if _link is None or _gives_way():
        return
    _clear(step)
    while _new:
        source, path = _new.popitem()
        file = cell.file if source == cell.source else _file(source)
        if file is not None:
            entry = _pydevd.SourceMappingEntry(1, source.count("\n") + 1, 1, file)
            _pydevd.set_source_mapping(_debugger, path, [entry])
    _hook()


def _file(source: str) -> str | None:
    """By which name tracebacks know the last cell with this text; None if none has run here."""
    for name, entry in reversed([*linecache.cache.items()]):
        if name.startswith("<cell ") and len(entry) == 4 and entry[0] == len(source):
            if "".join(entry[2]).rstrip("\n") == source.rstrip("\n"):
                return name
    return None


def end(cell: Cell) -> None:
    """After it: what runs now is the engine's."""
    global _steps
    if _debugger is not None:
        info = _info()
        _steps = None if info is None or info.pydev_step_cmd == _NO_STEP else cell
        if _users_tool() is None:
            _debugger.disable_tracing()
        _unhook()
        _clear()


def _info() -> Any:
    """What pydevd knows of the main thread; None if it has not seen it yet."""
    return getattr(threading.main_thread(), "additional_info", None)


def _clear(step: int = _NO_STEP) -> None:
    """Forgets a step, or a stop, that the end of a cell has cut off. step: another one."""
    info = _info()
    if info is not None:
        info.pydev_step_cmd, info.pydev_step_stop, info.pydev_state = step, None, _RUN
        if step != _NO_STEP:  # for sys.monitoring, where pydevd uses that
            getattr(info, "update_stepping_info", lambda: None)()
