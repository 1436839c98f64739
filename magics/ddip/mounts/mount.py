"""Daemons of ddipfs, each with a mount or a socket: starting one, ending it. where.py finds them.

The contents of a mount are the business of groups.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from ddip.errors import DipError
from ddip.mounts import files, p9, where

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


_NO_MOUNT = 3  # exit status of ddipfs: nothing can be mounted on this machine
_UNMOUNT_S = 20
_BUSY_S = 2  # how long to retry: where it may not clone the mount, the watchdog opens files in it

# Runs as a child of the kernel and becomes the daemon. It ends with the kernel, however that ends:
# with the thread that started it, to be exact.
_WITH_KERNEL = """
import ctypes, os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
ctypes.CDLL(None).prctl(1, signal.SIGHUP)  # SIGTERM may be a group's on_preempt
if os.getppid() != int(sys.argv[1]):
    sys.exit("the kernel has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""


_started: set[str] = set()  # sockets whose daemons this process started
_made: set[str] = set()  # directories that this process made; removed when their daemon ends


def is_private(path: str) -> bool:
    """True if the daemon of this place was started from a notebook."""
    name = os.path.basename(path)
    found = name == where.SOCKETS[1] or path in _started
    return found or where.mounts().get(os.path.realpath(path)) == where.PRIVATE


def private_path() -> str:
    """Where to mount a daemon for this user: $DDIP_MOUNT, else a directory of the user."""
    named = os.environ.get("DDIP_MOUNT")
    if named:
        return named
    return os.path.join(_base(), "ddip")


def _base():
    """A directory that belongs to this user, made if necessary. Raises DipError."""
    base = where.runtime_folder()
    try:
        if not base:
            base = where.user_folder()
            with contextlib.suppress(FileExistsError):
                os.mkdir(base, mode=0o700)
            if not where.is_own(base):
                taken, base = base, tempfile.mkdtemp(prefix=os.path.basename(base) + ".")
                print(f"ddip: {taken} is not a directory of yours: {base} serves", file=sys.stderr)
    except OSError as e:
        text = f"{e.filename or 'a directory'}: {e.strerror}: name a place by %makedip -m PATH"
        raise DipError(text, e.errno) from None
    return base


def program() -> str:
    """The path of ddipfs: $DDIPFS, in PATH, or where it was installed with this package."""
    named = os.environ.get("DDIPFS")
    if named:
        if not os.access(named, os.X_OK):
            raise DipError(f"$DDIPFS is {named}: no such program")
        return named
    found = shutil.which("ddipfs") or shutil.which("ddipfs", path=os.pathsep.join(_folders()))
    if not found:
        raise DipError(
            "no program ddipfs in PATH: install its wheel by pip, run `make install` in its"
            " source, or set $DDIPFS to its path"
        )
    return os.path.realpath(found)


def _folders():
    """Where the programs are if they are not in PATH: beside this Python; in the prefix whose
    lib/pythonX.Y/site-packages has this package; with `pip install --target`; in the sources.
    """
    yield os.path.dirname(sys.executable)
    site = os.path.abspath(os.path.join(__file__, "../../.."))
    for folder in ("../../../bin", "bin", "../build"):
        yield os.path.normpath(os.path.join(site, folder))


_own: str | None = None  # the mount that ends with this program
_starting = threading.Lock()  # held by the thread that looks for a mount or starts one


def _renew_lock():
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)  # the thread that held it is not in the child


def find_or_start() -> str:
    """The mount to use; starts one if there is none: in a program, one that ends with it."""
    with _starting:
        return _find_or_start()


def _find_or_start():
    global _own
    path = where.find() or (_own if _own and where.is_mounted(_own) else None)
    if path is not None:
        return path
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    if get_ipython() is not None:
        return start(private_path())[0]
    named = os.environ.get("DDIP_MOUNT")
    _own = start(named or _new_directory(), True, where.PROGRAMS)[0]
    return _own


def _new_directory():
    path = tempfile.mkdtemp(prefix="ddip-", dir=_base())
    _made.add(path)
    return path


def start(path: str, with_kernel: bool = False, source: str = where.PRIVATE) -> tuple[str, bool]:
    """Starts a daemon on path. Its ranks will run this kernel's Python in this directory.

    with_kernel: it ends when this process does. A path that ends in .sock is a socket; if nothing
    can be mounted, a socket in the directory path is used. Returns (the place, True); or if another
    process has started one meanwhile, (its place, False). Raises DipError.
    """
    if not path.endswith(".sock"):
        _make_directory(path)
    with _alone_at(path):
        found = where.locate(path)
        return (found, False) if found else (_start(path, with_kernel, source), True)


@contextlib.contextmanager
def _alone_at(path):
    """Keeps others from starting a daemon on path, by a locked file beside it.

    Where there can be no such file, it keeps nobody.
    """
    folder, base = os.path.split(os.path.realpath(path))
    name = os.path.join(folder, f".{base}.ddip-lock")
    try:
        fd = _lock(name)
    except OSError:
        fd = None
    try:
        yield
    finally:
        if fd is not None:
            with contextlib.suppress(OSError):  # somebody has removed it
                os.unlink(name)
            fcntl.flock(fd, fcntl.LOCK_UN)  # a process that was forked meanwhile has it open
            os.close(fd)


def _lock(name):
    """Makes a file, waits until it is locked, and returns its descriptor. Raises OSError."""
    while True:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(fd), os.stat(name)):
                return fd
        except FileNotFoundError:  # whoever held the lock has removed it
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _start(path, with_kernel, source):
    if path.endswith(".sock"):
        return _serve(path, with_kernel)
    words = ["-o", f"fsname={source},{_python_option()}", path]
    if _run(words, path, with_kernel):
        return path
    place = _serve(os.path.join(path, where.SOCKETS[1]), with_kernel)
    print(f"nothing can be mounted here: the group's files are served at {place}", file=sys.stderr)
    return place


def _serve(path, with_kernel):
    _run(["-o", _python_option(), "-s", path], path, with_kernel)
    _started.add(path)
    return path


def serve(path: str, settings: Iterable[str]) -> None:
    """Starts a daemon with these settings, NAME=VALUE each, which serves on the socket path and
    ends when this process does. Raises DipError."""
    options = [word for each in settings for word in ("-o", _escaped(each))]
    _run([*options, "-s", path], path, True)


def _escaped(setting):
    """A setting as ddipfs's -o takes it, where a comma would begin the next option."""
    return re.sub(r"([\\,])", r"\\\1", setting)


def _python_option():
    return _escaped(f"python={sys.executable}")


def _run(words, path, with_kernel):
    """Runs ddipfs. Returns False if nothing can be mounted on this machine. Raises DipError."""
    command = [program(), *words]
    try:
        if with_kernel:
            status, text = _start_with_kernel(command, path)
        else:
            status, text = _start_detached(command)
    except OSError as e:
        raise DipError(f"{command[0]} could not be started: {e.strerror}") from e
    if status not in (0, _NO_MOUNT):
        raise DipError(text or f"{' '.join(command)} ended with status {status}")
    return status == 0


def _make_directory(path):
    try:
        if not os.path.isdir(path):
            os.makedirs(path, exist_ok=True)
            _made.add(path)
    except OSError as e:
        # possibly a mount whose daemon has exited: ddipfs mounts over it
        if path not in where.mounts():
            raise DipError(f"{path} cannot be made: {e.strerror}") from e


def _start_detached(command):
    with tempfile.TemporaryFile() as said:
        status = subprocess.call(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        said.seek(0)
        return status, said.read().decode("utf-8", "replace").strip()


def _start_with_kernel(command, path):
    import atexit

    command.insert(1, "-f")
    log = tempfile.TemporaryFile()
    daemon = _popen_in_thread(
        [sys.executable, "-c", _WITH_KERNEL, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    while not where.is_mounted(path):
        try:
            status = daemon.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
        log.seek(0)
        return status, log.read().decode("utf-8", "replace").strip()
    folder = os.path.dirname(path) if path.endswith(".sock") else path
    atexit.register(_end_with_kernel, daemon, folder, os.getpid())
    return 0, ""


def _popen_in_thread(command, **options):
    """subprocess.Popen() in a thread that stays until the child has ended.

    The kernel takes the end of the thread that forked for the end of the child's parent. This
    thread ends before the child only if the process does, or executes another program.
    """
    outcome = queue.SimpleQueue()

    def stay():
        try:
            child = subprocess.Popen(command, **options)
        except OSError as e:
            outcome.put(e)
            return
        outcome.put(child)
        child.wait()

    threading.Thread(target=stay, name="ddip-daemon", daemon=True).start()
    got = outcome.get()
    if isinstance(got, OSError):
        raise got
    return got


def _end_with_kernel(daemon, path, pid):
    if os.getpid() != pid:
        return  # this is a forked child, which is exiting
    daemon.send_signal(signal.SIGHUP)
    daemon.wait()
    _remove_directory(path)


def _remove_directory(path):
    """Removes a directory that this process made, if it is empty."""
    if path in _made:
        _made.discard(path)
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(path)


def stop(path: str, lazy: bool = False) -> None:
    """Ends the daemon of a place, and its ranks with it.

    lazy: even if the mount is in use, which raises DipError otherwise.
    """
    if files.learn(path):
        _stop_serving(path)
    else:
        _unmount(path, lazy)


def _unmount(path, lazy):
    if shutil.which("fusermount3"):
        command = ["fusermount3", "-u", *(["-z"] if lazy else []), path]
    else:  # without fusermount3, only root can have mounted
        command = ["umount", *(["-l"] if lazy else []), path]
    options = {"env": {**os.environ, "LC_ALL": "C"}, "capture_output": True, "text": True}
    deadline = time.monotonic() + _BUSY_S
    while (done := subprocess.run(command, check=False, **options)).returncode:
        if "busy" not in done.stderr or time.monotonic() > deadline:
            raise DipError(f"{path} could not be unmounted: {done.stderr.strip()}")
        time.sleep(0.02)


def _stop_serving(path):
    try:
        pidfd = os.pidfd_open(p9.daemon_of(path))
    except OSError as e:
        raise DipError(f"{path}: {e.strerror}") from None
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        select.select([pidfd], [], [])
    finally:
        os.close(pidfd)
    _started.discard(path)


def end(path: str) -> None:
    """Like stop(), for a mount made here: waits until it is gone and removes its directory."""
    stop(path)
    deadline = time.monotonic() + _UNMOUNT_S
    while os.path.realpath(path) in where.mounts() and time.monotonic() < deadline:
        time.sleep(0.005)
    folder = os.path.dirname(path) if os.path.basename(path) in where.SOCKETS else path
    if not os.path.ismount(folder):
        _remove_directory(folder)
